"""Rows, bytes and files of each input and output.

A scan of the executed plan has the expression ids of its leaf in the analyzed plan, which assign its metrics
to an input. If the optimizer assigned new ids (inlined CTE), metrics go to the only input without metrics;
with several candidates, none is set. Nested executions run the same plan: the largest counts are used, not
the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headwater.lineage.extend.builders import InputDatasetBuilder, OutputDatasetBuilder
from headwater.lineage.facets.make import standard
from headwater.lineage.jvm.messages import ExecutedNode, StageDone

_ROWS = ("numOutputRows", "number of output rows", "recordsRead")
_BYTES = ("filesSize", "numOutputBytes", "bytesRead")
_FILES = ("numFiles",)
_WRITERS = ("Writ", "Append", "Overwrite", "Replace", "Insert", "Delta", "Command")
_WRITTEN_ROWS = ("numOutputRows", "numTargetRowsInserted", "numInsertedRows")


class _Numbers:
    def __init__(self) -> None:
        self.rows: int | None = None
        self.size: int | None = None
        self.files: int | None = None

    def add(self, rows: int | None, size: int | None, files: int | None) -> None:
        self.rows = _sum(self.rows, rows)
        self.size = _sum(self.size, size)
        self.files = _sum(self.files, files)

    def widen(self, other: _Numbers) -> None:
        self.rows = _most(self.rows, other.rows)
        self.size = _most(self.size, other.size)
        self.files = _most(self.files, other.files)

    def facet(self, name: str) -> dict[str, Any]:
        return standard(name, rowCount=self.rows, size=self.size, fileCount=self.files)

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.rows, self.size, self.files))


def _sum(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else left + right


def _most(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else max(left, right)


def _first(metrics: dict[str, int], names: Iterable[str]) -> int | None:
    return next((metrics[name] for name in names if metrics.get(name, -1) >= 0), None)


def add_input_statistics(
    inputs: Sequence[InputDatasetBuilder], executions: Iterable[Sequence[ExecutedNode]]
) -> None:
    """Set `inputStatistics` on the inputs whose scans are known."""
    best = {id(each): _Numbers() for each in inputs}
    for executed in executions:
        for key, numbers in _scanned(inputs, executed).items():
            best[key].widen(numbers)
    for each in inputs:
        if found := best[id(each)]:
            facet = found.facet("input_statistics_input_dataset.InputStatisticsInputDatasetFacet")
            each.input_facets.setdefault("inputStatistics", facet)


def _scanned(inputs: Sequence[InputDatasetBuilder], executed: Sequence[ExecutedNode]) -> dict[int, _Numbers]:
    numbers = {id(each): _Numbers() for each in inputs}
    unassigned = _Numbers()
    for node in executed:
        if not _is_scan(node):
            continue
        metrics = (_first(node.metrics, _ROWS), _first(node.metrics, _BYTES), _first(node.metrics, _FILES))
        owners = [each for each in inputs if each.expr_ids & set(node.ids)]
        (numbers[id(owners[0])] if len(owners) == 1 else unassigned).add(*metrics)
    without = [each for each in inputs if not numbers[id(each)]]
    if unassigned and len(without) == 1:
        numbers[id(without[0])] = unassigned
    return numbers


def add_output_statistics(
    outputs: Sequence[OutputDatasetBuilder],
    executions: Iterable[tuple[int, Sequence[ExecutedNode]]],
    stages: Iterable[StageDone],
) -> None:
    """Set `outputStatistics` on the outputs; several of one execution in the order of the commands."""
    best = {id(each): _Numbers() for each in outputs}
    for number, executed in executions:
        writers = [node for node in executed if _is_writer(node)]
        own = [each for each in outputs if any(execution == number for execution, _ in each.plan_nodes)]
        own = own or (list(outputs) if len(outputs) == 1 else [])
        if len(own) == 1:
            numbers = _Numbers()
            for node in writers:
                numbers.add(*_written(node))
            best[id(own[0])].widen(numbers)
        elif own and len(own) == len(writers):
            own.sort(key=lambda each: min(node for execution, node in each.plan_nodes if execution == number))
            for output, node in zip(own, writers, strict=True):
                numbers = _Numbers()
                numbers.add(*_written(node))
                best[id(output)].widen(numbers)
    if len(outputs) == 1 and not (best[id(outputs[0])].rows or best[id(outputs[0])].size):
        whole = _Numbers()
        for stage in stages:
            whole.add(stage.metrics.get("records_written"), stage.metrics.get("bytes_written"), None)
        if whole.rows or whole.size:
            best[id(outputs[0])] = whole
    for output in outputs:
        if numbers := best[id(output)]:
            facet = numbers.facet("output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet")
            output.output_facets.setdefault("outputStatistics", facet)


def _written(node: ExecutedNode) -> tuple[int | None, int | None, int | None]:
    return (
        _first(node.metrics, _WRITTEN_ROWS),
        _first(node.metrics, ("numOutputBytes",)),
        _first(node.metrics, _FILES),
    )


def _is_scan(node: ExecutedNode) -> bool:
    """Whether the node scans a dataset; rows of a cache or of a program's RDD are not the dataset's."""
    name = node.cls.rpartition(".")[2]
    return "Scan" in name and "RDDScan" not in name and "InMemoryTable" not in name


def _is_writer(node: ExecutedNode) -> bool:
    name = node.cls.rpartition(".")[2]
    return "Scan" not in name and any(part in name for part in _WRITERS)

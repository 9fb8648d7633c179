"""Rows, bytes and files of each input and output.

A scan of the executed plan has the expression ids of its leaf in the analyzed plan, which assign its metrics
to an input. If the optimizer assigned new ids (inlined CTE), metrics go to the only input without metrics;
with several candidates, none is set. Nested executions run the same plan: the largest counts are used, not
the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from headwater.lineage.extend.builders import InputDatasetBuilder, OutputDatasetBuilder
from headwater.lineage.facets.make import standard
from headwater.lineage.jvm.messages import ExecutedNode, StageDone

_ROWS = ("numOutputRows", "number of output rows", "recordsRead")
_BYTES = ("filesSize", "numOutputBytes", "bytesRead")
_FILES = ("numFiles",)
_WRITERS = ("Writ", "Append", "Overwrite", "Replace", "Insert", "Delta", "Command")
_WRITTEN_BYTES = ("numOutputBytes",)
_WRITTEN_ROWS = ("numOutputRows", "numTargetRowsInserted", "numInsertedRows")


_Numbers = dict[str, int]  # fields of the facets: rowCount, size, fileCount


def _sum(left: _Numbers, right: _Numbers) -> _Numbers:
    return {name: left.get(name, 0) + right.get(name, 0) for name in left | right}


def _largest(left: _Numbers, right: _Numbers) -> _Numbers:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in left | right}


def _numbers(rows: int | None, size: int | None, files: int | None) -> _Numbers:
    found = {"rowCount": rows, "size": size, "fileCount": files}
    return {name: value for name, value in found.items() if value is not None}


def _first(metrics: dict[str, int], names: Iterable[str]) -> int | None:
    return next((metrics[name] for name in names if metrics.get(name, -1) >= 0), None)


def add_input_statistics(
    inputs: Sequence[InputDatasetBuilder],
    executions: Iterable[Sequence[ExecutedNode]],
    stages: Iterable[StageDone] = (),
) -> None:
    """Set `inputStatistics` on the inputs whose scans are known.

    `stages` are those of an RDD job, which has no scans; they read its input if it has one alone.
    """
    best: dict[int, _Numbers] = {id(each): {} for each in inputs}
    for executed in executions:
        for key, numbers in _scanned(inputs, executed).items():
            best[key] = _largest(best[key], numbers)
    if len(inputs) == 1 and not best[id(inputs[0])]:
        read: _Numbers = reduce(_sum, (_read(each) for each in stages if not each.error), {})
        best[id(inputs[0])] = read if any(read.values()) else {}
    for each in inputs:
        if found := best[id(each)]:
            facet = standard("input_statistics_input_dataset.InputStatisticsInputDatasetFacet", **found)
            each.input_facets.setdefault("inputStatistics", facet)


def _read(stage: StageDone) -> _Numbers:
    return _numbers(stage.metrics.get("records_read"), stage.metrics.get("bytes_read"), None)


def _scanned(inputs: Sequence[InputDatasetBuilder], executed: Sequence[ExecutedNode]) -> dict[int, _Numbers]:
    found: dict[int, _Numbers] = {id(each): {} for each in inputs}
    unassigned: _Numbers = {}
    for node in filter(_is_scan, executed):
        numbers = _numbers(*(_first(node.metrics, names) for names in (_ROWS, _BYTES, _FILES)))
        owners = [id(each) for each in inputs if each.expr_ids & set(node.ids)]
        if len(owners) == 1:
            found[owners[0]] = _sum(found[owners[0]], numbers)
        else:
            unassigned = _sum(unassigned, numbers)
    without = [id(each) for each in inputs if not found[id(each)]]
    if unassigned and len(without) == 1:
        found[without[0]] = unassigned
    return found


def add_output_statistics(
    outputs: Sequence[OutputDatasetBuilder],
    executions: Iterable[tuple[int, Sequence[ExecutedNode]]],
    stages: Iterable[StageDone],
) -> None:
    """Set `outputStatistics` on the outputs; several of one execution in the order of the commands."""
    best: dict[int, _Numbers] = {id(each): {} for each in outputs}
    for number, executed in executions:
        written = [_written(node) for node in executed if _is_writer(node)]
        own = [each for each in outputs if any(execution == number for execution, _ in each.plan_nodes)]
        own = own or (list(outputs) if len(outputs) == 1 else [])
        if len(own) == 1:
            written = [reduce(_sum, written, {})]
        elif len(own) == len(written):
            own.sort(key=lambda each: min(node for execution, node in each.plan_nodes if execution == number))
        else:
            continue
        for output, numbers in zip(own, written, strict=True):
            best[id(output)] = _largest(best[id(output)], numbers)
    if len(outputs) == 1 and not (best[id(outputs[0])].get("rowCount") or best[id(outputs[0])].get("size")):
        of_stages = (
            _numbers(each.metrics.get("records_written"), each.metrics.get("bytes_written"), None)
            for each in stages
        )
        whole: _Numbers = reduce(_sum, of_stages, {})
        if any(whole.values()):
            best[id(outputs[0])] = whole
    for output in outputs:
        if found := best[id(output)]:
            facet = standard("output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet", **found)
            output.output_facets.setdefault("outputStatistics", facet)


def _written(node: ExecutedNode) -> _Numbers:
    return _numbers(*(_first(node.metrics, names) for names in (_WRITTEN_ROWS, _WRITTEN_BYTES, _FILES)))


def _is_scan(node: ExecutedNode) -> bool:
    """Whether the node scans a dataset; rows of a cache or of a program's RDD are not the dataset's."""
    name = node.cls.rpartition(".")[2]
    return "Scan" in name and "RDDScan" not in name and "InMemoryTable" not in name


def _is_writer(node: ExecutedNode) -> bool:
    name = node.cls.rpartition(".")[2]
    return "Scan" not in name and any(part in name for part in _WRITERS)

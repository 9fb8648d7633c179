"""Rows, bytes and files of each input and output.

A scan of the executed plan has the expression ids of its leaf in the analyzed plan, which says whose numbers they
are. Where the optimizer made new ids (an inlined CTE), the only input left without numbers is meant; where there are
several, none is told rather than a wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headwater.lineage.dataset_builders import InputDatasetBuilder, OutputDatasetBuilder
from headwater.lineage.facets.make import standard
from headwater.lineage.messages import ExecutedNode, StageDone

__all__ = ["add_input_statistics", "add_output_statistics"]

_ROWS = ("numOutputRows", "number of output rows", "recordsRead")
_BYTES = ("filesSize", "numOutputBytes", "bytesRead")
_FILES = ("numFiles",)
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

    def facet(self, name: str) -> dict[str, Any]:
        return standard(name, rowCount=self.rows, size=self.size, fileCount=self.files)

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.rows, self.size, self.files))


def _sum(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else left + right


def _first(metrics: dict[str, int], names: Iterable[str]) -> int | None:
    return next((metrics[name] for name in names if metrics.get(name, -1) >= 0), None)


def add_input_statistics(inputs: Sequence[InputDatasetBuilder], executed: Iterable[ExecutedNode]) -> None:
    """Put `inputStatistics` on the inputs whose scans are known."""
    numbers = {id(each): _Numbers() for each in inputs}
    lost = _Numbers()
    for node in executed:
        if not _is_scan(node):
            continue
        told = (_first(node.metrics, _ROWS), _first(node.metrics, _BYTES), _first(node.metrics, _FILES))
        owners = [each for each in inputs if each.ids & set(node.ids)]
        (numbers[id(owners[0])] if len(owners) == 1 else lost).add(*told)
    without = [each for each in inputs if not numbers[id(each)]]
    if lost and len(without) == 1:
        numbers[id(without[0])] = lost
    for each in inputs:
        if found := numbers[id(each)]:
            each.input_facets.setdefault(
                "inputStatistics",
                found.facet("input_statistics_input_dataset.InputStatisticsInputDatasetFacet"),
            )


def add_output_statistics(
    outputs: Sequence[OutputDatasetBuilder], executed: Iterable[ExecutedNode], stages: Iterable[StageDone]
) -> None:
    """Put `outputStatistics` on the outputs: by place where there are several, else by what was written at all."""
    if not outputs:
        return
    writers = [node for node in executed if not _is_scan(node) and _is_writer(node)]
    if len(outputs) == 1:
        numbers = _Numbers()
        for node in writers:
            numbers.add(*_written(node))
        if not numbers or not (numbers.rows or numbers.size):
            whole = _Numbers()
            for stage in stages:
                whole.add(stage.metrics.get("records_written"), stage.metrics.get("bytes_written"), None)
            if whole.rows or whole.size:
                numbers = whole
        pairs = [(outputs[0], numbers)]
    elif len(writers) == len(outputs):
        pairs = []
        for output, node in zip(outputs, writers, strict=True):
            numbers = _Numbers()
            numbers.add(*_written(node))
            pairs.append((output, numbers))
    else:
        return
    for output, numbers in pairs:
        if numbers:
            output.output_facets.setdefault(
                "outputStatistics",
                numbers.facet("output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet"),
            )


def _written(node: ExecutedNode) -> tuple[int | None, int | None, int | None]:
    return (
        _first(node.metrics, _WRITTEN_ROWS),
        _first(node.metrics, ("numOutputBytes",)),
        _first(node.metrics, _FILES),
    )


def _is_scan(node: ExecutedNode) -> bool:
    return "Scan" in node.cls.rpartition(".")[2]


def _is_writer(node: ExecutedNode) -> bool:
    name = node.cls.rpartition(".")[2]
    return any(
        part in name for part in ("Writ", "Append", "Overwrite", "Replace", "Insert", "Delta", "Command")
    )

"""Merges every edge between two columns, or two datasets, into one drawn line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headwater.graph.query.answers import ColumnEdge, Neighbourhood, Trace

End = tuple[str, str | None]  # a dataset's key and a column; None: the whole dataset


class DrawnEdge(NamedTuple):
    """A line between two ends; `kind` is `direct`, `indirect`, or `no-columns`: no column lineage (G11)."""

    kind: str
    is_current: bool
    label: str


def merge_edges(found: Neighbourhood, trace: Trace | None) -> dict[tuple[End, End], DrawnEdge]:
    """The lines of a drawing: between columns, or between datasets where no columns are known."""
    jobs = {job.key: job.name for job in found.jobs}
    shown = {node.key for node in found.datasets}
    edges_by_ends: dict[tuple[End, End], list[ColumnEdge]] = defaultdict(list)
    known = {edge.identity for edge in found.column_edges}
    further = [edge for edge in trace.column_edges if edge.identity not in known] if trace else []
    for edge in (*found.column_edges, *further):
        if edge.source in shown and edge.target in shown and edge.source != edge.target:
            ends = ((edge.source, edge.source_column), (edge.target, edge.target_column))
            edges_by_ends[ends].append(edge)
    drawn = {ends: _merged(edges, jobs) for ends, edges in edges_by_ends.items()}
    paired = {(source[0], target[0]) for source, target in drawn}
    for source, target, is_current, label in _dataset_edges(found, jobs):
        if (source, target) not in paired and source != target:
            drawn[((source, None), (target, None))] = DrawnEdge("no-columns", is_current, label)
    return drawn


def _merged(edges: Sequence[ColumnEdge], jobs: dict[str, str]) -> DrawnEdge:
    kind = "direct" if any(edge.type == "DIRECT" for edge in edges) else "indirect"
    labels = dict.fromkeys(_label(edge, jobs) for edge in edges)
    return DrawnEdge(kind, any(edge.current for edge in edges), "; ".join(labels))


def _label(edge: ColumnEdge, jobs: dict[str, str]) -> str:
    how = (edge.subtype or edge.type).lower().replace("_", " ")
    by = f" by {jobs[edge.job]}" if edge.job in jobs else ""
    masked = ", masked" if edge.masking else ""
    return f"{how}{masked}{by}" + ("" if edge.current else ", not in its latest run")


def _dataset_edges(found: Neighbourhood, jobs: dict[str, str]) -> Iterable[tuple[str, str, bool, str]]:
    """From each input of a job to each of its outputs; source, target, whether it is current, label."""
    reads: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for edge in found.edges:
        if edge.target in jobs:
            reads[edge.target].append((edge.source, edge.current))
        elif edge.source not in jobs:
            yield edge.source, edge.target, edge.current, "no column lineage"
    for edge in found.edges:
        if edge.source in jobs:
            for source, is_current in reads[edge.source]:
                label = f"by {jobs[edge.source]}; no column lineage"
                yield source, edge.target, edge.current and is_current, label

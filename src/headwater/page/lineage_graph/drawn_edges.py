"""Ties: what the lines of a drawing mean. All that a graph tells of two columns becomes one line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headwater.graph.query.answers import ColumnEdge, Neighbourhood, Trace

__all__ = ["Place", "Tie", "ties_of"]

Place = tuple[str, str | None]  # a dataset's key and a column; None: the dataset as a whole


class Tie(NamedTuple):
    """What is between two places; `kind` as `headwater.page.lineage_graph.drawing.Line` has it."""

    kind: str
    is_current: bool
    words: str


def ties_of(found: Neighbourhood, trace: Trace | None) -> dict[tuple[Place, Place], Tie]:
    """All pairs of places that are tied: by columns, or as a whole where no columns are known."""
    jobs = {job.key: job.name for job in found.jobs}
    shown = {node.key for node in found.datasets}
    gathered: dict[tuple[Place, Place], list[ColumnEdge]] = defaultdict(list)
    known = {edge.identity for edge in found.column_edges}
    further = [edge for edge in trace.column_edges if edge.identity not in known] if trace else []
    for edge in (*found.column_edges, *further):
        if edge.source in shown and edge.target in shown and edge.source != edge.target:
            ends = ((edge.source, edge.source_column), (edge.target, edge.target_column))
            gathered[ends].append(edge)
    ties = {ends: _tie(edges, jobs) for ends, edges in gathered.items()}
    paired = {(source[0], target[0]) for source, target in ties}
    for source, target, is_current, words in _wholes(found, jobs):
        if (source, target) not in paired and source != target:
            ties[((source, None), (target, None))] = Tie("whole", is_current, words)
    return ties


def _tie(edges: Sequence[ColumnEdge], jobs: dict[str, str]) -> Tie:
    kind = "direct" if any(edge.type == "DIRECT" for edge in edges) else "indirect"
    words = dict.fromkeys(_words(edge, jobs) for edge in edges)
    return Tie(kind, any(edge.current for edge in edges), "; ".join(words))


def _words(edge: ColumnEdge, jobs: dict[str, str]) -> str:
    how = (edge.subtype or edge.type).lower().replace("_", " ")
    by = f" by {jobs[edge.job]}" if edge.job in jobs else ""
    masked = ", masked" if edge.masking else ""
    return f"{how}{masked}{by}" + ("" if edge.current else ", not in its latest run")


def _wholes(found: Neighbourhood, jobs: dict[str, str]) -> Iterable[tuple[str, str, bool, str]]:
    """From each dataset to those that are made of it, over the jobs in between."""
    reads: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for edge in found.edges:
        if edge.target in jobs:
            reads[edge.target].append((edge.source, edge.current))
        elif edge.source not in jobs:
            yield edge.source, edge.target, edge.current, "columns were not told"
    for edge in found.edges:
        if edge.source in jobs:
            for source, is_current in reads[edge.source]:
                words = f"by {jobs[edge.source]}; columns were not told"
                yield source, edge.target, edge.current and is_current, words

"""A trace as a tree: each column with those that it is computed from, or that are computed from it.

Edges that only decide rows (filters, joins, groups) are apart from those that carry values. A job without
column lineage is named where the trace ends because of it (G11).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from headwater.graph.query.answers import ColumnEdge, DatasetNode, JobNode, Trace, UpOrDown, is_part

MAX_BRANCHES = 150  # of a tree in the panel; the list as CSV has all

Ref = tuple[str, str | None]


class Branch(NamedTuple):
    """A column of a trace, with the columns beyond it.

    `values` are the columns whose values are used, `deciding` those that only decide rows. `gaps` are jobs
    without column lineage. `is_repeated`: the columns beyond it stand at its first mention.
    """

    node: DatasetNode
    column: str | None
    kinds: list[str]
    masked: bool
    jobs: list[JobNode]
    values: list[Branch]
    deciding: list[Branch]
    gaps: list[JobNode]
    is_repeated: bool


class TraceTree(NamedTuple):
    """The trees upstream and downstream of a column; `is_cut`: they lack branches."""

    up: Branch
    down: Branch
    counts: dict[str, int]
    is_cut: bool


def trace_tree(trace: Trace) -> TraceTree | None:
    """The trees of a trace."""
    trees = {}
    is_cut = False
    for direction in ("up", "down"):
        builder = _Builder(trace, direction)
        trees[direction] = builder.branch((trace.dataset, trace.column), [])
        is_cut |= builder.is_cut
    if trees["up"] is None or trees["down"] is None:
        return None
    counts = {
        "up": sum(node.distance < 0 for node in trace.columns),
        "down": sum(node.distance > 0 for node in trace.columns),
    }
    return TraceTree(trees["up"], trees["down"], counts, is_cut)


class _Builder:
    def __init__(self, trace: Trace, direction: UpOrDown) -> None:
        self._is_up = direction == "up"
        self._nodes = {node.key: node for node in trace.datasets}
        self._jobs = {job.key: job for job in trace.jobs}
        self._edges: dict[str, list[ColumnEdge]] = defaultdict(list)  # by the dataset at their near end
        for edge in trace.column_edges:
            self._edges[edge.target if self._is_up else edge.source].append(edge)
        self._gaps: dict[str, list[str]] = defaultdict(list)
        for gap in trace.gaps:
            near = gap.target if self._is_up else gap.source
            if gap.job not in self._gaps[near]:
                self._gaps[near].append(gap.job)
        self._seen: set[Ref] = set()
        self._count = 0
        self.is_cut = False

    def branch(self, ref: Ref, edges: list[ColumnEdge]) -> Branch | None:
        """The branch of a column that these edges lead to."""
        dataset, column = ref
        node = self._nodes.get(dataset)
        if node is None:
            return None
        self._count += 1
        is_repeated = ref in self._seen
        self._seen.add(ref)
        made = dict.fromkeys(edge.job for edge in edges)
        found = Branch(
            node,
            column,
            list(dict.fromkeys((edge.subtype or edge.type).lower().replace("_", " ") for edge in edges))
            + (["only failed runs"] if edges and all(edge.failed for edge in edges) else []),
            any(edge.masking for edge in edges),
            [self._jobs[job] for job in made if job in self._jobs],
            [],
            [],
            [] if is_repeated else [self._jobs[job] for job in self._gaps[dataset] if job in self._jobs],
            is_repeated and any(self._beyond(ref)),
        )
        if is_repeated:
            return found
        groups: dict[Ref, list[ColumnEdge]] = defaultdict(list)
        for other, edge in self._beyond(ref):
            groups[other].append(edge)
        ordered = sorted(groups.items(), key=lambda item: not _is_direct(item[1]))
        for other, between in ordered:
            if self._count >= MAX_BRANCHES:
                self.is_cut = True
                break
            if (following := self.branch(other, between)) is not None:
                (found.values if _is_direct(between) else found.deciding).append(following)
        return found

    def _beyond(self, ref: Ref) -> Iterator[tuple[Ref, ColumnEdge]]:
        dataset, column = ref
        for edge in self._edges[dataset]:
            near = edge.target_column if self._is_up else edge.source_column
            far = (edge.source, edge.source_column) if self._is_up else (edge.target, edge.target_column)
            if is_part(near, column) and far != ref:
                yield far, edge


def _is_direct(edges: list[ColumnEdge]) -> bool:
    return any(edge.type == "DIRECT" for edge in edges)

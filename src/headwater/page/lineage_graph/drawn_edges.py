"""Merges all edges between two boxes, or between two of their columns, into one line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headwater.graph.query.answers import ColumnEdge, Trace
from headwater.graph.query.boxes import DrawingDetails
from headwater.page.lineage_graph.layout import Work, uncounted
from headwater.page.lineage_graph.level_of_detail import Adjacency, Scene

MAX_LINES = 2_000
MAX_LABELS = 5  # of the edges that one line stands for

End = tuple[str, str | None]  # the id of a box and a column; None: the whole box


class DrawnEdge(NamedTuple):
    """A line between two ends.

    `kind` is `direct` or `indirect` where columns are known, `no-columns` where they are not (G11), `flow`
    from or to a job or a stack. `edges` is the number that it stands for. `is_failed`: all runs of its jobs
    that wrote the target failed.
    """

    kind: str
    is_current: bool
    is_traced: bool
    label: str
    edges: int = 1
    is_failed: bool = False


FAILED = ", only failed runs wrote it"


def merge_edges(
    scene: Scene,
    details: DrawingDetails,
    trace: Trace | None,
    with_rows: Iterable[str],
    work: Work = uncounted,
) -> tuple[dict[tuple[End, End], DrawnEdge], int]:
    """The lines of a drawing, at most `MAX_LINES`, and how many there are in all.

    Lines lead to the rows of the boxes `with_rows`, and to the others as a whole. If there are too many,
    those of the trace are kept, then those between whole boxes.
    """
    rows = set(with_rows)
    boxes = {node.key for node in scene.nodes}
    found = _between_columns(
        scene.graph, [*details.edges, *(trace.column_edges if trace else ())], boxes, rows, trace
    )
    work(len(details.edges) + (len(trace.column_edges) if trace else 0))
    detailed = {(source[0], target[0]) for source, target in found}
    has_jobs = any(node.key in scene.graph.jobs for node in scene.nodes)
    counts = {} if has_jobs else {(each.source, each.target): each for each in details.counts}
    gaps = {(gap.source, gap.target) for gap in trace.gaps} if trace else set()
    for pair in dict.fromkeys((*_pairs(scene, work), *counts)):
        if pair in detailed or not {pair[0], pair[1]} & boxes:
            continue
        source, target = pair
        if count := counts.get(pair):
            kind = "direct" if count.direct else "indirect"
            direct = f", {count.direct:,} direct" if count.direct < count.total else ""
            text = f"{count.total:,} column edge{'' if count.total == 1 else 's'}{direct}"
            is_failed = _is_failed(scene.graph, source, target)
            text += FAILED if is_failed else ""
            found[(source, None), (target, None)] = DrawnEdge(
                kind, count.current, False, text, count.total, is_failed
            )
        else:
            found[(source, None), (target, None)] = _without_columns(scene, source, target, pair in gaps)
    total = len(found)
    if total > MAX_LINES:
        ranked = sorted(
            found,
            key=lambda ends: (not found[ends].is_traced, ends[0][1] is not None, ends[1][1] is not None),
        )
        found = {ends: found[ends] for ends in ranked[:MAX_LINES]}
    return found, total


def _between_columns(
    graph: Adjacency, edges: list[ColumnEdge], boxes: set[str], rows: set[str], trace: Trace | None
) -> dict[tuple[End, End], DrawnEdge]:
    by_ends: dict[tuple[End, End], dict[tuple[str, ...], ColumnEdge]] = defaultdict(dict)
    for edge in edges:
        if edge.source in boxes and edge.target in boxes and edge.source != edge.target:
            ends = (
                (edge.source, edge.source_column if edge.source in rows else None),
                (edge.target, edge.target_column if edge.target in rows else None),
            )
            by_ends[ends][edge.identity] = edge
    traced = {edge.identity for edge in trace.column_edges} if trace else set()
    return {
        ends: _merged([*found.values()], graph, not traced.isdisjoint(found))
        for ends, found in by_ends.items()
    }


def _merged(edges: Sequence[ColumnEdge], graph: Adjacency, is_traced: bool) -> DrawnEdge:
    kind = "direct" if any(edge.type == "DIRECT" for edge in edges) else "indirect"
    labels = list(dict.fromkeys(_label(edge, graph) for edge in edges))
    is_current = any(edge.current for edge in edges)
    is_failed = all(edge.failed for edge in edges)
    return DrawnEdge(kind, is_current, is_traced, _listed(labels, len(labels), "; "), is_failed=is_failed)


def _is_failed(graph: Adjacency, source: str, target: str) -> bool:
    """Whether all jobs between two datasets only failed to write the second."""
    jobs = graph.readers[source] & graph.writers[target]
    return bool(jobs) and all((job, target) in graph.failed for job in jobs)


def _label(edge: ColumnEdge, graph: Adjacency) -> str:
    how = (edge.subtype or edge.type).lower().replace("_", " ")
    by = f" by {graph.jobs[edge.job].name}" if edge.job in graph.jobs else ""
    masked = ", masked" if edge.masking else ""
    return (
        f"{how}{masked}{by}"
        + ("" if edge.current else ", not in its latest run")
        + (FAILED if edge.failed else "")
    )


def _listed(labels: Sequence[str], count: int, separator: str) -> str:
    more = f"{separator}and {count - MAX_LABELS:,} more" if count > MAX_LABELS else ""
    return separator.join(labels[:MAX_LABELS]) + more


def _pairs(scene: Scene, work: Work) -> list[tuple[str, str]]:
    """Source and target of each line between boxes and stacks."""
    graph = scene.graph
    masks: list[tuple[str, int, int]] = []  # id, its bits, and the bits that it leads to
    for node in scene.nodes:
        number = graph.numbers[node.key]
        masks.append((node.key, 1 << number, graph.after[number] | graph.traced_after[number]))
    for stack in scene.stacks:
        own = after = 0
        for member in stack.members:
            number = graph.numbers[member.key]
            own |= 1 << number
            after |= graph.after[number] | graph.traced_after[number]
        work(len(stack.members))
        masks.append((stack.id, own, after & ~own))
    work(len(masks) ** 2)
    return [
        (source, target)
        for source, _, after in masks
        for target, own, _ in masks
        if after & own and source != target
    ]


def _without_columns(scene: Scene, source: str, target: str, is_gap: bool) -> DrawnEdge:
    graph = scene.graph
    stacks = {stack.id: stack for stack in scene.stacks}
    for id in (source, target):
        if id in stacks:
            count = len(stacks[id].members)
            return DrawnEdge("flow", True, False, f"{count:,} datasets", count)
    if source in graph.jobs or target in graph.jobs:
        label = "reads" if target in graph.jobs else "writes"
        is_current = (source, target) in graph.current
        label += "" if is_current else ", not in its latest run"
        is_failed = (source, target) in graph.failed
        return DrawnEdge(
            "flow", is_current, False, label + (FAILED if is_failed else ""), is_failed=is_failed
        )
    jobs = sorted(graph.readers[source] & graph.writers[target], key=lambda job: graph.jobs[job].name)
    is_current = graph.without_job.get((source, target), False) or any(
        (source, job) in graph.current and (job, target) in graph.current for job in jobs
    )
    names = [graph.jobs[job].name for job in jobs[:MAX_LABELS]]
    by = f"by {_listed(names, len(jobs), ', ')}; " if names else ""
    is_failed = _is_failed(graph, source, target)
    text = f"{by}no column lineage" + (FAILED if is_failed else "")
    return DrawnEdge("no-columns", is_current, is_gap, text, is_failed=is_failed)

"""Lineage as trees for the terminal and as Mermaid graphs; text of events is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import click

from headwater.formats.printable import printable_line
from headwater.graph.query.answers import (
    ColumnEdge,
    DatasetNode,
    Edge,
    JobNode,
    Neighbourhood,
    Trace,
    is_part,
)

MAX_LINES = 2_000
STATES = {"COMPLETE": "green", "FAIL": "red", "ABORT": "red", "RUNNING": "yellow"}


class Leaf(NamedTuple):
    """A line of a tree and the lines below it."""

    text: str
    below: Callable[[], Iterable[Leaf]] = tuple


def draw(roots: Iterable[Leaf]) -> Iterator[str]:
    """The lines of a tree, at most `MAX_LINES`."""
    count = 0
    stack = [(root, "", "") for root in reversed(list(roots))]
    while stack:
        leaf, head, indent = stack.pop()
        count += 1
        if count > MAX_LINES:
            yield f"… more than {MAX_LINES:,} lines; use a smaller --depth"
            return
        yield head + leaf.text
        below = list(leaf.below())
        for place in range(len(below) - 1, -1, -1):
            last = place == len(below) - 1
            stack.append(
                (below[place], indent + ("└── " if last else "├── "), indent + ("    " if last else "│   "))
            )


def _named(node: DatasetNode | JobNode, **style: str | bool) -> str:
    name, namespace = printable_line(node.name), printable_line(node.namespace)
    return click.style(name, **style) + click.style(f"  {namespace}", dim=True)  # type: ignore[arg-type]


def dataset_tree(found: Neighbourhood, way: str) -> Iterator[Leaf]:
    """The datasets upstream (`up`) or downstream (`down`) of the start, with the jobs in between.

    A dataset is expanded once; where it appears again, an arrow marks it.
    """
    datasets = {node.key: node for node in found.datasets}
    jobs = {node.key: node for node in found.jobs}
    neighbours: dict[str, list[tuple[str, str]]] = {}
    for edge in found.edges:
        here, there = (edge.target, edge.source) if way == "up" else (edge.source, edge.target)
        neighbours.setdefault(here, []).append((there, _marks(edge)))
    seen = {found.start}

    def below(key: str) -> Iterator[Leaf]:
        for other, marks in neighbours.get(key, ()):
            if other in jobs:
                state = jobs[other].state
                suffix = click.style(f"  {state}", fg=STATES.get(state)) if state else ""
                yield Leaf(_named(jobs[other], fg="cyan") + suffix + marks, partial(below, other))
            elif other in seen:
                yield Leaf(_named(datasets[other]) + marks + click.style("  ↑", dim=True))
            else:
                seen.add(other)
                yield Leaf(_named(datasets[other], bold=True) + marks, partial(below, other))

    return below(found.start)


def column_tree(found: Trace, way: str) -> Iterator[Leaf]:
    """The columns upstream (`up`) or downstream (`down`) of the start, with the gaps (G11)."""
    datasets = {node.key: node for node in found.datasets}
    jobs = {node.key: node for node in found.jobs}
    edges_at: dict[tuple[str, str | None], list[ColumnEdge]] = {}
    for edge in found.column_edges:
        here = (edge.target, edge.target_column) if way == "up" else (edge.source, edge.source_column)
        edges_at.setdefault(here, []).append(edge)
    columns_of: dict[str, list[str | None]] = {}
    for dataset, column in edges_at:
        columns_of.setdefault(dataset, []).append(column)
    gaps: dict[str, list[str]] = {}
    for gap in found.gaps:
        gaps.setdefault(gap.target if way == "up" else gap.source, []).append(gap.job)
    start = (found.dataset, found.column)
    seen: set[tuple[str, str | None]] = {start}
    with_gaps_shown: set[str] = set()

    def below(place: tuple[str, str | None]) -> Iterator[Leaf]:
        dataset, column = place
        edges = list(edges_at.get(place, ()))
        for related in columns_of.get(dataset, ()):
            if related != column and is_part(column, related):
                edges += edges_at[dataset, related]
        for edge in edges:
            other = (edge.source, edge.source_column) if way == "up" else (edge.target, edge.target_column)
            text = _column(datasets[other[0]], other[1]) + _how(edge, jobs)
            if other in seen:
                yield Leaf(text + click.style("  ↑", dim=True))
            else:
                seen.add(other)
                yield Leaf(text, partial(below, other))
        if dataset not in with_gaps_shown:
            with_gaps_shown.add(dataset)
            for job in sorted(set(gaps.get(dataset, ()))):
                name = printable_line(jobs[job].name) if job in jobs else "a job"
                yield Leaf(click.style(f"? {name} has no column lineage", fg="yellow"))

    return below(start)


def _column(node: DatasetNode, column: str | None) -> str:
    shown = click.style(printable_line(column) if column is not None else "(whole dataset)", bold=True)
    return f"{shown}  {printable_line(node.name)}" + click.style(
        f"  {printable_line(node.namespace)}", dim=True
    )


def _how(edge: ColumnEdge, jobs: dict[str, JobNode]) -> str:
    kind = " ".join(printable_line(part) for part in (edge.type, edge.subtype) if part)
    colour = "green" if edge.type == "DIRECT" else "magenta"
    masked = click.style(" masked", fg="yellow") if edge.masking else ""
    job = click.style(f"  by {printable_line(jobs[edge.job].name)}", dim=True) if edge.job in jobs else ""
    return f"  {click.style(kind, fg=colour)}{masked}{job}{_marks(edge)}"


def _marks(edge: Edge | ColumnEdge) -> str:
    """What speaks against an edge."""
    stale = "" if edge.current else click.style("  (not in its latest run)", fg="yellow")
    return stale + (click.style("  (only failed runs wrote it)", fg="red") if edge.failed else "")


# --- Mermaid ------------------------------------------------------------------------------------------


class Picture(NamedTuple):
    """Nodes (key, label, is a job) and arrows (from, to, dashed), to be drawn by another program."""

    nodes: list[tuple[str, str, bool]]
    arrows: list[tuple[str, str, bool]]

    def mermaid(self) -> str:
        """The graph in the syntax of Mermaid."""
        lines = ["flowchart LR"]
        for key, label, is_job in self.nodes:
            text = "<br/>".join(_for_mermaid(line) for line in label.split("\n"))
            lines.append(f'  {key}(["{text}"])' if is_job else f'  {key}["{text}"]')
        for source, target, dashed in self.arrows:
            lines.append(f"  {source} {'-.->' if dashed else '-->'} {target}")
        return "\n".join(lines)


def _for_mermaid(text: str) -> str:
    """Everything but letters, digits and a few signs as character codes: no text can end its quotes."""
    return "".join(c if c.isalnum() or c in " _-./:" else f"#{ord(c)};" for c in text)


def dataset_picture(found: Neighbourhood) -> Picture:
    """A neighbourhood; edges that the latest run did not mention, or only failed runs, are dashed."""
    nodes = [
        (node.key, f"{printable_line(node.name)}\n{printable_line(node.namespace)}", False)
        for node in found.datasets
    ]
    nodes += [(node.key, printable_line(node.name), True) for node in found.jobs]
    return Picture(
        nodes, [(edge.source, edge.target, not edge.current or edge.failed) for edge in found.edges]
    )


def column_picture(found: Trace) -> Picture:
    """A trace; indirect edges are dashed."""
    datasets = {node.key: node for node in found.datasets}
    keys: dict[tuple[str, str | None], str] = {}
    nodes = []
    for place in found.columns:
        key = keys[place.dataset, place.column] = f"c{len(keys)}"
        column = printable_line(place.column) if place.column is not None else "(whole dataset)"
        nodes.append((key, f"{column}\n{printable_line(datasets[place.dataset].name)}", False))
    arrows = {
        (
            keys[edge.source, edge.source_column],
            keys[edge.target, edge.target_column],
            edge.type != "DIRECT",
        )
        for edge in found.column_edges
        if (edge.source, edge.source_column) in keys and (edge.target, edge.target_column) in keys
    }
    return Picture(nodes, sorted(arrows))

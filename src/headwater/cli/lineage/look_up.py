"""What a typed name stands for in the graph, and its lineage as trees: terminal, assistants, notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import click

from headwater.cli.lineage.text_tree import MAX_LINES, Leaf, column_tree, dataset_tree, draw
from headwater.errors import HeadwaterError
from headwater.formats.printable import printable_line
from headwater.graph.query.answers import Impact, LineageDirection, Neighbourhood, Trace
from headwater.graph.query.query import GraphQuery

DIRECTIONS = {"both": ("up", "down"), "up": ("up",), "down": ("down",)}
WORDS = {"up": "upstream", "down": "downstream"}


class Lineage(NamedTuple):
    """The lineage of a dataset or column: what was found, and the trees of it."""

    found: Neighbourhood | Trace
    title: str
    namespace: str
    ways: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """As a tree for a terminal, with its colours."""
        yield click.style(self.title, bold=True) + click.style(f"  {self.namespace}", dim=True)
        leaves = []
        for way, below in self._trees():
            text = click.style(WORDS[way] if below else f"{WORDS[way]}: none known", underline=bool(below))
            leaves.append(Leaf(text, lambda below=below: below))  # type: ignore[misc]
        yield from draw(leaves)

    def as_html(self) -> str:
        """As nested lists for a notebook; text of events is escaped."""
        parts = [f"<b>{html.escape(self.title)}</b> <small>{html.escape(self.namespace)}</small>"]
        left = [MAX_LINES]
        for way, below in self._trees():
            parts.append(f"<div>{WORDS[way]}{'' if below else ': none known'}</div>{_list(below, left)}")
        if left[0] <= 0:
            parts.append(f"<div>… more than {MAX_LINES:,} lines; use a smaller depth</div>")
        if text := self.left_out():
            parts.append(f"<div>{html.escape(text)}</div>")
        return f'<div class="headwater-lineage">{"".join(parts)}</div>'

    def left_out(self) -> str:
        """The sentence about what a limit has cut; empty if nothing is missing."""
        return left_out(self.found)

    def _trees(self) -> Iterator[tuple[str, list[Leaf]]]:
        for way in self.ways:
            tree = column_tree if isinstance(self.found, Trace) else dataset_tree
            yield way, list(tree(self.found, way))  # type: ignore[arg-type]


def _list(leaves: Iterable[Leaf], left: list[int]) -> str:
    items = []
    for leaf in leaves:
        if left[0] <= 0:
            break
        left[0] -= 1
        items.append(f"<li>{html.escape(click.unstyle(leaf.text))}{_list(leaf.below(), left)}</li>")
    return f"<ul>{''.join(items)}</ul>" if items else ""


def look_up(
    query: GraphQuery,
    text: str,
    *,
    namespace: str | None = None,
    column: str | None = None,
    direction: LineageDirection = "both",
    depth: int | None = None,
    limit: int = 500,
    direct: bool = False,
) -> Lineage:
    """The lineage of what a text names; NotFound if it names nothing, or too much."""
    space, name, field = meant(query, text, namespace, column)
    ways = DIRECTIONS[direction]
    if field is None:
        found = query.neighbourhood(space, name, direction=direction, depth=depth or 5, limit=limit)
        return Lineage(found, printable_line(name), printable_line(space), ways)
    trace = query.trace(
        space, name, field, direction=direction, depth=depth or 20, indirect=not direct, limit=limit
    )
    return Lineage(trace, f"{printable_line(field)}  {printable_line(name)}", printable_line(space), ways)


def meant(
    query: GraphQuery, text: str, namespace: str | None, column: str | None
) -> tuple[str, str, str | None]:
    """The namespace and name of the dataset, and the column, that a text stands for."""
    if namespace is not None:
        return namespace, text, column
    found = query.resolve(text)
    return found if column is None else (*found[:2], column)


def job_meant(query: GraphQuery, job: str | None, namespace: str | None) -> tuple[str, str]:
    """The namespace and name of the job that a text stands for; both empty for no text."""
    if job is None or namespace is not None:
        return namespace or "", job or ""
    hits = query.search(job, kinds=("job",), limit=100)
    exact = [hit for hit in hits if hit.name == job] or hits
    if len(exact) == 1:
        return exact[0].namespace, exact[0].name
    some = "; ".join(sorted(printable_line(f"{hit.namespace} {hit.name}") for hit in exact[:10]))
    raise HeadwaterError(
        f"{job} matches {len(exact)} jobs." if exact else f"No job is called {job}.",
        hint=f"Use -n NAMESPACE with the whole name: {some}"
        if some
        else "`headwater lineage runs` lists all.",
    )


def left_out(found: Neighbourhood | Trace | Impact) -> str:
    """The sentence about what a limit has cut from an answer; empty if nothing is missing."""
    if not found.truncated:
        return ""
    shares = found.left_out()
    return f"Shown: {shares}" if shares else "Not everything is shown"

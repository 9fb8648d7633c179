"""The drawing of a neighbourhood: datasets as tables with their columns as rows, and lines between rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from headwater.graph.query.answers import Column, ColumnEdge, DatasetNode, JobNode, Neighbourhood, Trace
from headwater.page.lineage_graph.drawn_edges import Place, Tie, ties_of
from headwater.page.lineage_graph.layout import Arrangement, Link, Point, arrange

__all__ = ["Card", "Drawing", "Line", "Row", "draw"]

WIDTH = 236  # of a table
HEAD = 48  # its name, and where it is
ROW = 22
FOOT = 6
STRIP = 22  # above a table: the job that writes it
BETWEEN = 92  # two layers
MARGIN = 24
START_ROWS = 100  # of the dataset that was asked for
ROWS = ((12, 40), (60, 16), (10_000, 8))  # of the others: up to so many datasets, so many rows of each


class Row(NamedTuple):
    """A column in a table, or the count of those that are left out (`omitted`)."""

    name: str
    type: str
    y: float
    is_tied: bool
    is_lit: bool
    omitted: int = 0


class Card(NamedTuple):
    """A dataset as a table. `jobs` write it; `x` and `y` are its upper left corner, below the strip."""

    node: DatasetNode
    x: float
    y: float
    width: float
    height: float
    rows: list[Row]
    jobs: list[JobNode]
    is_start: bool
    is_lit: bool


class Line(NamedTuple):
    """A line between two rows; `kind` is `direct`, `indirect`, or `whole`: no columns were told (G11)."""

    source: Place
    target: Place
    path: str
    kind: str
    is_current: bool
    is_lit: bool
    words: str


class Drawing(NamedTuple):
    """All of it, in pixels."""

    width: float
    height: float
    cards: list[Card]
    lines: list[Line]
    truncated: bool
    is_traced: bool


def draw(found: Neighbourhood, trace: Trace | None = None) -> Drawing:
    """Lay out the datasets of a neighbourhood; what a trace came by is marked as lit."""
    nodes = found.datasets
    places = {node.key: place for place, node in enumerate(nodes)}
    ends = ties_of(found, trace)
    tied: dict[str, set[str]] = defaultdict(set)
    for source, target in ends:
        for key, column in (source, target):
            if column is not None:
                tied[key].add(column)
    lit: dict[str, set[str]] = defaultdict(set)
    for place in trace.columns if trace else ():
        if place.column is not None:
            lit[place.dataset].add(place.column)
    most = next(rows for datasets, rows in ROWS if len(nodes) <= datasets)
    tables = [
        _Table(node, tied[node.key], lit[node.key], START_ROWS if node.key == found.start else most)
        for node in nodes
    ]
    lines = [
        (
            source,
            target,
            Link(
                places[source[0]],
                tables[places[source[0]]].offset(source[1]),
                places[target[0]],
                tables[places[target[0]]].offset(target[1]),
            ),
        )
        for source, target in ends
    ]
    arrangement = arrange([table.height for table in tables], [link for _, _, link in lines])
    return _Composition(found, trace, tables, arrangement).drawing(lines, ends)


class _Table:
    """The rows of one dataset, and how high it is."""

    def __init__(self, node: DatasetNode, tied: set[str], lit: set[str], most: int) -> None:
        self.node = node
        known = {column.name for column in node.columns}
        columns = [*node.columns, *(Column(name) for name in sorted((tied | lit) - known))]
        self.columns = columns
        if len(columns) > most:  # rather those that lines lead to; never without those of the trace
            chosen = {column.name for column in columns if column.name in lit}
            for column in sorted(columns, key=lambda column: column.name not in tied):
                if len(chosen) >= most:
                    break
                chosen.add(column.name)
            self.columns = [column for column in columns if column.name in chosen]
        self.omitted = len(columns) - len(self.columns) + node.columns_omitted
        self._places = {column.name: place for place, column in enumerate(self.columns)}
        self._tied, self._lit = tied, lit
        count = len(self.columns) + (self.omitted > 0)
        self.height = float(STRIP + HEAD + count * ROW + (FOOT if count else 0))

    def offset(self, column: str | None) -> float:
        """Where lines of a column end, from the upper edge of the strip."""
        if column is None:
            return STRIP + HEAD / 2
        place = self._places.get(column, len(self.columns))
        return STRIP + HEAD + (place + 0.5) * ROW

    def rows(self) -> list[Row]:
        """Heights are from the upper edge of the table."""
        found = [
            Row(c.name, c.type, float(HEAD + place * ROW), c.name in self._tied, c.name in self._lit)
            for place, c in enumerate(self.columns)
        ]
        if self.omitted:
            y = float(HEAD + len(found) * ROW)
            found.append(Row("", "", y, False, False, self.omitted))
        return found


class _Composition:
    """Puts coordinates to tables and lines."""

    def __init__(
        self, found: Neighbourhood, trace: Trace | None, tables: list[_Table], arrangement: Arrangement
    ) -> None:
        self._found = found
        self._trace = trace
        self._tables = tables
        self._arrangement = arrangement
        self._lit_edges = {_place_pair(edge) for edge in trace.column_edges} if trace else set()
        self._lit_cards = {node.dataset for node in trace.columns} if trace else set()

    def drawing(
        self, lines: Sequence[tuple[Place, Place, Link]], ties: dict[tuple[Place, Place], Tie]
    ) -> Drawing:
        last = max(self._arrangement.layers, default=0)
        ways = self._arrangement.ways
        drawn = [
            self._line(source, target, link, way, ties[(source, target)])
            for (source, target, link), way in zip(lines, ways, strict=True)
        ]
        return Drawing(
            _x(last) + WIDTH + MARGIN,
            self._arrangement.height + 2 * MARGIN,
            self._cards(),
            sorted(drawn, key=lambda line: (line.is_lit, line.kind == "direct")),  # the last are on top
            self._found.truncated,
            self._trace is not None,
        )

    def _cards(self) -> list[Card]:
        jobs = {job.key: job for job in self._found.jobs}
        writers: dict[str, list[JobNode]] = defaultdict(list)
        for edge in self._found.edges:
            if edge.source in jobs:
                writers[edge.target].append(jobs[edge.source])
        found = [
            Card(
                table.node,
                _x(layer),
                MARGIN + round(top) + STRIP,
                WIDTH,
                table.height - STRIP,
                table.rows(),
                writers[table.node.key],
                table.node.key == self._found.start,
                table.node.key in self._lit_cards,
            )
            for table, layer, top in zip(
                self._tables, self._arrangement.layers, self._arrangement.tops, strict=True
            )
        ]
        return sorted(found, key=lambda card: (card.x, card.y))  # as one reads, and as the keyboard goes

    def _line(self, source: Place, target: Place, link: Link, way: list[Point], tie: Tie) -> Line:
        tops, layers = self._arrangement.tops, self._arrangement.layers
        start = (_x(layers[link.source]) + WIDTH, MARGIN + round(tops[link.source]) + link.source_offset)
        end = (_x(layers[link.target]), MARGIN + round(tops[link.target]) + link.target_offset)
        path = [f"M{start[0]:g} {start[1]:g}"]
        x, y = start
        for point in way:
            left, height = _x(point.layer), MARGIN + round(point.y, 1)
            path.append(_curve(x, y, left, height))
            path.append(f"H{left + WIDTH:g}")
            x, y = left + WIDTH, height
        path.append(_curve(x, y, *end))
        is_lit = (source, target) in self._lit_edges
        return Line(source, target, "".join(path), tie.kind, tie.is_current, is_lit, tie.words)


def _place_pair(edge: ColumnEdge) -> tuple[Place, Place]:
    return (edge.source, edge.source_column), (edge.target, edge.target_column)


def _x(layer: int) -> float:
    return float(MARGIN + layer * (WIDTH + BETWEEN))


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    # a line that goes back to an earlier layer leaves to the right and arrives from the left all the same
    pull = max(40.0, (to_x - x) / 2) if to_x > x else 90.0
    return f"C{x + pull:g} {y:g} {to_x - pull:g} {to_y:g} {to_x:g} {to_y:g}"

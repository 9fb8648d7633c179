"""Draws a neighbourhood: datasets as boxes with their columns as rows, and lines between rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headwater.graph.query.answers import Column, ColumnEdge, DatasetNode, JobNode, Neighbourhood, Trace
from headwater.page.lineage_graph.layout import Arrangement, Link, Point, arrange

BOX_WIDTH = 236
HEADER_HEIGHT = 48  # name and namespace
ROW_HEIGHT = 22
FOOTER_HEIGHT = 6
JOB_LABEL_HEIGHT = 22  # above a box: the job that writes it
LAYER_GAP = 92
MARGIN = 24
CENTRE_ROWS = 100  # of the dataset in the centre
MAX_ROWS = ((12, 40), (60, 16), (10_000, 8))  # of the others: (most datasets, rows of each)

End = tuple[str, str | None]  # a dataset's key and a column; None: the whole dataset


class Row(NamedTuple):
    """A column of a box, or the number of columns that are omitted."""

    name: str
    type: str
    y: float
    has_edges: bool
    is_traced: bool
    omitted: int = 0


class DatasetBox(NamedTuple):
    """A dataset. `jobs` write it; `x` and `y` are its upper left corner, below the label of the job."""

    node: DatasetNode
    x: float
    y: float
    width: float
    height: float
    rows: list[Row]
    jobs: list[JobNode]
    is_centre: bool
    is_traced: bool


class Line(NamedTuple):
    """A line between two rows or boxes; `kind` as in DrawnEdge."""

    source: End
    target: End
    path: str
    kind: str
    is_current: bool
    is_traced: bool
    label: str


class Drawing(NamedTuple):
    """Boxes and lines, in pixels."""

    width: float
    height: float
    boxes: list[DatasetBox]
    lines: list[Line]
    truncated: bool
    is_traced: bool


def draw(found: Neighbourhood, trace: Trace | None = None) -> Drawing:
    """Draw the datasets of a neighbourhood, with the columns and edges of a trace marked."""
    nodes = found.datasets
    index = {node.key: number for number, node in enumerate(nodes)}
    edges = merge_edges(found, trace)
    with_edges: dict[str, set[str]] = defaultdict(set)
    for source, target in edges:
        for key, column in (source, target):
            if column is not None:
                with_edges[key].add(column)
    traced: dict[str, set[str]] = defaultdict(set)
    for node in trace.columns if trace else ():
        if node.column is not None:
            traced[node.dataset].add(node.column)
    max_rows = next(rows for datasets, rows in MAX_ROWS if len(nodes) <= datasets)
    tables = [
        _Table(
            node,
            with_edges[node.key],
            traced[node.key],
            CENTRE_ROWS if node.key == found.start else max_rows,
        )
        for node in nodes
    ]
    links = [Link(*_place(source, index, tables), *_place(target, index, tables)) for source, target in edges]
    arrangement = arrange([table.height for table in tables], links)
    traced_ends = {_ends(edge) for edge in trace.column_edges} if trace else set()
    lines = [
        Line(
            *ends,
            _path(link, route, arrangement),
            edge.kind,
            edge.is_current,
            ends in traced_ends,
            edge.label,
        )
        for (ends, edge), link, route in zip(edges.items(), links, arrangement.routes, strict=True)
    ]
    lines.sort(key=lambda line: (line.is_traced, line.kind == "direct"))  # the last are drawn on top
    return Drawing(
        _x(max(arrangement.layers, default=0)) + BOX_WIDTH + MARGIN,
        arrangement.height + 2 * MARGIN,
        _boxes(found, trace, tables, arrangement),
        lines,
        found.truncated,
        trace is not None,
    )


def _place(end: End, index: dict[str, int], tables: list[_Table]) -> tuple[int, float]:
    """The number of a box, and the height in it at which lines of this column end."""
    number = index[end[0]]
    return number, tables[number].offset(end[1])


class _Table:
    """The rows of one dataset, and the height of its box."""

    def __init__(self, node: DatasetNode, with_edges: set[str], traced: set[str], max_rows: int) -> None:
        self.node = node
        known = {column.name for column in node.columns}
        columns = [*node.columns, *(Column(name) for name in sorted((with_edges | traced) - known))]
        self.columns = columns
        if len(columns) > max_rows:  # all columns of the trace, then those with edges
            chosen = {column.name for column in columns if column.name in traced}
            for column in sorted(columns, key=lambda column: column.name not in with_edges):
                if len(chosen) >= max_rows:
                    break
                chosen.add(column.name)
            self.columns = [column for column in columns if column.name in chosen]
        self.omitted = len(columns) - len(self.columns) + node.columns_omitted
        self._numbers = {column.name: number for number, column in enumerate(self.columns)}
        self._with_edges, self._traced = with_edges, traced
        count = len(self.columns) + (self.omitted > 0)
        self.height = float(
            JOB_LABEL_HEIGHT + HEADER_HEIGHT + count * ROW_HEIGHT + (FOOTER_HEIGHT if count else 0)
        )

    def offset(self, column: str | None) -> float:
        """Where the lines of a column end, from the top of the job label."""
        if column is None:
            return JOB_LABEL_HEIGHT + HEADER_HEIGHT / 2
        number = self._numbers.get(column, len(self.columns))
        return JOB_LABEL_HEIGHT + HEADER_HEIGHT + (number + 0.5) * ROW_HEIGHT

    def rows(self) -> list[Row]:
        """The rows, with heights from the top of the box."""
        found = [
            Row(
                c.name,
                c.type,
                float(HEADER_HEIGHT + number * ROW_HEIGHT),
                c.name in self._with_edges,
                c.name in self._traced,
            )
            for number, c in enumerate(self.columns)
        ]
        if self.omitted:
            y = float(HEADER_HEIGHT + len(found) * ROW_HEIGHT)
            found.append(Row("", "", y, False, False, self.omitted))
        return found


def _boxes(
    found: Neighbourhood, trace: Trace | None, tables: list[_Table], arrangement: Arrangement
) -> list[DatasetBox]:
    jobs = {job.key: job for job in found.jobs}
    writers: dict[str, list[JobNode]] = defaultdict(list)
    for edge in found.edges:
        if edge.source in jobs:
            writers[edge.target].append(jobs[edge.source])
    traced = {node.dataset for node in trace.columns} if trace else set()
    boxes = [
        DatasetBox(
            table.node,
            _x(layer),
            MARGIN + round(top) + JOB_LABEL_HEIGHT,
            BOX_WIDTH,
            table.height - JOB_LABEL_HEIGHT,
            table.rows(),
            writers[table.node.key],
            table.node.key == found.start,
            table.node.key in traced,
        )
        for table, layer, top in zip(tables, arrangement.layers, arrangement.tops, strict=True)
    ]
    return sorted(boxes, key=lambda box: (box.x, box.y))  # the order of reading, and of the keyboard


def _path(link: Link, route: list[Point], arrangement: Arrangement) -> str:
    tops, layers = arrangement.tops, arrangement.layers
    x, y = _x(layers[link.source]) + BOX_WIDTH, MARGIN + round(tops[link.source]) + link.source_offset
    path = [f"M{x:g} {y:g}"]
    for point in route:
        left, height = _x(point.layer), MARGIN + round(point.y, 1)
        path.append(_curve(x, y, left, height))
        path.append(f"H{left + BOX_WIDTH:g}")
        x, y = left + BOX_WIDTH, height
    end = MARGIN + round(tops[link.target]) + link.target_offset
    path.append(_curve(x, y, _x(layers[link.target]), end))
    return "".join(path)


def _ends(edge: ColumnEdge) -> tuple[End, End]:
    return (edge.source, edge.source_column), (edge.target, edge.target_column)


def _x(layer: int) -> float:
    return float(MARGIN + layer * (BOX_WIDTH + LAYER_GAP))


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    # a line back to an earlier layer also leaves to the right and arrives from the left
    pull = max(40.0, (to_x - x) / 2) if to_x > x else 90.0
    return f"C{x + pull:g} {y:g} {to_x - pull:g} {to_y:g} {to_x:g} {to_y:g}"


# --- every edge between two columns, or two datasets, becomes one line -------------------------------------


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
            edges_by_ends[_ends(edge)].append(edge)
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

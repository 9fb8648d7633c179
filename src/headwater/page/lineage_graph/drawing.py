"""Draws boxes, stacks and lines: coordinates for the SVG of a scene."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from headwater.graph.query.answers import Column, DatasetNode, JobNode, Trace, UpOrDown
from headwater.graph.query.boxes import BoxDetails, DrawingDetails
from headwater.page.lineage_graph.drawn_edges import End, merge_edges
from headwater.page.lineage_graph.layout import Arrangement, Link, Point, Work, arrange, uncounted
from headwater.page.lineage_graph.level_of_detail import Scene, Stack, state_of
from headwater.page.lineage_graph.request import GraphRequest

BOX_WIDTH = 236
HEADER_HEIGHT = 46  # name and place
FACTS_HEIGHT = 24  # the numbers of columns and readers
CHECKS_HEIGHT = 22  # failed checks
JOB_HEIGHT = 46
STACK_HEIGHT = 58
ROW_HEIGHT = 22
FOOTER_HEIGHT = 6
JOB_LABEL_HEIGHT = 22  # above a dataset: the job that writes it
LAYER_GAP = 92
MARGIN = 24
ROW_WIDTH = BOX_WIDTH - 32  # of the name and the type of a column
NAME_CHARACTER, TYPE_CHARACTER = 7.25, 6.35  # widths in the two sizes of the font
MAX_TYPE = 11
MAX_ROWS = ((1, 100), (12, 40), (10_000, 16))  # (most open boxes, rows of each)


class Row(NamedTuple):
    """A column of a box, or the number of columns that are omitted."""

    name: str
    type: str
    y: float
    has_edges: bool
    is_traced: bool
    omitted: int = 0

    @property
    def shown_type(self) -> str:
        """The type as it is drawn: without its parameters where they would take the name's place."""
        if len(self.type) <= MAX_TYPE and len(self.name) <= _name_room(self.type):
            return self.type
        return self.type.partition("(")[0]

    @property
    def room(self) -> int:
        """The number of characters of the name that are drawn."""
        return _name_room(self.shown_type)


class Box(NamedTuple):
    """A dataset, job or stack; `x` and `y` are its upper left corner, below the label of the job.

    `jobs` write a dataset. `hidden` are the directions in which neighbours are not drawn.
    """

    id: str
    kind: str
    x: float
    y: float
    height: float
    state: str
    facts: str
    failed_checks: int
    rows: list[Row]
    rows_y: float
    jobs: list[JobNode]
    hidden: set[UpOrDown]
    is_centre: bool
    is_traced: bool
    is_open: bool
    node: DatasetNode | JobNode | None = None
    stack: Stack | None = None
    width: float = BOX_WIDTH


class Line(NamedTuple):
    """A line between two rows or boxes; `kind` as in DrawnEdge."""

    source: End
    target: End
    path: str
    kind: str
    is_current: bool
    is_traced: bool
    label: str
    thickness: int
    is_failed: bool


class Drawing(NamedTuple):
    """Boxes and lines, in pixels; `left_out` says how much of the graph they show, if not all."""

    width: float
    height: float
    boxes: list[Box]
    lines: list[Line]
    left_out: str
    is_traced: bool


def draw(
    scene: Scene,
    details: DrawingDetails,
    request: GraphRequest,
    start: str,
    trace: Trace | None = None,
    work: Work = uncounted,
) -> Drawing:
    """Draw a scene around `start`, with the columns and edges of a trace marked."""
    traced: dict[str, set[str]] = defaultdict(set)
    traced_boxes = {ref.dataset for ref in trace.columns} if trace else set()
    for ref in trace.columns if trace else ():
        if ref.column is not None:
            traced[ref.dataset].add(ref.column)
    opened = {key for key in scene.datasets if key in request.opened or "all" in request.opened}
    with_rows = opened | {key for key in traced if key in scene.datasets}
    edges, total = merge_edges(scene, details, trace, with_rows, work)
    linked: dict[str, set[str]] = defaultdict(set)
    for ends in edges:
        for id, column in ends:
            if column is not None:
                linked[id].add(column)
    most = next(rows for boxes, rows in MAX_ROWS if len(opened) <= boxes)
    shapes: list[_Shape] = []
    for node in scene.nodes:
        own = details.boxes.get(node.key, BoxDetails())
        table = _Table(own, linked[node.key], traced[node.key], most, is_open=node.key in opened)
        shapes.append(_Shape(node.key, node, None, own, table if isinstance(node, DatasetNode) else None))
    shapes += [_Shape(stack.id, None, stack, BoxDetails(), None) for stack in scene.stacks]
    index = {shape.id: number for number, shape in enumerate(shapes)}
    links = [
        Link(
            index[source[0]],
            shapes[index[source[0]]].offset(source[1]),
            index[target[0]],
            shapes[index[target[0]]].offset(target[1]),
        )
        for source, target in edges
    ]
    arrangement = arrange([shape.height for shape in shapes], links, work=work)
    lines = [
        Line(
            *ends,
            _path(link, route, arrangement),
            edge.kind,
            edge.is_current,
            edge.is_traced,
            edge.label,
            min(4, len(str(edge.edges))),
            edge.is_failed,
        )
        for (ends, edge), link, route in zip(edges.items(), links, arrangement.routes, strict=True)
    ]
    lines.sort(key=lambda line: (line.is_traced, line.kind == "direct"))  # the last are drawn on top
    boxes = [
        shape.box(scene, _x(layer), MARGIN + round(top), start, traced_boxes, opened)
        for shape, layer, top in zip(shapes, arrangement.layers, arrangement.tops, strict=True)
    ]
    boxes.sort(key=lambda box: (box.x, box.y))  # the order of reading, and of the keyboard
    left_out = f"{len(lines):,} of {total:,} lines" if total > len(lines) else ""
    return Drawing(
        _x(max(arrangement.layers, default=0)) + BOX_WIDTH + MARGIN,
        arrangement.height + 2 * MARGIN,
        boxes,
        lines,
        left_out,
        trace is not None,
    )


def _name_room(type: str) -> int:
    return int((ROW_WIDTH - TYPE_CHARACTER * min(len(type), MAX_TYPE)) / NAME_CHARACTER)


class _Table:
    """The rows of one dataset: all of an open one, else those of the trace."""

    def __init__(
        self, details: BoxDetails, linked: set[str], traced: set[str], max_rows: int, *, is_open: bool
    ) -> None:
        known = {column.name: column for column in details.shown}
        columns = [*details.shown] if is_open else []
        named = sorted((linked | traced) - {column.name for column in columns})
        columns += [known.get(name) or Column(name) for name in named]
        self.columns = columns
        if len(columns) > max_rows:  # all columns of the trace, then those with edges
            chosen = {column.name for column in columns if column.name in traced}
            for column in sorted(columns, key=lambda column: column.name not in linked):
                if len(chosen) >= max_rows:
                    break
                chosen.add(column.name)
            self.columns = [column for column in columns if column.name in chosen]
        total = max(details.columns, len(columns) + details.omitted)
        self.omitted = total - len(self.columns) if self.columns else 0
        self.numbers = {column.name: number for number, column in enumerate(self.columns)}
        self._linked, self._traced = linked, traced

    @property
    def height(self) -> float:
        count = len(self.columns) + (self.omitted > 0)
        return count * ROW_HEIGHT + (FOOTER_HEIGHT if count else 0)

    def rows(self, top: float) -> list[Row]:
        """The rows, with heights from the top of the box."""
        found = [
            Row(c.name, c.type, top + number * ROW_HEIGHT, c.name in self._linked, c.name in self._traced)
            for number, c in enumerate(self.columns)
        ]
        if self.omitted:
            found.append(Row("", "", top + len(found) * ROW_HEIGHT, False, False, self.omitted))
        return found


class _Shape(NamedTuple):
    """A box before it has a place."""

    id: str
    node: DatasetNode | JobNode | None
    stack: Stack | None
    details: BoxDetails
    table: _Table | None

    @property
    def label_height(self) -> float:
        return JOB_LABEL_HEIGHT if self.table is not None else 0.0

    @property
    def rows_top(self) -> float:
        checks = CHECKS_HEIGHT if self.details.failed_checks else 0
        return float(HEADER_HEIGHT + FACTS_HEIGHT + checks)

    @property
    def height(self) -> float:
        if self.table is None:
            return float(JOB_HEIGHT if self.node is not None else STACK_HEIGHT)
        return self.label_height + self.rows_top + self.table.height

    def offset(self, column: str | None) -> float:
        """Where the lines of a column end, from the top of the label."""
        if self.table is None:
            return self.height / 2
        if column is None:
            return self.label_height + HEADER_HEIGHT / 2
        number = self.table.numbers.get(column, len(self.table.columns))
        return self.label_height + self.rows_top + (number + 0.5) * ROW_HEIGHT

    def box(self, scene: Scene, x: float, top: float, start: str, traced: set[str], opened: set[str]) -> Box:
        """The box at its place."""
        writers = sorted(scene.graph.writers.get(self.id, ()), key=lambda job: scene.graph.jobs[job].name)
        has_job_boxes = any(isinstance(node, JobNode) for node in scene.nodes)
        kind = "stack" if self.stack is not None else "dataset" if self.table is not None else "job"
        return Box(
            self.id,
            kind,
            x,
            top + self.label_height,
            self.height - self.label_height,
            state_of(scene.graph, self.node) if self.node is not None else "",
            self._facts(),
            self.details.failed_checks,
            self.table.rows(self.rows_top) if self.table is not None else [],
            self.rows_top,
            [] if has_job_boxes else [scene.graph.jobs[job] for job in writers],
            scene.hidden.get(self.id, set()),
            self.id == start,
            self.id in traced,
            self.id in opened,
            self.node,
            self.stack,
        )

    def _facts(self) -> str:
        if not isinstance(self.node, DatasetNode):
            return ""
        found = [(self.details.columns, "column"), (self.node.readers, "reader")]
        return " · ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for count, noun in found if count)


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


def _x(layer: int) -> float:
    return float(MARGIN + layer * (BOX_WIDTH + LAYER_GAP))


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    # a line back to an earlier layer also leaves to the right and arrives from the left
    pull = max(40.0, (to_x - x) / 2) if to_x > x else 90.0
    return f"C{x + pull:g} {y:g} {to_x - pull:g} {to_y:g} {to_x:g} {to_y:g}"

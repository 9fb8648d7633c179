"""Draws a neighbourhood: datasets as boxes with their columns as rows, and lines between rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from headwater.graph.query.answers import Column, ColumnEdge, DatasetNode, JobNode, Neighbourhood, Trace
from headwater.page.lineage_graph.layout import Arrangement, Link, Point, Work, arrange, uncounted

BOX_WIDTH = 236
HEADER_HEIGHT = 48  # name and namespace
ROW_HEIGHT = 22
FOOTER_HEIGHT = 6
JOB_LABEL_HEIGHT = 22  # above a box: the job that writes it
LAYER_GAP = 92
MARGIN = 24
CENTRE_ROWS = 100  # of the dataset in the centre
MAX_ROWS = ((12, 40), (60, 16), (10_000, 8))  # of the others: (most datasets, rows of each)
MAX_LINES = 2_000
MAX_LABELS = 5  # of the edges that one line stands for

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
    """Boxes and lines, in pixels; `left_out` says how much of the graph they show, if not all."""

    width: float
    height: float
    boxes: list[DatasetBox]
    lines: list[Line]
    left_out: str
    is_traced: bool


def draw(found: Neighbourhood, trace: Trace | None = None, work: Work = uncounted) -> Drawing:
    """Draw the datasets of a neighbourhood, with the columns and edges of a trace marked."""
    nodes = found.datasets
    index = {node.key: number for number, node in enumerate(nodes)}
    edges, total = merge_edges(found, trace, work)
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
    arrangement = arrange([table.height for table in tables], links, work=work)
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
        found.omitted.sentence(datasets=len(nodes), lines=(len(lines), total)),
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


def merge_edges(
    found: Neighbourhood, trace: Trace | None, work: Work = uncounted
) -> tuple[dict[tuple[End, End], DrawnEdge], int]:
    """The lines of a drawing, at most `MAX_LINES`, and how many there are in all.

    They lead from column to column, or from dataset to dataset where no columns are known. If there are too
    many, those of the trace are drawn first, then one for each pair of datasets, the nearest first.
    """
    jobs = {job.key: job.name for job in found.jobs}
    distances = {node.key: abs(node.distance) for node in found.datasets}
    edges_by_ends: dict[tuple[End, End], list[ColumnEdge]] = defaultdict(list)
    known = {edge.identity for edge in found.column_edges}
    further = [edge for edge in trace.column_edges if edge.identity not in known] if trace else []
    for edge in (*found.column_edges, *further):
        if edge.source in distances and edge.target in distances and edge.source != edge.target:
            edges_by_ends[_ends(edge)].append(edge)
    paired = {(source[0], target[0]) for source, target in edges_by_ends}
    work(len(found.column_edges) + len(further))
    dataset_edges = _DatasetEdges(found, jobs, paired, work)
    traced = {_ends(edge) for edge in trace.column_edges} if trace else set()
    total = len(edges_by_ends) + dataset_edges.count
    lines_of: dict[tuple[str, str], int] = defaultdict(int)
    ranked: list[tuple[bool, int, int, tuple[End, End]]] = []
    for ends in edges_by_ends:
        pair = (ends[0][0], ends[1][0])
        ranked.append((ends not in traced, lines_of[pair], max(map(distances.__getitem__, pair)), ends))
        lines_of[pair] += 1
    pairs = dataset_edges.nearest(MAX_LINES, distances)
    ranked += [
        (True, 0, max(distances[source], distances[target]), ((source, None), (target, None)))
        for source, target in pairs
    ]
    if total > MAX_LINES:
        ranked.sort(key=lambda line: line[:3])
    drawn = {}
    for *_, ends in ranked[:MAX_LINES]:
        edges = edges_by_ends.get(ends)
        drawn[ends] = _merged(edges, jobs) if edges else dataset_edges.drawn(ends[0][0], ends[1][0])
    return drawn, total


def _merged(edges: Sequence[ColumnEdge], jobs: dict[str, str]) -> DrawnEdge:
    kind = "direct" if any(edge.type == "DIRECT" for edge in edges) else "indirect"
    labels = list(dict.fromkeys(_label(edge, jobs) for edge in edges))
    return DrawnEdge(kind, any(edge.current for edge in edges), _listed(labels, len(labels), "; "))


def _listed(labels: Sequence[str], count: int, separator: str) -> str:
    more = f"{separator}and {count - MAX_LABELS:,} more" if count > MAX_LABELS else ""
    return separator.join(labels[:MAX_LABELS]) + more


def _label(edge: ColumnEdge, jobs: dict[str, str]) -> str:
    how = (edge.subtype or edge.type).lower().replace("_", " ")
    by = f" by {jobs[edge.job]}" if edge.job in jobs else ""
    masked = ", masked" if edge.masking else ""
    return f"{how}{masked}{by}" + ("" if edge.current else ", not in its latest run")


class _DatasetEdges:
    """The pairs of datasets without column lineage: from each input of a job to each of its outputs.

    Jobs times inputs times outputs can be millions, so pairs are counted as sets of bits, and only those that
    are drawn are written out.
    """

    def __init__(
        self, found: Neighbourhood, jobs: dict[str, str], paired: set[tuple[str, str]], work: Work
    ) -> None:
        self._names = list(jobs.values())
        self._keys = [node.key for node in found.datasets]
        numbers = {key: number for number, key in enumerate(self._keys)}
        job_numbers = {key: number for number, key in enumerate(jobs)}
        # Bits are jobs: all that use a dataset, and those whose latest run did.
        self._readers: dict[str, int] = defaultdict(int)
        self._writers: dict[str, int] = defaultdict(int)
        self._current_readers: dict[str, int] = defaultdict(int)
        self._current_writers: dict[str, int] = defaultdict(int)
        # Bits are datasets.
        outputs: dict[int, int] = defaultdict(int)
        targets: dict[str, int] = defaultdict(int)
        self._without_job: dict[tuple[str, str], bool] = {}
        for edge in found.edges:
            work(1)
            if edge.target in job_numbers:
                bit = 1 << job_numbers[edge.target]
                self._readers[edge.source] |= bit
                self._current_readers[edge.source] |= bit * edge.current
            elif edge.source in job_numbers:
                bit = 1 << job_numbers[edge.source]
                self._writers[edge.target] |= bit
                self._current_writers[edge.target] |= bit * edge.current
                outputs[job_numbers[edge.source]] |= 1 << numbers[edge.target]
            else:
                self._without_job[edge.source, edge.target] = edge.current
                targets[edge.source] |= 1 << numbers[edge.target]
        for source, readers in self._readers.items():
            for job in _bits(readers):
                work(1)
                targets[source] |= outputs[job]
        for source, target in paired:
            targets[source] &= ~(1 << numbers[target])
        self._targets = {
            source: mask & ~(1 << numbers[source]) for source, mask in targets.items() if source in numbers
        }
        self.count = sum(mask.bit_count() for mask in self._targets.values())

    def nearest(self, limit: int, distances: dict[str, int]) -> list[tuple[str, str]]:
        """At most so many pairs, those of the nearest sources first."""
        found: list[tuple[str, str]] = []
        for source in sorted(self._targets, key=lambda key: (distances[key], key)):
            for number in _bits(self._targets[source]):
                if len(found) >= limit:
                    return found
                found.append((source, self._keys[number]))
        return found

    def drawn(self, source: str, target: str) -> DrawnEdge:
        """The line of a pair."""
        jobs = self._readers[source] & self._writers[target]
        is_current = bool(self._current_readers[source] & self._current_writers[target])
        is_current |= self._without_job.get((source, target), False)
        names = [self._names[job] for job in islice(_bits(jobs), MAX_LABELS)]
        by = f"by {_listed(names, jobs.bit_count(), ', ')}; " if names else ""
        return DrawnEdge("no-columns", is_current, f"{by}no column lineage")


def _bits(mask: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while mask:
        bit = mask & -mask
        yield bit.bit_length() - 1
        mask ^= bit

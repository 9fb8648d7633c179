"""The view of one dataset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from headwater.graph.query.answers import ColumnEdge, Dataset, DatasetNode, Statistic
from headwater.graph.query.query import GraphQuery
from headwater.page.views.facets import described
from headwater.page.views.view import Parameters, View

MAX_EDGES = 2_000  # of the columns, in each direction
CHART_SIZE = (560, 64)
CHART_POINTS = 60


class RelatedColumn(NamedTuple):
    """A column upstream or downstream of one; None: the whole dataset."""

    namespace: str
    name: str
    column: str | None
    edge: ColumnEdge


def dataset_view(query: GraphQuery, parameters: Parameters) -> View:
    """One dataset with its columns and their neighbours, charts, schema changes, runs and facets."""
    dataset = query.dataset(parameters.get("namespace"), parameters.get("name"))
    edges, nodes, is_cut = query.edges_of_dataset(dataset.namespace, dataset.name, limit=MAX_EDGES)
    values = {
        "dataset": dataset,
        "upstream": _related_columns(dataset.key, edges, nodes, "up"),
        "downstream": _related_columns(dataset.key, edges, nodes, "down"),
        "is_cut": is_cut,
        "max_edges": MAX_EDGES,
        "facets": described(dataset.facets, dataset.input_facets, dataset.output_facets),
        "charts": _charts(dataset),
        "chart_size": CHART_SIZE,
    }
    return View("dataset.html", dataset.name, "lineage", values)


def _related_columns(
    key: str, edges: list[ColumnEdge], datasets: list[DatasetNode], direction: Literal["up", "down"]
) -> dict[str, list[RelatedColumn]]:
    """The columns upstream or downstream of each column; an empty name is the whole dataset."""
    nodes = {node.key: node for node in datasets}
    found: dict[str, list[RelatedColumn]] = defaultdict(list)
    for edge in edges:
        own, column, other, other_column = (
            (edge.target, edge.target_column, edge.source, edge.source_column)
            if direction == "up"
            else (edge.source, edge.source_column, edge.target, edge.target_column)
        )
        if own == key and other in nodes:
            node = nodes[other]
            found[column or ""].append(RelatedColumn(node.namespace, node.name, other_column, edge))
    for related in found.values():
        related.sort(key=lambda other: (other.edge.type, other.name, other.column or ""))
    return dict(found)


def _charts(dataset: Dataset) -> list[dict[str, Any]]:
    """Rows, bytes and files of the latest runs that wrote the dataset, or else read it, if reported."""
    for direction in ("output", "input"):
        points = [point for point in dataset.statistics if point.direction == direction]
        points = points[:CHART_POINTS][::-1]
        charts = [_chart(points, name, direction) for name in ("rows", "bytes", "files")]
        if reported := [chart for chart in charts if chart["bars"]]:
            return reported
    return []


def _chart(points: list[Statistic], name: str, direction: str) -> dict[str, Any]:
    values = [getattr(point, name) for point in points]
    known = [value for value in values if value is not None]
    return {
        "name": name,
        "label": f"{name} {'written' if direction == 'output' else 'read'}",
        "bars": bars(values, *CHART_SIZE),
        "points": [
            (point.at, value) for point, value in zip(points, values, strict=True) if value is not None
        ],
        "first_at": points[0].at if points else None,
        "last_at": points[-1].at if points else None,
        "latest": known[-1] if known else None,
        "largest": max(known, default=None),
        "count": len(known),
    }


class Bar(NamedTuple):
    """One value as a bar on the baseline."""

    x: float
    y: float
    width: float
    height: float


def bars(values: Sequence[float | None], width: int, height: int) -> list[Bar]:
    """A bar for each value, oldest first; an unknown value leaves a gap."""
    most = max((value for value in values if value is not None), default=0) or 1
    room = width / max(1, len(values))
    found = []
    for place, value in enumerate(values):
        if value is None:
            continue
        tall = max(1.5, height * value / most)
        thick = min(room * 0.72, 22.0)
        found.append(Bar(round(place * room, 2), round(height - tall, 2), round(thick, 2), round(tall, 2)))
    return found

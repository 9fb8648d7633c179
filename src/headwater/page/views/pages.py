"""The views: what each asks of the graph and the stages, and the template that shows it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from headwater.graph.http.query_pool import Parameters
from headwater.graph.query.answers import (
    ColumnEdge,
    Dataset,
    LineageDirection,
    Neighbourhood,
    RunSummary,
    Statistic,
    Trace,
)
from headwater.graph.query.query import GraphQuery
from headwater.log.rejects.rejects import Rejects
from headwater.page.lineage_graph.charts import bars
from headwater.page.lineage_graph.drawing import draw
from headwater.page.views.system import Stages

__all__ = ["VIEWS", "Fragment", "Sources", "View", "lineage", "search", "traced"]

MAX_DEPTH = 5
MAX_DATASETS = 300
CHART = (560, 64)
POINTS = 60  # of a chart
REJECTS = 50  # on one page
RUNS = 100


class Fragment(NamedTuple):
    """A view: its template and what goes into it. `section` is the entry of the menu that it belongs to."""

    template: str
    title: str
    section: str
    values: dict[str, Any]


class Sources(NamedTuple):
    """What views are made of, besides the graph."""

    stages: Stages
    rejects: Rejects


View = Callable[[Sources, GraphQuery, Parameters], Fragment]


def _pipeline(sources: Sources, query: GraphQuery, given: Parameters) -> Fragment:
    return Fragment("_pipeline.html", "Pipeline", "pipeline", {"now": sources.stages.overview(query)})


def _rejects(sources: Sources, query: GraphQuery, given: Parameters) -> Fragment:
    stage = given.get("stage", "") or None
    counts = sources.rejects.counts()
    after = given.get("after", "")[:200]
    found = (
        sources.rejects.list(stage, limit=REJECTS, after=after) if stage is None or stage in counts else []
    )
    following = found[-1].id if len(found) == REJECTS else None
    values = {"rejects": found, "counts": counts, "stage": stage, "following": following}
    return Fragment("_rejects.html", "Rejects", "rejects", values)


def _reject(sources: Sources, query: GraphQuery, given: Parameters) -> Fragment:
    found = sources.rejects.get(given.get("id"))
    return Fragment("_reject.html", f"Reject {found.id}", "rejects", {"reject": found})


def _runs(sources: Sources, query: GraphQuery, given: Parameters) -> Fragment:
    offset = given.number("offset", 0, 10**8)
    found = query.runs(limit=RUNS, offset=offset)
    values = {
        "runs": found,
        "longest": _longest(found),
        "offset": offset,
        "step": RUNS,
        "summary": query.summary(),
    }
    return Fragment("_runs.html", "Runs", "runs", values)


def _longest(runs: list[RunSummary]) -> float:
    return max((run.seconds or 0.0 for run in runs), default=0.0)


def _run(sources: Sources, query: GraphQuery, given: Parameters) -> Fragment:
    found = query.run(given.get("id"))
    title = f"Run of {found.run.job.name}"
    return Fragment("_run.html", title, "runs", {"found": found, "run": found.run})


def _job(sources: Sources, query: GraphQuery, given: Parameters) -> Fragment:
    found = query.job(given.get("namespace"), given.get("name"))
    values = {"job": found, "longest": _longest(found.runs)}
    return Fragment("_job.html", found.name, "lineage", values)


def _dataset(sources: Sources, query: GraphQuery, given: Parameters) -> Fragment:
    found = query.dataset(given.get("namespace"), given.get("name"))
    around = query.neighbourhood(found.namespace, found.name, depth=1, limit=MAX_DATASETS, columns=True)
    values = {
        "dataset": found,
        "origins": _ties(found.key, around, "source"),
        "uses": _ties(found.key, around, "target"),
        "charts": _charts(found),
        "chart": CHART,
    }
    return Fragment("_dataset.html", found.name, "lineage", values)


class Tie(NamedTuple):
    """Another column that one is made of, or that is made of it."""

    namespace: str
    name: str
    column: str | None
    edge: ColumnEdge


def _ties(key: str, around: Neighbourhood, end: str) -> dict[str, list[Tie]]:
    """By column: the other ends of its lines. `end` is the one that is looked for."""
    nodes = {node.key: node for node in around.datasets}
    found: dict[str, list[Tie]] = defaultdict(list)
    for edge in around.column_edges:
        mine, column, other, other_column = (
            (edge.target, edge.target_column, edge.source, edge.source_column)
            if end == "source"
            else (edge.source, edge.source_column, edge.target, edge.target_column)
        )
        if mine == key and other in nodes:
            node = nodes[other]
            found[column or ""].append(Tie(node.namespace, node.name, other_column, edge))
    for ties in found.values():
        ties.sort(key=lambda tie: (tie.edge.type, tie.name, tie.column or ""))
    return dict(found)


def _charts(dataset: Dataset) -> list[dict[str, Any]]:
    """Rows, bytes and files over the latest runs that wrote, or else read it; only what was told."""
    for direction in ("output", "input"):
        points = [each for each in dataset.statistics if each.direction == direction][:POINTS][::-1]
        charts = [_chart(points, name, direction) for name in ("rows", "bytes", "files")]
        if told := [chart for chart in charts if chart["bars"]]:
            return told
    return []


def _chart(points: list[Statistic], name: str, direction: str) -> dict[str, Any]:
    values = [getattr(point, name) for point in points]
    known = [value for value in values if value is not None]
    return {
        "name": name,
        "words": f"{name} {'written' if direction == 'output' else 'read'}",
        "bars": bars(values, *CHART),
        "last": known[-1] if known else None,
        "most": max(known, default=None),
        "count": len(known),
    }


class Board(NamedTuple):
    """What the parameters of a graph ask for. The column may be of a dataset near the one in the middle."""

    kind: Literal["dataset", "job"]
    namespace: str
    name: str
    direction: LineageDirection
    depth: int
    column: str | None
    of: tuple[str, str]

    @classmethod
    def read(cls, given: Parameters) -> Board:
        namespace, name = given.get("namespace"), given.get("name")
        kind: Literal["dataset", "job"] = given.choice("kind", "dataset", "job")
        direction: LineageDirection = given.choice("direction", "both", "up", "down")
        return cls(
            kind,
            namespace,
            name,
            direction,
            max(1, min(MAX_DEPTH, given.number("depth", 3, 1_000))),
            given.get("column", "") or None,
            (given.get("of_namespace", namespace), given.get("of_name", name)),
        )

    @property
    def around(self) -> dict[str, str | None]:
        """The parameters of its address, but for the column."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "kind": None if self.kind == "dataset" else self.kind,
            "direction": None if self.direction == "both" else self.direction,
            "depth": str(self.depth),
        }


def lineage(query: GraphQuery, given: Parameters) -> Fragment:
    """The graph around a dataset or job, with a column traced where one is named."""
    board = Board.read(given)
    found = query.neighbourhood(
        board.namespace,
        board.name,
        kind=board.kind,
        direction=board.direction,
        depth=board.depth,
        limit=MAX_DATASETS,
        columns=True,
    )
    values = traced(query, given)
    title = f"{board.column} of {board.of[1]}" if board.column else board.name
    return Fragment("lineage.html", title, "lineage", values | {"drawing": draw(found, values["trace"])})


def traced(query: GraphQuery, given: Parameters) -> dict[str, Any]:
    """The trace of a column, where one is named, for the list beside the graph."""
    board = Board.read(given)
    trace = query.trace(*board.of, board.column, depth=20, limit=2_000) if board.column else None
    steps = _steps(trace) if trace else None
    return board._asdict() | {"around": board.around, "trace": trace, "steps": steps}


def _steps(trace: Trace) -> dict[str, list[dict[str, Any]]]:
    """The columns of a trace by distance, for the list beside the graph: sources first, uses first."""
    nodes = {node.key: node for node in trace.datasets}
    jobs = {job.key: job for job in trace.jobs}
    how: dict[tuple[str, str | None], list[ColumnEdge]] = defaultdict(list)
    far = {(node.dataset, node.column): node.distance for node in trace.columns}
    for edge in trace.column_edges:
        source, target = (edge.source, edge.source_column), (edge.target, edge.target_column)
        if far.get(target, 0) <= 0:
            how[source].append(edge)
        if far.get(source, 0) >= 0:
            how[target].append(edge)
    found: dict[str, list[dict[str, Any]]] = {"up": [], "down": []}
    for node in trace.columns:
        if node.distance and node.dataset in nodes:
            edges = how[(node.dataset, node.column)]
            kinds = dict.fromkeys((edge.subtype or edge.type).lower().replace("_", " ") for edge in edges)
            made_by = {edge.job: jobs[edge.job] for edge in edges if edge.job in jobs}
            found["up" if node.distance < 0 else "down"].append(
                {
                    "node": nodes[node.dataset],
                    "column": node.column,
                    "distance": abs(node.distance),
                    "kinds": list(kinds),
                    "is_direct": any(edge.type == "DIRECT" for edge in edges),
                    "masked": any(edge.masking for edge in edges),
                    "jobs": list(made_by.values()),
                }
            )
    for steps in found.values():
        steps.sort(key=lambda step: (step["distance"], not step["is_direct"]))
    return found


def search(query: GraphQuery, given: Parameters) -> Fragment:
    """Everything whose name holds the words; without words, what was mentioned last."""
    text = given.get("q", "")
    hits = query.search(text, limit=given.number("limit", 50, 200))
    return Fragment(
        "_search.html", f"Search: {text}" if text else "Everything", "lineage", {"hits": hits, "text": text}
    )


VIEWS: dict[str, View] = {
    "pipeline": _pipeline,
    "rejects": _rejects,
    "reject": _reject,
    "runs": _runs,
    "run": _run,
    "job": _job,
    "dataset": _dataset,
    "search": lambda sources, query, given: search(query, given),
}

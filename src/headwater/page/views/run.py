"""The views of one run and of the latest runs."""

from __future__ import annotations

from headwater.graph.query.answers import RunSummary
from headwater.graph.query.query import GraphQuery
from headwater.page.parameters import Parameters
from headwater.page.views.view import View

PAGE_SIZE = 100


def run_view(query: GraphQuery, parameters: Parameters) -> View:
    """One run with its inputs, outputs and children."""
    details = query.run(parameters.get("id"))
    values = {"details": details, "run": details.run}
    return View("run.html", f"Run of {details.run.job.name}", "runs", values)


def runs_view(query: GraphQuery, parameters: Parameters) -> View:
    """The latest runs of all jobs."""
    offset = parameters.number("offset", 0, 10**8)
    runs = query.runs(limit=PAGE_SIZE, offset=offset)
    values = {
        "runs": runs,
        "longest": longest_seconds(runs),
        "offset": offset,
        "page_size": PAGE_SIZE,
        "summary": query.summary(),
    }
    return View("runs.html", "Runs", "runs", values)


def longest_seconds(runs: list[RunSummary]) -> float:
    """The duration of the longest run, the scale of the bars."""
    return max((run.seconds or 0.0 for run in runs), default=0.0)

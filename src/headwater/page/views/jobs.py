"""The views of a job, of a run, and of the latest runs."""

from __future__ import annotations

from headwater.graph.query.answers import RunSummary
from headwater.graph.query.query import GraphQuery
from headwater.page.views.facets import described
from headwater.page.views.system import SystemStatus
from headwater.page.views.timeline import timeline
from headwater.page.views.view import Parameters, View

PAGE_SIZE = 100


def job_view(query: GraphQuery, parameters: Parameters) -> View:
    """One job with its inputs, outputs and latest runs."""
    job = query.job(parameters.get("namespace"), parameters.get("name"))
    facets = described(job.facets)
    values = {"job": job, "longest": _longest_seconds(job.runs), "facets": facets}
    return View("job.html", job.name, "lineage", values)


def run_view(query: GraphQuery, parameters: Parameters) -> View:
    """One run with its inputs, outputs and children."""
    details = query.run(parameters.get("id"))
    runs, is_cut = query.run_tree(details.run.id)
    values = {
        "details": details,
        "run": details.run,
        "facets": described(details.facets),
        "timeline": timeline(runs, is_cut=is_cut) if len(runs) > 1 else None,
    }
    return View("run.html", f"Run of {details.run.job.name}", "runs", values)


def runs_view(status: SystemStatus, query: GraphQuery, parameters: Parameters) -> View:
    """The latest runs of all jobs."""
    offset = parameters.number("offset", 0, 10**8)
    runs = query.runs(limit=PAGE_SIZE, offset=offset)
    values = {
        "runs": runs,
        "longest": _longest_seconds(runs),
        "offset": offset,
        "page_size": PAGE_SIZE,
        "summary": status.summary(query),
    }
    return View("runs.html", "Runs", "runs", values)


def _longest_seconds(runs: list[RunSummary]) -> float:
    """The duration of the longest run, the scale of the bars."""
    return max((run.seconds or 0.0 for run in runs), default=0.0)

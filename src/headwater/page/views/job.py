"""The view of one job."""

from __future__ import annotations

from headwater.graph.query.query import GraphQuery
from headwater.page.parameters import Parameters
from headwater.page.views.run import longest_seconds
from headwater.page.views.view import View


def job_view(query: GraphQuery, parameters: Parameters) -> View:
    """One job with its inputs, outputs and latest runs."""
    job = query.job(parameters.get("namespace"), parameters.get("name"))
    values = {"job": job, "longest": longest_seconds(job.runs)}
    return View("job.html", job.name, "lineage", values)

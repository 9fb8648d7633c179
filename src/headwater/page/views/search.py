"""The view of search results."""

from __future__ import annotations

from headwater.graph.query.query import GraphQuery
from headwater.page.parameters import Parameters
from headwater.page.views.view import View


def search_view(query: GraphQuery, parameters: Parameters) -> View:
    """Datasets, jobs and columns whose names contain the words; without words, the recently updated ones."""
    text = parameters.get("q", "")
    results = query.search(text, limit=parameters.number("limit", 50, 200))
    title = f"Search: {text}" if text else "Recently updated"
    return View("search.html", title, "lineage", {"results": results, "text": text})

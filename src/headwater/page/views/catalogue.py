"""The view of the catalogue: namespaces, and the datasets or jobs in them."""

from __future__ import annotations

from headwater.graph.query.catalogue import CatalogueKind, Sort, StateFilter
from headwater.graph.query.query import GraphQuery
from headwater.page.views.system import SystemStatus
from headwater.page.views.view import Parameters, View

PAGE_SIZE = 50
NAMESPACES = 1_000


def catalogue_view(status: SystemStatus, query: GraphQuery, parameters: Parameters) -> View:
    """A page of datasets or jobs, with the namespaces beside it."""
    kind: CatalogueKind = parameters.choice("kind", "dataset", "job")
    sort: Sort = parameters.choice("sort", "name", "updated")
    state: StateFilter = parameters.choice("state", "", "failed", "complete", "running")
    owner, tag = parameters.get("owner", ""), parameters.get("tag", "")
    space = parameters.get("space", "").strip()[:200]
    namespace, words = parameters.get("namespace", ""), parameters.get("q", "").strip()
    after = parameters.get("after", "")
    page = query.catalogue(
        kind,
        namespace=namespace,
        q=words,
        state=state,
        owner=owner,
        tag=tag,
        sort=sort,
        after=after,
        limit=PAGE_SIZE,
    )
    if space:
        namespaces = query.namespaces(NAMESPACES, space)
    else:
        namespaces = status.cached("namespaces", lambda: query.namespaces(NAMESPACES))
    values = {
        "kind": kind,
        "sort": sort,
        "state": state,
        "namespace": namespace,
        "words": words,
        "owner": owner,
        "tag": tag,
        "space": space,
        "after": after,
        "page": page,
        "namespaces": [each for each in namespaces if (each.jobs if kind == "job" else each.datasets)],
        "given": {
            "kind": None if kind == "dataset" else kind,
            "sort": None if sort == "name" else sort,
            "state": state or None,
            "owner": owner or None,
            "tag": tag or None,
            "space": space or None,
            "namespace": namespace or None,
            "q": words or None,
        },
        "summary": status.summary(query),
    }
    return View("catalogue.html", "Catalogue", "catalogue", values)

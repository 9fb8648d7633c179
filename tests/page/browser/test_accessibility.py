"""Every view, at every width and in both colour schemes, has no violation that axe-core finds."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from playwright.sync_api import expect

from tests.graph.events import facet, run_event, run_id
from tests.page.browser.conftest import Look
from tests.page.browser.server import Shop
from tests.page.browser.test_browser import VIEWS
from tests.page.shop import BOARD, ORDERS, REVENUE
from tests.page.test_facets import FAILED, QUERY, TRACE
from tests.parts.axe import axe_source
from tests.parts.cache import Missing

pytestmark = pytest.mark.long

SIZES = (1600, 1024, 400)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
MORE: dict[str, tuple[str, dict[str, str]]] = {
    "trace": ("/lineage", {"namespace": REVENUE[0], "name": REVENUE[1], "column": "revenue_euro"}),
    "open": ("/lineage", {"namespace": ORDERS[0], "name": ORDERS[1], "open": "all", "depth": "3"}),
    "jobs": ("/lineage", {"namespace": BOARD[0], "name": BOARD[1], "jobs": "1"}),
    "job graph": ("/lineage", {"kind": "job", "namespace": "shop", "name": "marketing.board"}),
    "run": ("/run", {"id": run_id(901)}),
    "job with SQL": ("/job", {"namespace": "jobs", "name": "nightly"}),
}


@pytest.fixture(scope="module")
def axe() -> str:
    try:
        return axe_source()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def full(shop: Shop) -> Shop:
    """The shop with rejects, a run that failed in a tree, SQL, and a failed check."""
    of = facet(run={"runId": run_id(901)}, job={"namespace": "jobs", "name": "nightly"})
    error = {"errorMessage": facet(message="no space", programmingLanguage="JAVA", stackTrace=TRACE)}
    about = {
        "sql": facet(query=QUERY),
        "documentation": facet(description="Builds the report."),
        "ownership": facet(owners=[{"name": "team:sales", "type": "OWNER"}]),
        "tags": facet(tags=[{"key": "tier", "value": "1"}]),
    }
    checked = {
        "namespace": ORDERS[0],
        "name": ORDERS[1],
        "inputFacets": {
            "dataQualityAssertions": FAILED,
            "dataQualityMetrics": facet(rowCount=3, columnMetrics={}),
        },
    }
    shop.lineage(
        [
            run_event("START", run=901, job="nightly"),
            run_event(run=902, job="nightly.task", minute=1, inputs=[checked], run_facets={"parent": of}),
            run_event("FAIL", run=901, job="nightly", minute=2, run_facets=error, job_facets=about),
        ]
    )
    shop.refuse(2, "It does not fit.")
    shop.bad_lineage()
    return shop


def violations(look: Look, axe: str) -> list[str]:
    look.page.evaluate(axe)
    found: list[dict[str, Any]] = look.page.evaluate("axe.run().then((result) => result.violations)")
    return [
        f"{rule['id']}: {node['target']} {node['html'][:120]}" for rule in found for node in rule["nodes"][:3]
    ]


@pytest.mark.parametrize("view", [*VIEWS, *MORE])
def test_nothing_is_inaccessible_when_a_view_is_shown(look: Look, full: Shop, axe: str, view: str) -> None:
    path, parameters = MORE[view] if view in MORE else VIEWS[view][:2]
    page = look.go(path, **parameters)
    expect(page.locator("h1").first).to_be_visible()
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        for width in SIZES:
            page.set_viewport_size({"width": width, "height": 860})
            assert violations(look, axe) == [], f"{view} at {width}, {scheme}"
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{view} at {width}"

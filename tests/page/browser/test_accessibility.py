"""Every view, at every width and in both colour schemes, has no violation that axe-core finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.graph.events import facet, run_event, run_id
from tests.page.browser.conftest import Look
from tests.page.browser.server import Shop, running_shop
from tests.page.browser.test_browser import VIEWS
from tests.page.shop import BOARD, ORDERS, REVENUE
from tests.page.test_facets import FAILED, QUERY, TRACE
from tests.parts.axe import axe_source
from tests.parts.cache import Missing

pytestmark = pytest.mark.long

SIZES = (1600, 1024, 400)
HUB = ("db", "hub_of_twenty")
TOKEN = "a-token-of-a-test"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
MORE: dict[str, tuple[str, dict[str, str]]] = {
    "trace": ("/lineage", {"namespace": REVENUE[0], "name": REVENUE[1], "column": "revenue_euro"}),
    "open": ("/lineage", {"namespace": ORDERS[0], "name": ORDERS[1], "open": "all", "depth": "3"}),
    "jobs": ("/lineage", {"namespace": BOARD[0], "name": BOARD[1], "jobs": "1"}),
    "job graph": ("/lineage", {"kind": "job", "namespace": "shop", "name": "marketing.board"}),
    "run": ("/run", {"id": run_id(901)}),
    "job with SQL": ("/job", {"namespace": "jobs", "name": "nightly"}),
    "reject": ("/reject", {"id": "warehouse:1"}),
    "by namespace": ("/lineage", {"namespace": HUB[0], "name": HUB[1], "group": "1"}),
    "compare": ("/dataset/changes", {"namespace": HUB[0], "name": HUB[1]}),
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
    shop.lineage(_hub())
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
    look.go(path, **parameters)
    expect(look.page.locator("h1").first).to_be_visible()
    nothing_is_inaccessible(look, axe, view)


def nothing_is_inaccessible(look: Look, axe: str, view: str) -> None:
    page = look.page
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        for width in SIZES:
            page.set_viewport_size({"width": width, "height": 860})
            assert violations(look, axe) == [], f"{view} at {width}, {scheme}"
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{view} at {width}"


def test_nothing_is_inaccessible_when_a_stack_is_listed(look: Look, full: Shop, axe: str) -> None:
    page = look.go("/lineage", namespace=HUB[0], name=HUB[1])
    expect(page.locator("#board[data-ready]")).to_be_visible()
    page.locator(".stack a.head").click()
    expect(page.locator("#panel h2")).to_have_text("12 more")
    nothing_is_inaccessible(look, axe, "stack")


@pytest.mark.parametrize(("path", "status"), [
    ("/dataset?namespace=no&name=such", 404),
    ("/dataset", 400),
])  # fmt: skip
def test_nothing_is_inaccessible_when_an_error_is_shown(
    look: Look, full: Shop, axe: str, path: str, status: int
) -> None:
    answer = look.page.goto(full.address(path))
    assert answer is not None
    assert answer.status == status
    expect(look.page.locator("h1").first).to_be_visible()
    nothing_is_inaccessible(look, axe, path)
    look.wrong.clear()  # the browser reports the status


def test_nothing_is_inaccessible_when_a_visitor_is_not_signed_in_and_nothing_has_arrived(
    browser: Browser, axe: str, tmp_path: Path
) -> None:
    with running_shop(tmp_path, admin_token=TOKEN) as shop:
        look = Look(browser, shop)
        page = look.go("/")
        expect(page.locator("input[name=token]")).to_be_visible()
        nothing_is_inaccessible(look, axe, "sign-in")
        page.locator("input[name=token]").fill("wrong")
        page.locator("main button").click()
        expect(page.locator("[role=alert]")).to_be_visible()
        nothing_is_inaccessible(look, axe, "sign-in, refused")
        look.wrong.clear()  # the browser reports the status
        page.locator("input[name=token]").fill(TOKEN)
        page.locator("main button").click()
        expect(page.locator("#step-1")).to_be_visible()
        nothing_is_inaccessible(look, axe, "empty home")
        look.context.close()
        assert look.wrong == []


def _hub() -> list[dict[str, Any]]:
    return [
        run_event(run=1_000 + number, job=f"reader_{number}", inputs=[HUB[1]], outputs=[f"copy_{number:02d}"])
        for number in range(20)
    ]

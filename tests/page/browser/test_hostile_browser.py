"""Event text is hostile: no part of it runs in a browser (G12)."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.page.browser.conftest import Look
from tests.page.browser.server import Shop
from tests.page.test_hostile import EVIL, NAME, NAMESPACE, RUN, evil_events

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def evil(shop: Shop) -> Shop:
    shop.lineage(evil_events())
    shop.bad_lineage(job={"namespace": EVIL, "name": EVIL})
    shop.refuse(1, reason=EVIL, note=EVIL)
    shop.orders(1, event_type=EVIL, **{EVIL: EVIL})
    return shop


def test_nothing_runs_in_a_browser_when_every_shown_field_is_a_script(look: Look, evil: Shop) -> None:
    named = {"namespace": NAMESPACE, "name": NAME}
    pages: list[tuple[str, dict[str, str]]] = [
        ("/", {}),
        ("/catalogue", {}),
        ("/system", {}),
        ("/runs", {}),
        ("/run", {"id": RUN}),
        ("/job", {"namespace": NAMESPACE, "name": f"job {EVIL}"}),
        ("/dataset", named),
        ("/lineage", named | {"column": EVIL}),
        ("/rejects", {}),
        ("/reject", {"id": "warehouse:1"}),
        ("/search", {"q": "script"}),
        ("/tail", {}),
    ]
    for path, parameters in pages:
        page = look.go(path, **parameters)
        expect(page.locator("h1").first).to_be_visible()
        for summary in page.locator("main details:not(.confirm) > summary:visible").all()[:5]:
            summary.click()
        if path == "/tail":
            expect(page.locator("#events li", has_text="window.hurt").first).to_be_visible()
        if path == "/lineage":
            page.locator("a.row.traced").first.click()
            expect(page.locator("#panel.open")).to_be_visible()
        assert page.evaluate("window.hurt") is None, path
    page.keyboard.press("/")
    page.keyboard.type("script")
    expect(page.locator("#suggestions [role=option]").first).to_be_visible()
    assert page.evaluate("window.hurt") is None

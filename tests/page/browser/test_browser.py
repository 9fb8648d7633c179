"""The page in a real browser."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Route, expect

from tests.page.browser.conftest import Look
from tests.page.browser.server import Shop
from tests.page.shop import BOARD, INCOMING, ORDERS, REVENUE, columns, event, item

pytestmark = pytest.mark.long

VIEWS: dict[str, tuple[str, dict[str, str], str]] = {
    "home": ("/", {}, "Home"),
    "catalogue": ("/catalogue", {}, "Catalogue"),
    "system": ("/system", {}, "System"),
    "lineage": ("/lineage", {"namespace": REVENUE[0], "name": REVENUE[1]}, REVENUE[1]),
    "dataset": ("/dataset", {"namespace": ORDERS[0], "name": ORDERS[1]}, ORDERS[1]),
    "impact": ("/impact", {"namespace": ORDERS[0], "name": ORDERS[1]}, ORDERS[1]),
    "changes": ("/dataset/changes", {"namespace": ORDERS[0], "name": ORDERS[1]}, ORDERS[1]),
    "job": ("/job", {"namespace": "shop", "name": "marketing.board"}, "marketing.board"),
    "runs": ("/runs", {}, "Runs"),
    "rejects": ("/rejects", {}, "Rejects"),
    "events": ("/tail", {}, "Events"),
    "search": ("/search", {"q": "orders"}, "Results for “orders”"),
}
TRACE = {"namespace": REVENUE[0], "name": REVENUE[1], "depth": "3", "open": "all"}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_shown_and_fits_when_it_is_opened_wide_and_narrow(look: Look, view: str) -> None:
    path, parameters, title = VIEWS[view]
    page = look.go(path, **parameters)
    expect(page.locator("h1")).to_have_text(title)
    expect(page.locator("nav [aria-current=page]")).to_have_count(1)
    for width in (1600, 400):
        page.set_viewport_size({"width": width, "height": 860})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{view} at {width}"


def test_what_is_known_is_shown_when_a_dataset_and_a_failed_run_are_opened(look: Look) -> None:
    page = look.go("/dataset", namespace=ORDERS[0], name=ORDERS[1])
    row = page.locator(".schema tbody tr").filter(
        has=page.get_by_role("link", name="customer_mail", exact=True)
    )
    expect(row).to_contain_text("customer.mail")
    expect(row).to_contain_text("masked")
    expect(page.locator(".versions .added")).to_contain_text("customer_city")
    assert page.locator(".chart rect").count() >= 12
    page = look.go("/runs")
    failed = page.locator("tr", has=page.locator(".state.fail")).filter(has_text="marketing.board")
    failed.locator("td.time a").first.click()
    expect(page.locator(".error")).to_contain_text("may not write")
    expect(page.locator("table").first).to_contain_text("revenue")


def lit(look: Look) -> set[tuple[str, ...]]:
    return {
        (box.get_attribute("aria-label") or "", row.get_attribute("data-column") or "")
        for box in look.page.locator("g.dataset").all()
        for row in box.locator("a.row.traced").all()
    }


def test_a_column_is_traced_to_the_json_field_when_it_is_clicked(look: Look) -> None:
    page = look.go("/lineage", **TRACE)
    expect(page.locator("#board[data-ready]")).to_be_visible()
    page.locator("a.row[data-column=revenue_euro]").click()
    expect(page.locator("#panel h2")).to_have_text("revenue_euro")
    expected = {
        (INCOMING[1], "amount"),
        (ORDERS[1], "amount"),
        (ORDERS[1], "currency"),
        (REVENUE[1], "revenue_euro"),
        (BOARD[1], "revenue"),
    }
    assert expected <= lit(look)
    assert (ORDERS[1], "customer_mail") not in lit(look)
    assert page.locator("path.edge.traced.direct").count() >= 3
    assert page.locator("path.edge.traced.indirect").count() >= 2
    expect(page.locator("#panel .gap")).to_contain_text("marketing.letters reports no column lineage here")
    deciding = page.locator("#trace-up details").first
    deciding.locator("summary").first.click()
    expect(deciding).to_contain_text("currency")
    found = lit(look)
    page.reload()  # the address is a permalink
    expect(page.locator("#panel h2")).to_have_text("revenue_euro")
    assert lit(look) == found
    page.locator("#panel a.close").click()
    expect(page.locator("a.row.traced")).to_have_count(0)
    page.go_back()
    expect(page.locator("#panel h2")).to_have_text("revenue_euro")
    page.locator("#indirect").uncheck()
    expect(page.locator("path.edge.indirect").first).to_be_hidden()


def test_everything_is_reached_when_only_the_keyboard_is_used(look: Look) -> None:
    page = look.go("/")
    page.keyboard.press("/")
    page.keyboard.type("daily/rev")
    # the list for fewer letters has more
    expect(page.locator("#suggestions [role=option]")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#board[data-ready]")).to_be_visible()
    page.locator("#board").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("a.head:focus")).to_have_attribute("href", re.compile("/dataset.*revenue"))
    page.keyboard.press("ArrowDown")
    expect(page.locator("a.toggle:focus")).to_have_attribute("aria-label", re.compile("^Show the columns"))
    page.keyboard.press("Enter")
    expect(page.locator("a.toggle:focus")).to_have_attribute("aria-label", re.compile("^Hide the columns"))
    for key, column in (("ArrowDown", "day"), ("ArrowDown", "city")):
        page.keyboard.press(key)
        expect(page.locator("a.row:focus")).to_have_attribute("data-column", column)
    page.keyboard.press("Enter")
    expect(page.locator("#panel h2")).to_have_text("city")
    assert "column=city" in page.url
    page.keyboard.press("ArrowLeft")
    expect(page.locator("a.row:focus")).to_have_attribute("data-column", "customer_city")
    page.keyboard.press("Escape")
    expect(page.locator("a.row.traced")).to_have_count(0)
    page.keyboard.press("Shift+Tab")
    page = look.go("/rejects")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_another_depth_is_drawn_when_it_is_chosen(look: Look) -> None:
    page = look.go("/lineage", **TRACE)
    expect(page.locator("#board[data-ready]")).to_be_visible()
    before = page.locator("g.dataset").count()
    page.locator("#depth").select_option("1")
    expect(page).to_have_url(re.compile("depth=1"))
    expect(page.locator("g.dataset")).to_have_count(4)
    assert before > 4


def test_the_numbers_move_when_events_come_in(look: Look, shop: Shop) -> None:
    before = int(shop.metric("gateway_events_accepted_total"))
    page = look.go("/system")
    cell = page.locator("#stage-gateway dd").first
    expect(cell).to_have_text(f"{before:,}")
    shop.orders(7)
    expect(cell).to_have_text(f"{before + 7:,}")
    assert int(page.locator("#view").get_attribute("data-updates") or 0) >= 1


def test_an_event_is_seen_when_it_comes_in(look: Look, shop: Shop) -> None:
    page = look.go("/tail")
    mark = uuid.uuid4().hex
    shop.orders(1, note=mark)
    row = page.locator("#events li", has_text=mark)
    expect(row).to_be_visible()
    row.locator("summary").click()
    expect(row.locator("pre")).to_contain_text('"amount": 12.5')
    page.locator("#filter").fill("no event has this")
    expect(row).to_be_hidden()


def test_rejects_are_replayed_and_dropped_when_buttons_are_clicked(look: Look, shop: Shop) -> None:
    shop.no_rejects()
    shop.refuse(3)
    page = look.go("/rejects")
    page.locator(".chips a", has_text="destination:warehouse").click()
    expect(page.locator(".rejects > li")).to_have_count(3)
    page.get_by_role("button", name="Replay all 3").click()
    expect(page.get_by_role("status").first).to_contain_text("3 replays requested")
    expect(page.locator("h2", has_text="No rejects")).to_be_visible()
    waiting = list((shop.events_dir / "failed").glob("failed.dst=warehouse-*.log"))
    assert sum(path.read_bytes().count(b"\n") for path in waiting) == 3

    shop.bad_lineage()
    page = look.go("/rejects")
    reject = page.locator(".rejects > li").first
    reject.get_by_role("button", name=re.compile("Replay")).click()
    expect(page.locator(".rejects > li").first).to_contain_text("retried 1×")  # it is as bad as it was
    reject = page.locator(".rejects > li").first
    reject.locator("summary", has_text="Drop").click()
    reject.get_by_role("button", name=re.compile("Drop for good: ")).click()
    expect(page.get_by_role("status").first).to_contain_text("1 reject dropped")
    expect(page.locator(".rejects > li")).to_have_count(0)


def test_what_was_opened_stays_open_when_the_view_moves(look: Look, shop: Shop) -> None:
    shop.no_rejects()
    shop.bad_lineage(job={"namespace": "a", "name": "first"})
    page = look.go("/rejects", stage="gateway")
    page.locator(".rejects details").first.locator("summary").first.click()
    expect(page.locator(".rejects pre").first).to_be_visible()
    shop.bad_lineage(job={"namespace": "a", "name": "second"})
    expect(page.locator(".rejects > li")).to_have_count(2)
    expect(page.locator(".rejects pre").first).to_be_visible()
    page.get_by_text("Drop all…").click()
    page.get_by_role("button", name="Drop 2 for good").click()
    expect(page.locator(".rejects > li")).to_have_count(0)


def test_what_was_opened_stays_open_when_the_first_view_comes_after_it(look: Look, shop: Shop) -> None:
    shop.no_rejects()
    shop.bad_lineage()
    held: list[Route] = []
    # a built-in would not do: playwright looks at the signature
    look.page.route("**/live?*", lambda route: held.append(route))
    page = look.go("/rejects", stage="gateway")
    opened = page.locator(".rejects details").first
    opened.locator("summary").first.click()
    page.wait_for_function("document.querySelector('.rejects details').open")
    held[0].continue_()
    expect(page.locator("#view")).to_have_attribute("data-updates", re.compile("[1-9]"))
    expect(opened).to_have_attribute("open", "")


def test_the_colours_stay_as_chosen_when_the_page_is_left(look: Look) -> None:
    page = look.go("/")
    light = page.evaluate("getComputedStyle(document.body.parentNode).backgroundColor")
    page.locator("#theme").click()
    dark = page.evaluate("getComputedStyle(document.body.parentNode).backgroundColor")
    assert light != dark
    look.go("/runs")
    assert page.evaluate("getComputedStyle(document.body.parentNode).backgroundColor") == dark


def test_the_drawing_is_a_file_of_its_own_when_it_is_exported(look: Look) -> None:
    page = look.go("/lineage", **TRACE, column="revenue_euro")
    with page.expect_download() as download:
        page.locator("#export").click()
    assert download.value.suggested_filename == "lineage-revenue.svg"
    tree = ElementTree.parse(download.value.path())
    texts = [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"revenue", "amount", "to_euro"} <= set(texts)
    style = next(tree.iter("{http://www.w3.org/2000/svg}style")).text or ""
    assert "var(" not in style
    assert "#0f766e" in style


def test_a_hub_is_fitted_and_moves_by_a_transform_when_it_has_400_readers(look: Look, shop: Shop) -> None:
    hub = ("wide", "hub")
    made = [("wide", f"table_{number:03d}") for number in range(400)]
    outputs = [
        item(each, with_schema=False)
        | {"facets": {"columnLineage": columns(**{f"c{n}": [(hub, f"c{n}", "IDENTITY")] for n in range(3)})}}
        for each in made
    ]
    run = str(uuid.uuid4())
    shop.lineage([event("COMPLETE", "wide", run, _moment(), [item(hub, with_schema=False)], outputs)])
    page = look.go("/lineage", namespace="wide", name="hub")
    expect(page.locator("#board[data-ready]")).to_be_visible()
    expect(page.locator("g.dataset")).to_have_count(10)
    board = page.locator("#board").bounding_box()
    assert board is not None
    for box in page.locator("g.dataset").all():  # fitted
        place = box.bounding_box()
        assert place is not None
        assert place["y"] + place["height"] <= board["y"] + board["height"] + 1
    width = page.locator("#board svg").get_attribute("width")
    page.mouse.move(board["x"] + 300, board["y"] + 40)
    page.mouse.down()
    page.mouse.move(board["x"] + 500, board["y"] + 340, steps=5)
    page.mouse.up()
    assert page.locator("#board svg").get_attribute("width") == width
    expect(page.locator("#minimap")).to_be_visible()
    page.locator("#fit").click()
    expect(page.locator("#minimap")).to_be_hidden()
    page.locator(".stack a.head").click()
    expect(page.locator("#panel h2")).to_have_text("392 more")
    page.locator("#narrow").fill("table_00")
    shown = page.locator(".members li:visible")
    expect(shown).not_to_have_count(250)
    name = (shown.first.locator("b").text_content() or "").strip()
    shown.first.get_by_role("link", name=re.compile("^Add ")).click()
    expect(page.locator("g.dataset text.name", has_text=name)).to_be_visible()
    expect(page.locator("#panel h2")).to_have_count(0)
    for _ in range(12):
        page.keyboard.press("-")
    page.locator("#board").focus()
    for _ in range(6):
        page.keyboard.press("-")
    expect(page.locator("svg.graph.far")).to_have_count(1)
    expect(page.locator("g.dataset text.facts").first).to_have_css("opacity", "0")
    page.go_back()
    expect(page.locator("#panel h2")).to_have_text("392 more")


def test_the_panel_says_why_when_a_step_fails(look: Look) -> None:
    page = look.go("/lineage", **TRACE)
    expect(page.locator("#board[data-ready]")).to_be_visible()
    look.page.route("**/lineage?*", lambda route: route.abort())
    page.locator("a.row[data-column=revenue_euro]").click()
    expect(page.locator("#panel [role=alert]")).to_contain_text("The server did not answer.")
    look.wrong.clear()  # the browser reports the aborted request


def _moment() -> datetime:
    return datetime.now(UTC)

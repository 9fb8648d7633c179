"""Pictures of the page: `make screenshots`. Otherwise a few are taken, and thrown away.

Those for docs/img are of the shop of these tests, with its own events on the way while they are taken. Those
of each view, width and colour scheme go into another folder, for a person who judges the page.
"""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from headwater.log.files.archive import archive
from headwater.log.files.file_status import FileStatus, LastCycle
from headwater.log.files.layout import unprocessed
from tests.page.browser.conftest import Look
from tests.page.browser.server import Shop, running_shop, wait_for
from tests.page.gallery import CHECKED, HUB, NIGHTLY, SQL_JOB, WIDE, gallery, run_id
from tests.page.shop import ORDERS, REVENUE, load_now, story

pytestmark = pytest.mark.long

FOLDER = os.environ.get("HEADWATER_SCREENSHOTS", "")
MATRIX_FOLDER = os.environ.get("HEADWATER_SCREENSHOT_MATRIX", "")
SECONDS = 60 if FOLDER else 1  # of events before the first picture: the small charts show some past
TRACE = {"namespace": REVENUE[0], "name": REVENUE[1], "depth": "3", "column": "revenue_euro"}
PICTURES: dict[str, tuple[str, dict[str, str], str]] = {
    "graph": ("/lineage", {k: v for k, v in TRACE.items() if k != "column"}, "light"),
    "trace": ("/lineage", TRACE, "light"),
    "trace-dark": ("/lineage", TRACE, "dark"),
    "dataset": ("/dataset", {"namespace": ORDERS[0], "name": ORDERS[1]}, "light"),
    "run": ("/run", {}, "light"),
    "rejects": ("/rejects", {}, "light"),
    "tail": ("/tail", {}, "dark"),
    "narrow": ("/lineage", TRACE, "narrow"),
    # last, when there is some past to be shown
    "narrow-pipeline": ("/system", {}, "narrow"),
    "pipeline": ("/system", {}, "light"),
    "pipeline-dark": ("/system", {}, "dark"),
}

FEW = ("trace", "narrow", "pipeline-dark")  # enough to see that pictures can be taken


def load(shop: Shop, rejected: int = 0) -> None:
    """Stand in for the pipeline, whose Spark is not wanted here: note what became of the files that wait."""
    for file in unprocessed(shop.events_dir):
        events = file.path.read_bytes().count(b"\n")
        skipped = events // 25
        status = FileStatus.load(file)
        status.mark("warehouse", "order", True, rows=events - skipped - rejected)
        status.count("warehouse", events=events, skipped=skipped, rejected=rejected)
        status.save()
        archive(file)
        LastCycle(at=time.time(), seconds=7.4, files=1, done=1).save(shop.events_dir)


def busy(shop: Shop) -> None:
    """Some of the past of a shop: files that were loaded, rejects, and events that come and go."""
    shop.lineage(story())
    shop.orders(640, event_type="Order")
    wait_for(lambda: unprocessed(shop.events_dir), "a file is rotated")
    load(shop, rejected=2)
    shop.refuse(2, "The name of the table could not be made: `_timestamp` is not a time: 'yesterday'.")
    shop.bad_lineage(job={"namespace": "shop", "name": "reports.weekly"})


class Customers(threading.Thread):
    """Events that come and go for as long as pictures are taken."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(name="customers")
        self._shop = shop
        self.ended = threading.Event()

    def run(self) -> None:
        chance = random.Random(7)
        while not self.ended.wait(0.6):
            self._shop.send([self._order(chance) for _ in range(chance.randrange(3, 12))])
            url = f"{self._shop.url}/api/v1/lineage/batch"
            httpx2.post(url, json=list(load_now()), timeout=60).raise_for_status()
            load(self._shop)

    def _order(self, chance: random.Random) -> dict[str, Any]:
        kind = chance.choice(("Order", "Pageview", "Pageview"))
        amount, currency = round(chance.uniform(5, 120), 2), chance.choice(("EUR", "CHF", "SEK"))
        own = {"amount": amount, "currency": currency} if kind == "Order" else {"page": {"title": "Item"}}
        return {"event_type": kind, "customer": {"id": f"u{chance.randrange(400)}"}} | own


@pytest.fixture(scope="module")
def busy_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with running_shop(tmp_path_factory.mktemp("busy"), rotation_minutes=0.02) as shop:
        busy(shop)
        customers = Customers(shop)
        customers.start()
        time.sleep(SECONDS)
        yield shop
        customers.ended.set()
        customers.join()


def test_a_picture_is_taken_when_each_view_is_shown(
    browser: Browser, busy_shop: Shop, tmp_path: Path
) -> None:
    folder = Path(FOLDER) if FOLDER else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    for name in PICTURES if FOLDER else FEW:
        path, parameters, mode = PICTURES[name]
        width, height = (400, 860) if mode == "narrow" else (1280, 800)
        look = Look(
            browser,
            busy_shop,
            viewport={"width": width, "height": height},
            color_scheme="dark" if mode == "dark" else "light",
            device_scale_factor=1.5,
        )
        if name == "run":
            page = look.go("/job", namespace="shop", name="marketing.board")
            failed = page.locator("tr", has=page.locator(".state.fail")).first
            failed.locator("td.time a").first.click()
            expect(page.locator(".error")).to_be_visible()
        else:
            page = look.go(path, **parameters)
        if path == "/tail":
            busy_shop.orders(4)
            expect(page.locator("#events li").first).to_be_visible()
        page.mouse.move(0, 0)
        page.screenshot(path=folder / f"{name}.png", animations="disabled")
        look.context.close()
        assert look.wrong == [], name
        header = (folder / f"{name}.png").read_bytes()[:24]
        assert struct.unpack(">II", header[16:24]) == (width * 1.5, height * 1.5)


def named(dataset: tuple[str, str], **more: str) -> dict[str, str]:
    return {"namespace": dataset[0], "name": dataset[1]} | more


MATRIX: dict[str, tuple[str, dict[str, str]]] = {
    "home": ("/", {}),
    "trace": ("/lineage", TRACE),
    "hub": ("/lineage", named(HUB)),
    "hub-stack": ("/lineage", named(HUB, stack="first")),
    "wide-table": ("/dataset", named(WIDE)),
    "wide-table-graph": ("/lineage", named(WIDE, open="all")),
    "catalogue": ("/catalogue", {}),
    "job-sql": ("/job", {"namespace": "shop", "name": SQL_JOB}),
    "failed-assertion": ("/dataset", named(CHECKED)),
    "failed-assertion-graph": ("/lineage", named(CHECKED)),
    "run-timeline": ("/run", {"id": run_id(NIGHTLY)}),
    "impact": ("/impact", named(HUB)),
    "rejects": ("/rejects", {}),
}
WIDTHS = (1600, 1024, 400)
CRAMPED = """() => {
    const found = [], walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT)
    for (let node; (node = walker.nextNode());) {
        const text = node.data.trim(), parent = node.parentElement
        if (text.length < 7 || parent.closest('svg, pre, .hidden') || !parent.checkVisibility()) continue
        const range = document.createRange()
        range.selectNodeContents(node)
        const lines = new Set([...range.getClientRects()].map(r => Math.round(r.top))).size
        if (lines > 2 && text.length / lines < 5) found.push(`${lines} lines: ${text.slice(0, 60)}`)
    }
    const all = document.querySelectorAll('main :is(.button, button)')
    const buttons = [...all].filter(b => b.checkVisibility())
    for (const one of buttons) {
        const other = one.nextElementSibling
        if (!other || !buttons.includes(other) || one.closest('.zoom')) continue
        const [a, b] = [one.getBoundingClientRect(), other.getBoundingClientRect()]
        if (a.bottom > b.top && b.left - a.right < 4) found.push(`buttons touch: ${one.textContent}`)
    }
    return found
}"""


@pytest.fixture(scope="module")
def full_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with running_shop(tmp_path_factory.mktemp("full")) as shop:
        shop.lineage(story())
        events = list(gallery())
        for first in range(0, len(events), 500):
            shop.lineage(events[first : first + 500])
        shop.refuse(1_240, "The column `amount` has type DOUBLE; 'n/a' is not a number.", amount="n/a")
        shop.refuse(3, "`_timestamp` is not a time: 'yesterday'.", file="b.log", _timestamp="yesterday")
        shop.refuse(1, "`_timestamp` is not a time: '31.2.2026'.", file="c.log", _timestamp="31.2.2026")
        shop.bad_lineage(job={"namespace": "shop", "name": "reports.weekly"})
        yield shop


def take(
    browser: Browser, shop: Shop, name: str, path: str, parameters: dict[str, str], folder: Path
) -> None:
    """Pictures of one view at every width; nothing may be cut off, touch, or be in lines of two letters."""
    look = Look(browser, shop)
    if parameters.get("stack") == "first":
        look.go(path, **{key: value for key, value in parameters.items() if key != "stack"})
        key = look.page.locator(".stack").first.get_attribute("data-key") or ""
        parameters = parameters | {"stack": key}
    wrong = []
    for width in WIDTHS:
        look.page.set_viewport_size({"width": width, "height": 900})
        page = look.go(path, **parameters)
        expect(page.locator("h1").first).to_be_visible()
        if path == "/lineage":
            expect(page.locator("#board[data-ready]")).to_have_count(1)
        for scheme in ("light", "dark") if MATRIX_FOLDER else ("light",):
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            file = folder / f"{name}-{width}-{scheme}.png"
            page.screenshot(path=file, animations="disabled")
            assert file.stat().st_size > 4_000, file.name
        if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
            wrong.append(f"{name} at {width} is wider than the screen")
        wrong += [f"{name} at {width}: {text}" for text in page.evaluate(CRAMPED)]
    look.context.close()
    assert (look.wrong + wrong)[:9] == []


@pytest.mark.parametrize("name", MATRIX)
def test_a_view_is_legible_when_it_is_wide_or_narrow(
    browser: Browser, full_shop: Shop, tmp_path: Path, name: str
) -> None:
    take(browser, full_shop, name, *MATRIX[name], _matrix_folder(tmp_path))


def test_the_first_view_is_legible_when_nothing_has_arrived(browser: Browser, tmp_path: Path) -> None:
    with running_shop(tmp_path) as shop:
        take(browser, shop, "home-empty", "/", {}, _matrix_folder(tmp_path))


def _matrix_folder(tmp_path: Path) -> Path:
    folder = Path(MATRIX_FOLDER) if MATRIX_FOLDER else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    return folder

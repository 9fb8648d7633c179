"""Pictures of the page, for docs/img: `make screenshots`. Otherwise a few are taken, and thrown away.

The pictures are of the shop of these tests, with its own events on the way while they are taken.
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
from tests.page.shop import ORDERS, REVENUE, load_now, story

pytestmark = pytest.mark.long

FOLDER = os.environ.get("HEADWATER_SCREENSHOTS", "")
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

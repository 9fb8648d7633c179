"""A real `headwater serve` with the page, and a browser to look at it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2
from playwright.sync_api import Browser, Playwright, expect

from headwater.log.files.layout import EventFolder
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from tests.page.shop import story
from tests.support.server import Server

SECONDS = 90.0  # to wait for something that takes a moment; machines are busy
ORDER = {"event_type": "Order", "amount": 12.5, "_timestamp": "2026-11-16T10:00:00Z"}


def chromium() -> str | None:
    """A Chromium that is installed; playwright's own is not needed."""
    named = os.environ.get("HEADWATER_CHROMIUM")
    found = (
        shutil.which(name)
        for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    )
    return named or next((path for path in found if path), None)


@contextmanager
def launch(driver: Playwright) -> Iterator[Browser]:
    """A browser with patience: machines are busy."""
    expect.set_options(timeout=SECONDS * 1_000)
    options = ["--no-sandbox", "--disable-dev-shm-usage"]
    browser = driver.chromium.launch(executable_path=chromium(), args=options)
    try:
        yield browser
    finally:
        browser.close()


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen: {what}"
        time.sleep(0.05)


class Shop:
    """The server of a small shop: lineage, a token, an outlet that works and one that does not."""

    def __init__(self, folder: Path, *, rotation_minutes: float = 5.0, **gateway: Any) -> None:
        self.folder = folder
        self.events_dir = folder / "headwater-data" / "events"
        destination = {"id": "warehouse", "type": "duckdb", "path": "w.duckdb"}
        self.server = Server(
            folder,
            {
                "gateway": {"port": 0} | gateway,
                "graph": {"enabled": True},
                "events": {"rotation_minutes": rotation_minutes},
                "tokens": [{"id": "shop", "client_secret": "client", "server_secret": "server"}],
                "destinations": [destination | {"table_name_template": "{{ event_type | lower }}"}],
                "outlets": [
                    {"name": "archive", "type": "file", "path": "out.ndjson"},
                    {"name": "catalogue", "type": "openlineage", "url": "http://127.0.0.1:9"},
                ],
            },
        )
        self.url = self.server.url
        self.host = urlsplit(self.url).netloc
        self._sent = 0

    def lineage(self, events: Iterable[dict[str, Any]]) -> None:
        """Send lineage, and wait until it is in the graph."""
        found = list(events)
        answer = httpx2.post(f"{self.url}/api/v1/lineage/batch", json=found, timeout=60)
        assert answer.json()["status"] == "success", answer.text
        self._sent += len(found)
        wait_for(lambda: self.metric("graph_events_ingested_total") >= self._sent, "everything is graph_of")

    def metric(self, name: str) -> float:
        text = httpx2.get(f"{self.url}/metrics", timeout=60).text
        return next(
            (float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"headwater_{name}")),
            0.0,
        )

    def orders(self, count: int = 1, **fields: Any) -> None:
        """Send as many equal events for tables."""
        self.send([ORDER | fields] * count)

    def send(self, events: list[dict[str, Any]]) -> None:
        """Send events for tables."""
        secret = {"X-Auth-Token": "server"}
        answer = httpx2.post(f"{self.url}/api/v1/s2s/events", json=events, headers=secret, timeout=60)
        assert answer.status_code == 200, answer.text

    def refuse(
        self, count: int, reason: str = "It does not fit.", *, file: str = "a.log", **fields: Any
    ) -> None:
        """Rejects of the destination, as the pipeline writes them."""
        line = json.dumps(ORDER | fields).encode()
        DestinationRejects(self.events_dir).append(
            "warehouse",
            (
                EventError.of(line, reason, destination_id="warehouse", source=f"{file}:{n}", at=time.time())
                for n in range(count)
            ),
        )

    def bad_lineage(self, **fields: Any) -> None:
        """A reject of the gateway."""
        answer = httpx2.post(
            f"{self.url}/api/v1/lineage", json={"eventType": "COMPLETE"} | fields, timeout=60
        )
        assert answer.status_code == 400, answer.text

    def rotated(self) -> None:
        """Wait until no file is being written: the pipeline finds all that was sent."""
        wait_for(lambda: not EventFolder(self.events_dir).active_files(), "the files are rotated")

    def no_rejects(self) -> None:
        """Other tests may have left some."""
        for stage in ("gateway", "destination:warehouse"):
            own = {"Origin": self.url}
            httpx2.post(f"{self.url}/rejects/drop", data={"stage": stage}, headers=own, timeout=60)

    def address(self, path: str, **parameters: str) -> str:
        return f"{self.url}{path}" + (f"?{urlencode(parameters)}" if parameters else "")


@contextmanager
def running_shop(folder: Path, **gateway: Any) -> Iterator[Shop]:
    shop = Shop(folder, **gateway)
    try:
        yield shop
    finally:
        code = shop.server.stop()
    assert code == 0, shop.server.output


@contextmanager
def seeded_shop(folder: Path) -> Iterator[Shop]:
    with running_shop(folder) as shop:
        shop.lineage(story())
        yield shop

"""Server-sent events: views when they change, and events as they arrive."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import httpx2

from tests.page.browser.server import running_shop
from tests.page.client import page_client


def test_a_view_is_sent_when_its_stream_is_opened(tmp_path: Path) -> None:
    with page_client(tmp_path) as client:
        assert client.get("/live?view=search").status_code == 400  # it has no updates
        answer = client.get("/live?view=system")
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        event = next(line for line in answer.text.splitlines() if line.startswith("data: "))
        assert "System" in json.loads(event.removeprefix("data: "))


def test_a_stream_ends_when_the_server_is_stopped(tmp_path: Path) -> None:
    with running_shop(tmp_path) as shop:
        with httpx2.stream("GET", shop.address("/live", view="system"), timeout=90) as answer:
            lines = answer.iter_lines()
            next(line for line in lines if line.startswith("data: "))
            shop.server.send_signal(signal.SIGTERM)
            assert all(isinstance(line, str) for line in lines)  # to its end: it is not cut off
        assert "Stopped." in shop.server.output or shop.server.wait(90) == 0

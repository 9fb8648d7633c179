"""What moves is sent by the server, for as long as both are there."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import httpx2

from tests.page.served import running_shop


def test_the_stream_ends_in_peace_when_the_server_is_stopped(tmp_path: Path) -> None:
    with running_shop(tmp_path) as shop:
        assert (
            httpx2.get(shop.address("/live", view="search"), timeout=90).status_code == 400
        )  # it does not move
        with httpx2.stream("GET", shop.address("/live", view="pipeline"), timeout=90) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["cache-control"] == "no-store"
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            lines = answer.iter_lines()
            event = next(line for line in lines if line.startswith("data: "))
            assert "Pipeline" in json.loads(event.removeprefix("data: "))
            shop.server.process.send_signal(signal.SIGTERM)
            assert all(isinstance(line, str) for line in lines)  # to its end: it is not cut off
        assert "Stopped." in shop.server.output or shop.server.process.wait(90) == 0

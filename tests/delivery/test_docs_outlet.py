"""docs/delivery.md lets a stranger write an outlet: its example is run here as it stands."""

from __future__ import annotations

import asyncio
import re
import socketserver
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import orjson

from headwater.delivery import Client
from headwater.delivery.outlets.base import Outlet
from headwater.settings import convert
from headwater.testing.outlets import OutletConformance, Subject
from tests.delivery.receivers import settings_of

PAGE = (Path(__file__).parents[2] / "docs" / "delivery.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def example_outlet(**options: Any) -> Outlet:
    module = sys.modules["lines_example"] = types.ModuleType("lines_example")
    exec(compile(EXAMPLES[1], "docs/delivery.md", "exec"), module.__dict__)
    kind: type[Outlet] = module.LinesOutlet
    return kind(convert(options, kind.Settings, source="test"), settings_of(type="lines"))


class LinesSubject(Subject):
    """A TCP server that takes batches of lines."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.is_failing = False
        self.marker = ""
        subject = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                batch: list[bytes] = []
                for line in self.rfile:
                    if line.strip():
                        batch.append(line)
                        continue
                    if subject.is_failing:
                        return
                    if any(orjson.loads(one)["name"] == subject.marker for one in batch):
                        self.wfile.write(b"I do not want it\n")
                    else:
                        subject.lines += batch
                        self.wfile.write(b"ok\n")
                    batch = []

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        self.outlet = example_outlet(host="127.0.0.1", port=self.server.server_address[1])

    def received(self) -> list[Any]:
        return [orjson.loads(line) for line in self.lines]

    def fail(self) -> None:
        self.is_failing = True

    def heal(self) -> None:
        self.is_failing = False

    def refuse(self, marker: str) -> None:
        self.marker = marker

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class TestExample(OutletConformance):
    def make(self, tmp_path: Path) -> Subject:
        return LinesSubject()


def test_the_examples_outlet_delivers_when_a_client_uses_it() -> None:
    subject = LinesSubject()
    try:
        subject.refuse("bad")
        refused: list[str] = []
        with Client(
            subject.outlet.settings,
            subject.outlet,
            on_rejected=lambda items: refused.extend(r for _, r in items),
        ) as client:
            client.add_events([{"name": name} for name in ("a", "b", "bad", "c")])
            assert client.flush(30)
        assert [event["name"] for event in subject.received()] == ["a", "b", "c"]
        assert refused == ["I do not want it"]
    finally:
        subject.close()


def test_the_examples_outlet_is_short_when_counted() -> None:
    body = EXAMPLES[1].partition("class LinesOutlet")[2]
    assert 0 < body.count("\n") <= 40
    assert asyncio.iscoroutinefunction(example_outlet(host="h", port=1).send)


def test_the_librarys_example_prints_events_when_run() -> None:
    done = subprocess.run([sys.executable, "-c", EXAMPLES[0]], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert {orjson.loads(line)["text"] for line in done.stdout.splitlines()[:2]} == {"hello", "hi"}
    assert "delivered=2" in done.stdout

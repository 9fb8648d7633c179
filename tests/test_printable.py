"""Text of clients never reaches a terminal or a log line with control characters."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.main import cli
from headwater.cli.server.process import TextLines
from headwater.formats.printable import printable_block, printable_line
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from tests.gateway.running import TOKENS, Running, run_event
from tests.sources import modules

HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\u202eevil\u2028\r\nfake: 2026-01-01 all is well\x00\x7f\u200b"


@given(st.text())
def test_a_line_is_printable_and_a_text_without_controls_is_the_same(text: str) -> None:
    line = printable_line(text)
    assert line.isprintable()
    assert (line == text) == text.isprintable()
    assert printable_line(line) == line


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_has_the_same_value_when_it_is_made_printable(value: Any) -> None:
    for indent in (None, 2):
        block = printable_block(json.dumps(value, ensure_ascii=False, indent=indent))
        assert all(character.isprintable() or character in "\n\t" for character in block)
        assert json.loads(block) == value


def test_commands_print_only_by_the_function_that_escapes() -> None:
    """`up` colours the names of its parts, `lineage` its tree; both escape each text by itself."""
    found = [
        f"{module.name}: {ast.unparse(node)[:60]}"
        for module in modules()
        if module.name.startswith("headwater.cli.") and module.name != "headwater.cli.output"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "print")
    ]
    assert [each.partition(":")[0] for each in found] == ["headwater.cli.lineage.command", "headwater.cli.up"]


def hostile_requests() -> list[tuple[str, bytes, dict[str, str]]]:
    """A request for each route, with hostile text wherever there may be text."""
    escaped = json.dumps(HOSTILE)
    raw = HOSTILE.encode()
    job = {"namespace": HOSTILE, "name": HOSTILE}
    bad = json.dumps(run_event(job=job, eventType=HOSTILE, **{HOSTILE: 1})).encode()
    nested = json.dumps(run_event(inputs=[{"namespace": 1, HOSTILE: HOSTILE}])).encode()
    agent = {"user-agent": "\x9b31m", "x-forwarded-for": "\x9b31m"}
    key = {"idempotency-key": "\x9b31m"}
    requests = []
    for body in (bad, nested, raw, b'{"a": ' + raw + b"}", b"{" + escaped.encode() + b": 1}", b"[" * 2000):
        requests += [("/api/v1/lineage", body, agent), ("/api/v1/lineage/batch", b"[" + body + b"]", agent)]
        requests += [("/api/v1/event?token=web-client", body, agent)]
        requests += [("/api/v1/s2s/events?token=web-server", b"[" + body + b"]", agent)]
        requests += [("/api/v1/events/bulk?token=web-server", body, agent)]
    requests += [("/api/v1/lineage", b"{}", key), ("/%1b[2J%0d%0a", b"{}", {})]
    requests += [("/api/v1/lineage", b"{}", {"content-type": "text/\x9b31m"})]
    return requests


@pytest.mark.parametrize("handler", ["both", "raising"])
def test_no_line_of_log_or_terminal_has_controls_when_every_route_gets_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, handler: str
) -> None:
    caplog.set_level(logging.DEBUG)
    with Running(tmp_path / "data", tokens=TOKENS, failed_events="both", api_keys=()) as gateway:
        if handler == "raising":

            def fail(events: Any) -> None:
                raise RuntimeError(HOSTILE)

            monkeypatch.setattr(gateway.gateway._lineage.failed._handler, "handle", fail)
        with gateway.client() as client:
            for path, body, headers in hostile_requests():
                raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
                assert client.post(path, content=body, headers=raw).status_code < 500
        if handler == "both":
            assert gateway.open_rejects()
    if handler == "both":
        assert any("An event was refused" in record.getMessage() for record in caplog.records)
    for record in caplog.records:
        text = TextLines().format(record)
        assert all(character.isprintable() or character == "\n" for character in text)
        assert not any(line.startswith("fake") for line in text.split("\n"))
    errors = [
        EventError.of(body, HOSTILE, destination_id="db", source=f"{HOSTILE}:{number}", at=0.0)
        for number, body in enumerate((HOSTILE.encode(), json.dumps({"event_id": HOSTILE}).encode()))
    ]
    DestinationRejects(tmp_path / "data" / "events").append("db", errors)
    configuration = tmp_path / "headwater.yml"
    configuration.write_text(json.dumps({"data_dir": str(tmp_path / "data")}))
    commands = [["rejects", "list"], ["status"], ["log", "stat"], ["log", "verify"]]
    commands += [["rejects", "show", id] for id in ("1", "2", "5", "9", "db:1", "db:2", HOSTILE)]
    commands += [[*command, "--json"] for command in commands]
    for command in [*commands, ["rejects", "list", "--stage", f"destination:{HOSTILE}"]]:
        done = CliRunner().invoke(cli, ["-c", str(configuration), *command])
        assert done.output
        assert all(character.isprintable() or character in "\n\t" for character in done.output), command
        if "show" not in command and not command[-1].endswith(HOSTILE):
            assert not any(line.startswith("fake") for line in done.output.split("\n")), command

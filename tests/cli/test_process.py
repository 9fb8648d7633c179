from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli.server.process import JsonLines, TextLines

HOSTILE = "\x1b[2J\x9b2J\u202e\u2028\r\n2026-01-01T00:00:00.000Z ERROR a.b: forged \x07\ud800"
PRINT = """
import logging, sys
from headwater.cli.server.process import configure_logging
from headwater.settings import Settings
configure_logging(Settings(log_level="warning", log_format=sys.argv[1]))
logging.getLogger("a").info("quiet")
logging.getLogger("a").warning("%s left", 3)
logging.getLogger("httpx2").info("noise")
"""


@pytest.fixture
def failed() -> logging.LogRecord:
    try:
        raise ValueError("no")
    except ValueError:
        return logging.LogRecord("a.b", logging.ERROR, "f.py", 1, "it %s", ("failed",), sys.exc_info())


def test_a_line_is_one_object_with_its_traceback_when_the_form_is_json(failed: logging.LogRecord) -> None:
    line = JsonLines().format(failed)
    assert "\n" not in line
    found = json.loads(line)
    assert (found["level"], found["logger"], found["text"]) == ("error", "a.b", "it failed")
    assert found["at"].endswith("Z")
    assert "ValueError: no" in found["error"]


def test_the_traceback_follows_when_the_form_is_text(failed: logging.LogRecord) -> None:
    first, *rest = TextLines().format(failed).splitlines()
    assert first.endswith("Z ERROR a.b: it failed")
    assert rest[-1] == "  ValueError: no"


@pytest.mark.parametrize("form", [TextLines(), JsonLines()], ids=["text", "json"])
def test_no_text_leaves_its_line_or_moves_the_cursor_when_it_is_logged(form: logging.Formatter) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record = logging.LogRecord("a.b", logging.ERROR, "f.py", 1, "it %s", (HOSTILE,), sys.exc_info())
    text = form.format(record)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert not any(line.startswith("2026-") for line in text.split("\n")[1:])
    assert "forged" in text


@pytest.mark.parametrize(("form", "end"), [("text", "WARNING a: 3 left"), ("json", '"text":"3 left"}')])
def test_only_lines_of_the_level_go_to_stderr_when_set_up(form: str, end: str) -> None:
    done = subprocess.run([sys.executable, "-c", PRINT, form], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.endswith(end)


@pytest.mark.parametrize(
    "settings",
    [
        {"tokens": [{"id": "web", "server_secret": "s"}], "events": {"dir": "/proc/none"}},
        {"outlets": [{"name": "a", "type": "no such type"}]},
        {"gateway": {"host": "203.0.113.1", "port": 1}},
    ],
    ids=["folder", "outlet", "port"],
)
def test_every_line_is_json_when_the_server_cannot_start(tmp_path: Path, settings: dict[str, object]) -> None:
    config = tmp_path / "headwater.yml"
    config.write_text(json.dumps({"log_format": "json", "data_dir": str(tmp_path / "data")} | settings))
    command = [sys.executable, "-m", "headwater", "-c", str(config), "serve"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode != 0
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert lines[-1]["level"] == "error"
    assert all({"at", "level", "logger", "text"} <= line.keys() for line in lines)
    assert done.stdout == ""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from headwater.cli.output import format_bytes, format_seconds, format_table, format_time, progress

SHOW = """
from headwater.cli.output import progress
with progress("verify") as update:
    for i in range(3):
        update(i, 2)
print("data")
"""


def test_numbers_stand_to_the_right_when_a_table_is_made() -> None:
    assert format_table(("name", "events"), [("a", 5), ("bcdef", 12345)]) == (
        "name   events\na           5\nbcdef  12,345"
    )
    assert format_table(("name", "events"), []) == "name  events"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (5 << 40, "5.0 TiB")],
)
def test_bytes_have_a_fitting_unit_when_formatted(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (119, "119.0 s"), (600, "10 min"), (10_800, "3.0 h"), (864_000, "10.0 days")],
)
def test_seconds_have_a_fitting_unit_when_formatted(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_a_time_is_utc_when_formatted() -> None:
    assert format_time(1_700_000_000.9) == "2023-11-14 22:13:20Z"
    assert format_time(0) == ""


def test_plain_lines_are_printed_when_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("verify", line_every_seconds=0) as update:
        update(1, 4)
        update(4, 4)
        update(5, 0)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["verify: 1 of 4 (25 %)", "verify: 4 of 4 (100 %)", "verify: 5 of 0"]


def test_nothing_is_printed_when_the_work_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("verify") as update:
        update(1, 4)
    assert capsys.readouterr().err == ""


def test_a_bar_is_drawn_on_stderr_alone_when_there_is_a_terminal() -> None:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", SHOW],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm"},
            check=True,
        )
        drawn = os.read(ours, 65536)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout == b"data\n"
    assert b"verify" in drawn

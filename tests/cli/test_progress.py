from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from headwater.cli.output import progress

SHOW = """
from headwater.cli.output import progress
with progress("verify") as update:
    for i in range(3):
        update(i, 2)
print("data")
"""


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

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from headwater.system.crash_points import CRASH_POINTS

SOURCE = Path(__file__).parent.parent / "src" / "headwater"
PASS_THREE_TIMES = """
from headwater.system.crash_points import crash_point
for i in range(3):
    crash_point("writer.before_insert")
    crash_point("writer.before_commit")
    print(i, flush=True)
"""


def run(crash_point: str | None) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key != "HEADWATER_CRASH_POINT"}
    if crash_point is not None:
        env["HEADWATER_CRASH_POINT"] = crash_point
    return subprocess.run(
        [sys.executable, "-c", PASS_THREE_TIMES], env=env, capture_output=True, text=True, check=False
    )


def test_nothing_happens_when_no_point_is_armed() -> None:
    done = run(None)
    assert (done.returncode, done.stdout.split()) == (0, ["0", "1", "2"])


def test_the_process_is_killed_when_the_armed_point_is_passed() -> None:
    done = run("writer.before_commit")
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


def test_the_process_is_killed_at_the_nth_pass_when_a_count_is_given() -> None:
    done = run("writer.before_commit:3")
    assert (done.returncode, done.stdout.split()) == (-signal.SIGKILL, ["0", "1"])


def test_the_known_points_are_listed_when_an_unknown_one_is_armed() -> None:
    done = run("writer.lunch")
    assert done.returncode == 1
    assert "writer.lunch is not one of writer.before_insert" in done.stderr


def test_every_point_in_the_code_is_listed_when_it_is_searched_for() -> None:
    named = {
        name
        for path in SOURCE.rglob("*.py")
        for name in re.findall(r"crash_point\(\s*\"([^\"]+)\"", path.read_text(encoding="utf-8"))
    }
    assert named <= set(CRASH_POINTS)

"""The descendants of a process, for tests that kill them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

__all__ = ["descendants", "is_worker", "kill"]


def descendants(process: int) -> list[tuple[int, list[bytes]]]:
    """The process ids and command lines of all processes below a process.

    Found by their parents, since the JVM and Spark's Python processes have other process groups.
    """
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal():
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = []
    for each in parents:
        above = parents[each]
        while above not in (0, process):
            above = parents.get(above, 0)
        try:
            if above == process:
                found.append((each, Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")))
        except OSError:
            continue
    return found


def kill(process: int, is_wanted: Callable[[list[bytes]], bool]) -> int:
    """Send SIGKILL to the descendants whose command line is wanted; return their number."""
    killed = 0
    for each, words in descendants(process):
        if is_wanted(words):
            try:
                os.kill(each, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                continue
    return killed


def is_worker(words: list[bytes]) -> bool:
    """Whether the command line is that of a Python worker of Spark."""
    return b"python" in words[0] and any(word.startswith(b"pyspark.") for word in words[:4])

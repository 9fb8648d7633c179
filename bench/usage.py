"""What a process and all that it started use: CPU seconds, and the most memory at one time."""

from __future__ import annotations

import threading
from types import TracebackType

import psutil

__all__ = ["Usage", "cpu_seconds", "tree"]

INTERVAL_SECONDS = 0.2


def tree(pid: int) -> list[psutil.Process]:
    """A process and its descendants, as far as they live."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(pid: int) -> float:
    """User and system time of a tree so far, of its dead and waited-for children too."""
    return sum(_cpu(process) for process in tree(pid))


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    # Linux counts a child in its parent's sum when it was waited for, and no sooner: nothing counts twice
    return float(times.user + times.system + times.children_user + times.children_system)


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


class Usage:
    """Watches some trees while it is entered. Several: a program and the database server that it loads.

    CPU is what was used while it watched. A process that goes away unwaited-for (a backend of Postgres is
    waited for, a killed orphan is not) keeps what it had when it was last seen.
    """

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._before = {pid: cpu_seconds(pid) for pid in pids}
        self._last = dict(self._before)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak_bytes = dict.fromkeys(pids, 0)
        self._peaks = dict.fromkeys(pids, 0)

    def cpu(self, pid: int) -> float:
        """CPU seconds of one tree."""
        return self._last[pid] - self._before[pid]

    def look(self) -> None:
        """Take a sample now."""
        for pid in self._pids:
            processes = tree(pid)
            used = sum(map(_rss, processes))
            self.peak_bytes[pid] = max(self.peak_bytes[pid], used)
            self._peaks[pid] = max(self._peaks[pid], used)
            self._last[pid] = max(self._last[pid], sum(map(_cpu, processes)))

    def take_peak(self, pid: int) -> int:
        """The most memory since this was last asked."""
        self.look()
        peak, self._peaks[pid] = self._peaks[pid], 0
        return peak

    def _watch(self) -> None:
        while not self._ended.wait(INTERVAL_SECONDS):
            self.look()

    def __enter__(self) -> Usage:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self.look()

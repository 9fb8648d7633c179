"""The most memory that a process ever had."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

__all__ = ["peak_rss_bytes"]


def peak_rss_bytes(pid: int | None = None) -> int:
    """Peak resident bytes of a living process, by default this one.

    Not `ru_maxrss`: on Linux a child begins with that of its parent, and looks as large as the benchmark.
    Where there is no /proc, it is what the process has now.
    """
    pid = os.getpid() if pid is None else pid
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return int(psutil.Process(pid).memory_info().rss)
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

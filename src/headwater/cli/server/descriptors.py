"""Open files of a process: how many the settings may need, the limit, and whether it is near.

At the limit nothing else reports the cause: the loop closes each connection that it can no longer accept
without a line in the log, and a thread that cannot open a file waits.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from headwater.settings import Settings

BASE = 150  # log, rejects, graph, loops, libraries
PER_OUTLET = 4  # beside its connections: the partition that it reads, with its two companions
PER_QUEUE = 10
SPARE = 32  # fewer left than these: the next connections may fail
_OPEN = Path("/proc/self/fd") if Path("/proc/self/fd").exists() else Path("/dev/fd")


def raise_limit() -> None:
    """Raise the soft limit to the hard one, as other runtimes do: nothing here uses `select`."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        pass  # macOS refuses its own hard limit; the soft one stays


def limit() -> int:
    """How many files a server of this user may open: the hard limit, to which it raises its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return hard if hard != resource.RLIM_INFINITY else 1 << 30


def needed(settings: Settings) -> int:
    """How many files a server with these settings has open at most."""
    outlets = sum(PER_OUTLET + outlet.max_in_flight for outlet in settings.outlets)
    files = len(settings.tokens) if settings.events.kafka is None else 0
    queues = PER_QUEUE * sum(destination.is_stream for destination in settings.destinations)
    return BASE + settings.gateway.max_connections + outlets + files + queues


def open_files() -> int:
    """How many files this process has open now."""
    return len(os.listdir(_OPEN))


def shortage() -> str | None:
    """Why the next connection may fail; None while enough files can be opened."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return None
    try:
        used = open_files()
    except OSError as error:  # EMFILE: not even the folder can be opened
        return f"no file can be opened ({error.strerror}); the limit is {soft} (`ulimit -n`)"
    if used > soft - SPARE:
        return f"{used} of {soft} open files are in use (`ulimit -n`)"
    return None

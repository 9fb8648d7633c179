"""Where parts that tests fetch from public registries are kept between runs, outside the repository."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Missing", "folder", "locked", "once"]


class Missing(Exception):
    """A part cannot be fetched here; the text names it, and the tests that need it skip."""


def folder() -> Path:
    """$HEADWATER_TEST_CACHE, else the user's cache folder."""
    named = os.environ.get("HEADWATER_TEST_CACHE")
    found = Path(named) if named else Path.home() / ".cache" / "headwater-tests"
    found.mkdir(parents=True, exist_ok=True)
    return found


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One process at a time makes the part `name`."""
    with (folder() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def once(name: str, fill: Callable[[Path], None]) -> Path:
    """The cache's folder `name`, filled by `fill` if it is not there yet.

    It appears whole or not at all: a run that is interrupted, or two at once, leave no half of it behind.
    """
    ready = folder() / name
    if ready.is_dir():
        return ready
    partial = folder() / f"{name}.partial-{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        fill(partial)
        partial.rename(ready)
    except OSError:
        # another run may have been quicker with the same thing
        if not ready.is_dir():
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return ready

"""Progress of long work: a bar where there is a terminal and `rich`, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

__all__ = ["progress"]

LINE_EVERY_SECONDS = 2.0


@contextmanager
def progress(
    title: str, line_every_seconds: float = LINE_EVERY_SECONDS
) -> Iterator[Callable[[int, int], None]]:
    """A function to call with (done, total) as often as one likes; all on stderr, stdout stays data."""
    if sys.stderr.isatty():
        try:
            from rich.console import Console
            from rich.progress import Progress
        except ModuleNotFoundError:
            pass
        else:
            with Progress(console=Console(stderr=True), transient=True) as bar:
                task = bar.add_task(title, total=None)
                yield lambda done, total: bar.update(task, completed=done, total=total)
            return
    yield _lines(title, line_every_seconds)


def _lines(title: str, every_seconds: float) -> Callable[[int, int], None]:
    spoken = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal spoken
        now = time.monotonic()
        if now - spoken >= every_seconds:
            spoken = now
            share = f" ({done * 100 // total} %)" if total else ""
            click.echo(f"{title}: {done:,} of {total:,}{share}", err=True)

    return tell

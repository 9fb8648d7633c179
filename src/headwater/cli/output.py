"""Output of commands: tables, JSON, sizes and times, and the progress of long work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import click
import msgspec

from headwater.formats.printable import printable_block, printable_line


def echo(text: str = "", *, err: bool = False) -> None:
    """Print text that may contain text of clients (G12)."""
    click.echo(printable_block(text), err=err)


def format_table(head: Sequence[str], rows: Sequence[Sequence[str | int]]) -> str:
    """Columns two spaces apart; whole numbers get separators and are right-aligned."""
    cells = [
        list(head),
        *[[f"{cell:,}" if isinstance(cell, int) else printable_line(cell) for cell in row] for row in rows],
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    right = [bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(head))]
    lines = [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]
    return "\n".join(lines)


def format_bytes(count: float) -> str:
    """`3.2 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_seconds(seconds: float) -> str:
    """`4.1 s`, `12 min`, `3.5 h`, `2.0 days`: one number, in the unit that fits."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} days"


def format_time(at: float) -> str:
    """UTC to the second; empty for the zero that means unknown."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if at else ""


def json_text(value: object) -> str:
    """Indented JSON of Structs, lists and mappings."""
    return printable_block(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


LINE_EVERY_SECONDS = 2.0


@contextmanager
def progress(
    title: str, line_every_seconds: float = LINE_EVERY_SECONDS
) -> Iterator[Callable[[int, int], None]]:
    """A function to call with (done, total) as often as one likes; stdout stays data.

    It draws a bar on stderr if that is a terminal and `rich` is installed, and prints lines otherwise.
    """
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
    printed_at = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal printed_at
        now = time.monotonic()
        if now - printed_at >= every_seconds:
            printed_at = now
            share = f" ({done * 100 // total} %)" if total else ""
            echo(f"{title}: {done:,} of {total:,}{share}", err=True)

    return report

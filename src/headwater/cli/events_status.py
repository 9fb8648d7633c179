"""The second half of `headwater status`: events on their way to tables."""

from __future__ import annotations

import click

from headwater.cli.tables import format_bytes, format_seconds, format_table, format_time
from headwater.log.event_stat import EventsStat

__all__ = ["print_events"]

MAX_OPEN = 20  # reasons that are listed; the others are counted


def print_events(found: EventsStat) -> None:
    """What waits, what became of it at each destination, and why something does not move."""
    waiting = sum(token.waiting_files for token in found.tokens) + found.replays
    click.echo()
    click.echo(
        f"events: {waiting:,} file(s) wait for the pipeline"
        + (f", the oldest for {format_seconds(found.oldest_seconds)}" if waiting else "")
        + f"; {found.archived_files:,} archived, {format_bytes(found.archived_bytes)}"
    )
    if found.tokens:
        rows = [
            (
                token.id,
                format_bytes(token.active_bytes),
                token.waiting_files,
                format_bytes(token.waiting_bytes),
            )
            for token in found.tokens
        ]
        click.echo(format_table(("token", "being written", "files waiting", "bytes waiting"), rows))
    if found.replays:
        click.echo(f"{found.replays:,} file(s) of rejects are to be tried again")
    if found.destinations:
        click.echo()
        results = [
            (
                each.id,
                each.files,
                each.events,
                each.rows,
                each.skipped,
                each.rejected,
                each.open_rejects,
                each.unmapped,
            )
            for each in found.destinations
        ]
        head = (
            "destination",
            "files",
            "events",
            "rows",
            "skipped",
            "rejected",
            "open rejects",
            "unmapped values",
        )
        click.echo(format_table(head, results))
        click.echo("events = rows + skipped + rejected, since the oldest file in the archive")
    if found.streams:
        click.echo()
        streams = [
            (
                each.id,
                "yes" if each.running else "no",
                each.rows + each.skipped + each.rejected,
                each.rows,
                each.skipped,
                each.rejected,
                each.missing,
                each.waiting,
            )
            for each in found.streams
        ]
        titles = ("stream", "running", "events", "rows", "skipped", "rejected", "missing", "waiting")
        click.echo(format_table(titles, streams))
        for each in found.streams:
            if each.error:
                click.echo(f"stream {each.id} waits: {each.error}")
    if (cycle := found.last_cycle) is not None:
        click.echo(
            f"last cycle: {format_time(cycle.at)}, {format_seconds(cycle.seconds)}, "
            f"{cycle.done:,} of {cycle.files:,} file(s) done"
        )
    reasons = [f"{pair.file} into {pair.destination}/{pair.table}: {pair.error}" for pair in found.open] or (
        cycle.errors if cycle is not None else []
    )
    for reason in reasons[:MAX_OPEN]:
        click.echo(f"not loaded: {reason}")
    if len(reasons) > MAX_OPEN:
        click.echo(f"and {len(reasons) - MAX_OPEN:,} more")

"""`headwater status`: what happened to every event (G3), beside a running server or without one."""

from __future__ import annotations

import time
from contextlib import closing

import click

from headwater.cli.options import as_json, log_folder, with_settings
from headwater.cli.output import echo, format_bytes, format_seconds, format_table, format_time, json_text
from headwater.cli.server.left_over_readers import left_over_readers
from headwater.errors import HeadwaterError, LogUnavailable
from headwater.formats.printable import printable_line
from headwater.log.files.awaited import awaited
from headwater.log.files.event_counts import EventsStat, stat_events
from headwater.log.queue.offline import LogStat, ReaderStat, stat
from headwater.log.rejects.rejects import rejects_path
from headwater.log.rejects.store import RejectReader
from headwater.log.rejects.totals import Dropped, Totals, is_acknowledged
from headwater.settings import Settings

MAX_OPEN = 20  # reasons that are listed; the others are counted


@click.command("status")
@as_json
@with_settings
def command(settings: Settings, as_json: bool) -> None:
    """Show what happened to every event, and what is waiting.

    For each reader: appended = delivered + rejected + dropped + waiting. For each destination: events =
    rows + skipped + rejected. Works beside a running server and without one.
    """
    folder = log_folder(settings)
    has_events = settings.events_dir.exists()
    if not folder.exists() and not has_events:
        raise HeadwaterError(
            f"{folder} does not exist: no server has run with this `data_dir`.",
            hint="Name the server's configuration with -c, or start the server with `headwater serve`.",
        )
    found = stat(folder) if folder.exists() else None
    events = stat_events(settings.events_dir, time.time()) if has_events else None
    rejects, damage = _rejects(settings)
    if as_json:
        content = {
            "data_dir": settings.data_dir,
            "log": found,
            "rejects": rejects.counts(),
            "rejects_dropped": list(rejects.dropped.values()),
            "rejects_damage": damage,
            "events": events,
        }
        echo(json_text(content))
        return
    if found is not None:
        _print(settings, found, rejects, damage)
    if events is not None:
        _print_events(events)
        _print_awaited(settings, events)


def _print_awaited(settings: Settings, events: EventsStat) -> None:
    """Print what the next rows wait for, and until when at the latest."""
    if (waiting := awaited(settings, events)) is None:
        return
    for token in waiting.open_files:
        echo(
            f"next: the file of token {token.id}, {format_bytes(token.active_bytes)}, is complete "
            f"{format_seconds(waiting.first_seconds)} after its first event; in a steady "
            f"flow after up to {format_seconds(waiting.longest_seconds)} (events.rotation_minutes)"
        )
    if waiting.doing:
        echo(f"next: the pipeline loads them; it is {waiting.doing}, since {format_time(waiting.since)}")
    else:
        echo("next: no pipeline runs that would load them; `headwater up` or `headwater pipeline run` does")


def _rejects(settings: Settings) -> tuple[Totals, str]:
    """The numbers of rejects, and why they are not known."""
    if not rejects_path(settings).exists():
        return Totals(), ""
    try:
        with closing(RejectReader(rejects_path(settings))) as rejects:
            return rejects.totals(), ""
    except LogUnavailable as error:
        return Totals(), f"{error.text} {error.hint}"


def _fate(gone: Dropped) -> str:
    if gone.reason == "hand":
        return "were removed by hand"
    if not is_acknowledged(gone.stage) and gone.reason != "damage":
        return "were dropped: beyond rejects_bytes"
    why = {
        "bytes": "beyond retention_bytes",
        "age": "older than retention_hours",
        "damage": "their file was damaged or removed",
    }
    if not is_acknowledged(gone.stage):
        return f"were dropped: {why[gone.reason]}"
    return f"were dropped, though acknowledged once: {why[gone.reason]}"


def _dropped(reader: ReaderStat) -> int:
    return reader.dropped_age + reader.dropped_bytes + reader.dropped_damage


def _print(settings: Settings, found: LogStat, rejects: Totals, damage: str) -> None:
    echo(f"headwater {'is running' if found.running else 'is not running'}; data in {settings.data_dir}")
    kept = f"positions {found.first:,} to {found.end - 1:,}" if found.end > found.first else "no events"
    echo(f"log: {kept}, {format_bytes(found.bytes)} in {len(found.partitions)} partition(s)")
    echo()
    if found.clock_ahead_seconds:
        echo(
            f"clock: {format_seconds(found.clock_ahead_seconds)} ahead of the time that was witnessed; "
            "events do not age by it until log.retention_hours have passed"
        )
    if found.readers:
        head = ("reader", "appended", "delivered", "rejected", "dropped", "waiting", "lag")
        rows = [
            (
                reader.name,
                reader.appended,
                reader.delivered,
                reader.rejected,
                _dropped(reader),
                reader.lag_events,
                format_seconds(reader.lag_seconds),
            )
            for reader in found.readers
        ]
        echo(format_table(head, rows))
        echo("appended = delivered + rejected + dropped + waiting")
    else:
        echo("no readers: no outlet has ever run on this log")
    for reader in found.readers:
        if _dropped(reader):
            echo(
                f"{reader.name} lost {reader.dropped_age:,} events to retention_hours, "
                f"{reader.dropped_bytes:,} to retention_bytes, {reader.dropped_damage:,} to damage"
            )
    for warning in left_over_readers((reader.name for reader in found.readers), settings):
        echo(warning)
    if found.dropped_unread:
        echo(f"{found.dropped_unread:,} event(s) were removed by retention before the log had a reader")
    echo()
    open_rejects = [f"{stage} {count:,}" for stage, count in rejects.counts().items()]
    echo(f"rejects: {damage or ', '.join(open_rejects) or 'none'}")
    for gone in rejects.dropped.values():
        echo(f"{gone.events:,} reject(s) of {gone.stage} {_fate(gone)}, last at {format_time(gone.at)}")
    echo(f"damaged files: {', '.join(found.damaged) or 'none'}")


def _print_events(found: EventsStat) -> None:
    """Print the pending events, the results at each destination, and why files or streams are not loaded."""
    waiting = sum(token.waiting_files for token in found.tokens) + found.replays
    echo()
    echo(
        f"events: {waiting:,} file(s) wait for the pipeline"
        + (f", the oldest for {format_seconds(found.oldest_seconds)}" if waiting else "")
        + f"; {found.archived_files:,} archived, {format_bytes(found.archived_bytes)}"
    )
    if found.tokens:
        head = ("token", "being written", "files waiting", "bytes waiting")
        rows = [
            (each.id, format_bytes(each.active_bytes), each.waiting_files, format_bytes(each.waiting_bytes))
            for each in found.tokens
        ]
        echo(format_table(head, rows))
    if found.replays:
        echo(f"{found.replays:,} file(s) of rejects wait for their replay")
    for gone in found.dropped_rejects:
        echo(f"{gone.events:,} reject(s) of {gone.stage} {_fate(gone)}, last at {format_time(gone.at)}")
    if found.destinations:
        echo()
        titles = (
            "destination",
            "files",
            "events",
            "rows",
            "skipped",
            "rejected",
            "open rejects",
            "unmapped values",
        )
        results = [
            (to.id, to.files, to.events, to.rows, to.skipped, to.rejected, to.open_rejects, to.unmapped)
            for to in found.destinations
        ]
        echo(format_table(titles, results))
        echo("events = rows + skipped + rejected, since the oldest file in the archive")
        for loaded in found.destinations:
            if loaded.open_files:
                echo(
                    f"{loaded.id}: {loaded.open_rows:,} more row(s), "
                    f"of {loaded.open_files:,} file(s) that other tables lack"
                )
    if found.streams:
        echo()
        streams = []
        for to in found.streams:
            events = to.rows + to.skipped + to.rejected
            is_running = "yes" if to.running else "no"
            streams.append(
                (to.id, is_running, events, to.rows, to.skipped, to.rejected, to.missing, to.waiting)
            )
        titles = ("stream", "running", "events", "rows", "skipped", "rejected", "missing", "waiting")
        echo(format_table(titles, streams))
        for each in found.streams:
            if each.error:
                echo(f"stream {each.id} waits: {printable_line(each.error)}")
    for bad in found.damaged[:MAX_OPEN]:
        echo(f"damaged: {bad.file}: {bad.damage}")
    if len(found.damaged) > MAX_OPEN:
        echo(f"and {len(found.damaged) - MAX_OPEN:,} more damaged file(s)")
    if (cycle := found.last_cycle) is not None:
        echo(
            f"last cycle: {format_time(cycle.at)}, {format_seconds(cycle.seconds)}, "
            f"{cycle.done:,} of {cycle.files:,} file(s) done"
        )
    reasons = [f"{pair.file} into {pair.destination}/{pair.table}: {pair.error}" for pair in found.open] or (
        cycle.errors if cycle is not None else []
    )
    for reason in reasons[:MAX_OPEN]:
        echo(f"not loaded: {printable_line(reason)}")
    if len(reasons) > MAX_OPEN:
        echo(f"and {len(reasons) - MAX_OPEN:,} more")

"""`headwater status`: what became of every event (G3), beside a running server or without one."""

from __future__ import annotations

import time

import click

from headwater.cli.events_status import print_events
from headwater.cli.options import as_json, log_folder, open_rejects, rejects_path, with_settings
from headwater.cli.tables import format_bytes, format_seconds, format_table, json_text
from headwater.errors import HeadwaterError
from headwater.log.event_stat import stat_events
from headwater.log.inspect import LogStat, ReaderStat, stat
from headwater.settings import Settings

__all__ = ["command"]


@click.command("status")
@as_json
@with_settings
def command(settings: Settings, as_json: bool) -> None:
    """Say what became of every event, and what is waiting.

    For each reader: appended = delivered + rejected + dropped + waiting. For each destination: events =
    rows + skipped + rejected. Works beside a running server and without one.
    """
    folder = log_folder(settings)
    has_events = settings.events_dir.exists()
    if not folder.exists() and not has_events:
        raise HeadwaterError(
            f"{folder} does not exist: nothing was ever served from this `data_dir`.",
            hint="Name the server's configuration with -c, or start it with `headwater serve`.",
        )
    found = stat(folder) if folder.exists() else None
    events = stat_events(settings.events_dir, time.time()) if has_events else None
    rejects = _rejects(settings)
    if as_json:
        content = {"data_dir": settings.data_dir, "log": found, "rejects": rejects, "events": events}
        click.echo(json_text(content))
        return
    if found is not None:
        _print(settings, found, rejects)
    if events is not None:
        print_events(events)


def _rejects(settings: Settings) -> dict[str, int]:
    if not rejects_path(settings).exists():
        return {}
    rejects = open_rejects(settings)
    try:
        return rejects.counts()
    finally:
        rejects.close()


def _dropped(reader: ReaderStat) -> int:
    return reader.dropped_age + reader.dropped_bytes + reader.dropped_damage


def _print(settings: Settings, found: LogStat, rejects: dict[str, int]) -> None:
    click.echo(
        f"headwater {'is running' if found.running else 'is not running'}; data in {settings.data_dir}"
    )
    kept = f"positions {found.first:,} to {found.end - 1:,}" if found.end > found.first else "no events"
    click.echo(f"log: {kept}, {format_bytes(found.bytes)} in {len(found.partitions)} partition(s)")
    click.echo()
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
        click.echo(format_table(head, rows))
        click.echo("appended = delivered + rejected + dropped + waiting")
    else:
        click.echo("no readers: no outlet has ever run on this log")
    _print_drops(found)
    if found.dropped_unread:
        click.echo(f"{found.dropped_unread:,} event(s) went by retention before any reader was there")
    click.echo()
    click.echo(f"rejects: {', '.join(f'{stage} {count:,}' for stage, count in rejects.items()) or 'none'}")
    click.echo(f"damaged files: {', '.join(found.damaged) or 'none'}")


def _print_drops(found: LogStat) -> None:
    for reader in found.readers:
        if _dropped(reader):
            click.echo(
                f"{reader.name} lost {reader.dropped_age:,} by retention_hours, "
                f"{reader.dropped_bytes:,} by retention_bytes, {reader.dropped_damage:,} by damage"
            )

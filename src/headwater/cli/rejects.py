"""`headwater rejects`: events that were refused, with the reason, and what to do with them (G6)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import click
import msgspec

from headwater.cli.options import as_json, open_rejects, rejects_path, with_settings
from headwater.cli.output import format_table, format_time, json_text
from headwater.log.rejects.destination_rejects import PREFIX, FailedEvents, NumberedReject
from headwater.log.rejects.store import Reject
from headwater.settings import Settings

__all__ = ["command"]

REASON_WIDTH = 70


@click.group("rejects")
def command() -> None:
    """List, show, replay or drop events that were refused.

    Works beside a running server; a replay is carried out by the server, at once or when it next runs. Those
    of a destination (`destination:<id>`) are replayed by the pipeline, all at once.
    """


def _body(body: bytes) -> Any:
    """The event as JSON where it is JSON, else as text: some were refused for just that reason."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return body.decode(errors="replace")
    return msgspec.Raw(body)


def _plain(reject: Reject) -> dict[str, Any]:
    return msgspec.structs.asdict(reject) | {"body": _body(reject.body)}


@command.command("list")
@click.option("--stage", help="Only of this stage: `gateway`, `outlet:<name>` or `destination:<id>`.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(min=1), help="At most so many.")
@click.option("--after", default=0, metavar="ID", help="Only ids above this one, for the next page.")
@as_json
@with_settings
def list_rejects(settings: Settings, stage: str | None, limit: int, after: int, as_json: bool) -> None:
    """List rejects, oldest first."""
    found: Sequence[Reject] = []
    total = 0
    if _is_stored(settings, stage):
        rejects = open_rejects(settings)
        try:
            found = rejects.list(stage, limit=limit, after=after)
            total = sum(count for name, count in rejects.counts().items() if stage in (None, name))
        finally:
            rejects.close()
    failed: list[NumberedReject] = []
    if _is_failed(stage):
        failed = list(islice(FailedEvents(settings, stage), max(0, limit - len(found))))
    if as_json:
        click.echo(json_text([*map(_plain, found), *(each.plain() for each in failed)]))
        return
    if not found and not failed:
        click.echo("no rejects")
        return
    rows = [
        (
            str(reject.id),
            format_time(reject.at),
            reject.stage,
            "replay" if reject.replay_requested else "",
            _short(reject.reason),
        )
        for reject in found
    ]
    rows += [(each.id, each.error.at, each.stage, "", _short(each.error.error)) for each in failed]
    click.echo(format_table(("id", "at", "stage", "asked", "reason"), rows))
    if len(found) == limit and total > len(found):
        click.echo(f"There may be more: headwater rejects list --after {found[-1].id}")
    elif failed and len(found) + len(failed) == limit:
        click.echo(f"There may be more: headwater rejects list --limit {10 * limit}")


def _short(reason: str) -> str:
    return reason if len(reason) <= REASON_WIDTH else reason[: REASON_WIDTH - 1] + "…"


def _is_failed(stage: str | None) -> bool:
    """Whether rejects of destinations are meant, too."""
    return stage is None or stage.startswith(PREFIX)


def _is_stored(settings: Settings, stage: str | None) -> bool:
    """Whether rejects of gateway and outlets are meant, too; a pipeline alone has no such store."""
    if stage is not None:
        return not stage.startswith(PREFIX)
    return rejects_path(settings).exists() or not settings.events_dir.exists()


@command.command("show")
@click.argument("id")
@as_json
@with_settings
def show(settings: Settings, id: str, as_json: bool) -> None:
    """Show one reject whole: why, when, and the event as it came. ID is as `list` shows it."""
    if not id.isdecimal():
        _show_failed(FailedEvents(settings).get(id), as_json)
        return
    rejects = open_rejects(settings)
    try:
        reject = rejects.get(int(id))
    finally:
        rejects.close()
    if as_json:
        click.echo(json_text(_plain(reject)))
        return
    click.echo(
        f"reject {reject.id} of {reject.stage}, at {format_time(reject.at)}, tried {reject.tries} time(s)"
    )
    if reject.position is not None:
        click.echo(f"position {reject.position}, received at {format_time(reject.received_at)}")
    click.echo(f"reason: {reject.reason}")
    for detail in reject.details:
        click.echo("  " + "; ".join(f"{key}: {value}" for key, value in detail.items()))
    body = _body(reject.body)
    click.echo(msgspec.json.format(bytes(body), indent=2) if isinstance(body, msgspec.Raw) else body)


def _show_failed(reject: NumberedReject, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(reject.plain()))
        return
    error = reject.error
    click.echo(f"reject {reject.id} of {reject.stage}, at {error.at or 'an unknown time'}")
    click.echo(f"from {error.source or 'an unknown file'}; event id {error.event_id or 'unknown'}")
    click.echo(f"reason: {error.error}")
    body = _body(error.line())
    click.echo(msgspec.json.format(bytes(body), indent=2) if isinstance(body, msgspec.Raw) else body)


def _chosen(ids: tuple[int, ...], everything: bool, stage: str | None) -> None:
    if bool(ids) == (everything or stage is not None):
        raise click.UsageError("Give either ids, or --all, or --stage STAGE.")


@command.command("replay")
@click.argument("ids", nargs=-1, type=int)
@click.option("--all", "everything", is_flag=True, help="All rejects.")
@click.option("--stage", help="All rejects of this stage.")
@as_json
@with_settings
def replay(
    settings: Settings, ids: tuple[int, ...], everything: bool, stage: str | None, as_json: bool
) -> None:
    """Ask the server to try rejects again, after the fix.

    Those of the gateway are checked again and appended; those of an outlet are sent to that outlet alone;
    those of a destination are loaded there by the next `headwater pipeline run`. One that fails again stays,
    with the new reason.
    """
    _chosen(ids, everything, stage)
    count = of_pipeline = 0
    if ids or _is_stored(settings, stage):
        rejects = open_rejects(settings)
        try:
            for id in ids:
                rejects.get(id)
            count = rejects.request_replay(list(ids) if ids else None, stage)
        finally:
            rejects.close()
    if not ids and _is_failed(stage):
        of_pipeline = FailedEvents(settings, stage).replay()
    if as_json:
        click.echo(json_text({"requested": count + of_pipeline}))
        return
    if count or not of_pipeline:
        click.echo(f"{count:,} replay(s) requested of the server")
    if of_pipeline:
        click.echo(f"{of_pipeline:,} replay(s) requested of the pipeline")


@command.command("drop")
@click.argument("ids", nargs=-1, type=int)
@click.option("--all", "everything", is_flag=True, help="All rejects.")
@click.option("--stage", help="All rejects of this stage.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json
@with_settings
def drop(
    settings: Settings, ids: tuple[int, ...], everything: bool, stage: str | None, yes: bool, as_json: bool
) -> None:
    """Remove rejects for good."""
    _chosen(ids, everything, stage)
    failed = FailedEvents(settings, stage) if not ids and _is_failed(stage) else None
    rejects = open_rejects(settings) if ids or _is_stored(settings, stage) else None
    count = 0
    try:
        if not yes:
            click.confirm("Remove them for good?", abort=True, err=True)
        if rejects is not None and ids:
            for id in ids:
                rejects.get(id)
            count = rejects.drop(list(ids))
        elif rejects is not None:
            while found := rejects.list(stage, limit=1000):
                count += rejects.drop([reject.id for reject in found])
        if failed is not None:
            count += failed.drop()
    finally:
        if rejects is not None:
            rejects.close()
    click.echo(json_text({"dropped": count}) if as_json else f"{count:,} reject(s) removed")

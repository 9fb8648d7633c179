"""`headwater rejects`: lists, shows, exports, replays and drops rejected events (G6)."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

import click
import msgspec

from headwater.cli.options import Duration, as_json, with_settings
from headwater.cli.output import echo, format_table, format_time, json_text
from headwater.formats.printable import printable_line
from headwater.log.rejects.rejects import ListedReject, Rejects, json_or_text
from headwater.log.rejects.store import Reject
from headwater.log.rejects.totals import DESTINATION_PREFIX
from headwater.settings import Settings

REASON_WIDTH = 70


@click.group("rejects")
def command() -> None:
    """List, show, export, replay or drop rejected events.

    Works beside a running server; a replay is carried out by the server, at once or when it next runs. Those
    of a destination (`destination:<id>`) are replayed by the pipeline, all at once.
    """


def _with_filters(function: Callable[..., None]) -> Callable[..., None]:
    """Add `--reason` and `--older`."""
    age = click.option("--older", type=Duration(), help="Only those from longer ago than `12h` or `7d`.")
    reason = click.option("--reason", default="", metavar="TEXT", help="Only those whose reason contains it.")
    return reason(age(function))


def _before(older: float | None) -> float | None:
    return None if older is None else time.time() - older


@command.command("list")
@click.option("--stage", help="Only of this stage: `gateway`, `outlet:<name>` or `destination:<id>`.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(min=1), help="Most rejects.")
@click.option("--after", default="", metavar="ID", help="Only those after this id, for the next page.")
@_with_filters
@as_json
@with_settings
def list_rejects(
    settings: Settings,
    stage: str | None,
    limit: int,
    after: str,
    reason: str,
    older: float | None,
    as_json: bool,
) -> None:
    """List rejects, oldest first."""
    with closing(Rejects.open(settings, read_only=True)) as rejects:
        if reason or older is not None:
            if after:
                raise click.UsageError("--after is not for lists by --reason or --older; raise --limit.")
            selected = rejects.select(stage, reason=reason, before=_before(older))
            found: Sequence[ListedReject] = [*islice(selected, limit)]
        else:
            found = rejects.list(stage, limit=limit + 1, after=after)
        counts = {} if found else rejects.counts()
    shown = found[:limit]
    if as_json:
        echo(json_text([each.as_json() for each in shown]))
        return
    if not shown:
        others = f"; stages with rejects: {', '.join(sorted(counts))}" if counts and not after else ""
        echo(f"no rejects{f' of {stage}' if stage else ''}{' after ' + after if after else ''}{others}")
        return
    rows = [
        (
            each.id,
            format_time(each.at) if isinstance(each.at, float) else each.at,
            each.stage,
            "replay" if each.replay_requested else "",
            _short(each.reason),
        )
        for each in shown
    ]
    echo(format_table(("id", "at", "stage", "requested", "reason"), rows))
    if len(found) > limit:
        echo(f"There are more: headwater rejects list --after {shown[-1].id}")


def _short(reason: str) -> str:
    return reason if len(reason) <= REASON_WIDTH else reason[: REASON_WIDTH - 1] + "…"


@command.command("show")
@click.argument("id")
@as_json
@with_settings
def show(settings: Settings, id: str, as_json: bool) -> None:
    """Show one reject: its reason, time, details and event. `list` shows the ID."""
    with closing(Rejects.open(settings, read_only=True)) as rejects:
        found = rejects.get(id)
    if as_json:
        echo(json_text(found.as_json()))
        return
    record = found.record
    if isinstance(record, Reject):
        echo(f"reject {found.id} of {found.stage}, at {format_time(record.at)}, tried {found.tries} time(s)")
        if record.position is not None:
            echo(f"position {record.position}, received at {format_time(record.received_at)}")
    else:
        echo(f"reject {found.id} of {found.stage}, at {record.at or 'an unknown time'}")
        id = printable_line(record.event_id) or "unknown"
        echo(f"from {record.source or 'an unknown file'}; event id {id}")
    echo(f"reason: {printable_line(found.reason)}")
    for detail in found.details:
        echo("  " + printable_line("; ".join(f"{key}: {value}" for key, value in detail.items())))
    body = json_or_text(found.body)
    echo(msgspec.json.format(bytes(body), indent=2).decode() if isinstance(body, msgspec.Raw) else body)


def _numbers(_context: click.Context, _parameter: click.Parameter, ids: tuple[str, ...]) -> tuple[int, ...]:
    for id in ids:
        destination, _, number = id.rpartition(":")
        if destination and number.isdecimal():
            raise click.BadParameter(
                f"{id} is a reject of a destination; those are replayed and dropped together: "
                f"--stage destination:{destination}"
            )
        if not (id.isascii() and id.isdecimal()):
            raise click.BadParameter(f"{id} is not the id of a reject; `headwater rejects list` shows them.")
    return tuple(map(int, ids))


def _selection(function: Callable[..., None]) -> Callable[..., None]:
    """Add ids, `--all`, `--stage` and filters to a command: which rejects it is about."""

    @click.argument("ids", nargs=-1, callback=_numbers)
    @click.option("--all", "everything", is_flag=True, help="All rejects.")
    @click.option("--stage", help="All rejects of this stage.")
    @_with_filters
    @functools.wraps(function)
    def wrapper(
        settings: Settings,
        ids: tuple[int, ...],
        everything: bool,
        stage: str | None,
        reason: str,
        older: float | None,
        **options: bool,
    ) -> None:
        is_filtered = bool(reason) or older is not None
        if bool(ids) == (everything or stage is not None or is_filtered):
            raise click.UsageError("Give either ids, or --all, --stage STAGE, --reason TEXT or --older AGE.")
        if is_filtered and stage is not None and stage.startswith(DESTINATION_PREFIX):
            raise click.UsageError(
                "Rejects of a destination are replayed and dropped together, without --reason and --older."
            )
        with closing(Rejects.open(settings)) as rejects:
            for id in ids:
                rejects.get(str(id))  # raises RejectNotFound before any reject is changed
            if is_filtered:
                # without a match no id, which would mean all of the stage: one that no reject has
                ids = tuple(rejects.stored_ids(stage, reason=reason, before=_before(older))) or (0,)
            function(rejects, ids, stage, **options)

    return wrapper


@command.command("replay")
@as_json
@with_settings
@_selection
def replay(rejects: Rejects, ids: tuple[int, ...], stage: str | None, as_json: bool) -> None:
    """Request another try of rejects, after the fix.

    Those of the gateway are checked again and appended; those of an outlet are sent to that outlet alone;
    those of a destination are loaded there by the next `headwater pipeline run`. One that fails again stays,
    with the new reason.
    """
    requested = rejects.request_replay(ids, stage)
    if as_json:
        echo(json_text({"requested": sum(requested)}))
        return
    if requested.server or not requested.pipeline:
        echo(f"{requested.server:,} replay(s) requested of the server")
    if requested.pipeline:
        echo(f"{requested.pipeline:,} replay(s) requested of the pipeline")


@command.command("drop")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json
@with_settings
@_selection
def drop(rejects: Rejects, ids: tuple[int, ...], stage: str | None, yes: bool, as_json: bool) -> None:
    """Remove rejects for good."""
    if not yes:
        click.confirm("Remove them for good?", abort=True, err=True)
    count = rejects.drop(ids, stage)
    echo(json_text({"dropped": count}) if as_json else f"{count:,} reject(s) removed")


@command.command("export")
@click.option("--stage", help="Only of this stage: `gateway`, `outlet:<name>` or `destination:<id>`.")
@_with_filters
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File; else stdout.")
@with_settings
def export(
    settings: Settings, stage: str | None, reason: str, older: float | None, output: Path | None
) -> None:
    """Write rejects, oldest first, as one JSON object per line, with the event in each."""
    count = 0
    with closing(Rejects.open(settings, read_only=True)) as rejects:
        target = output.open("wb") if output is not None else sys.stdout.buffer
        try:
            for each in rejects.select(stage, reason=reason, before=_before(older)):
                target.write(msgspec.json.encode(each.as_json()).translate(None, b"\r\n") + b"\n")
                count += 1
            target.flush()
        finally:
            if output is not None:
                target.close()
    echo(f"{count:,} reject(s) exported", err=True)

"""`headwater log`: inspects the log, beside a running server or without one."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from headwater.cli.options import as_json, log_folder, with_settings
from headwater.cli.output import echo, format_bytes, format_table, format_time, json_text, progress
from headwater.errors import HeadwaterError, LogUnavailable
from headwater.events import Event
from headwater.formats.printable import printable_block
from headwater.log.files.layout import EventFolder
from headwater.log.last_start import LastStart, events_beyond, rejects_beyond
from headwater.log.queue import offline
from headwater.log.rejects.rejects import rejects_path
from headwater.log.rejects.store import RejectReader, RejectStore
from headwater.log.streams import verify_queue
from headwater.settings import Settings


@click.group("log")
def command() -> None:
    """Inspect the log; while no server runs, change it: forget, rename, trim.

    The first three only read, and may run beside the server.
    """


def _folder(settings: Settings) -> Path:
    folder = log_folder(settings)
    if not folder.exists():
        raise HeadwaterError(
            f"{folder} does not exist.",
            hint="Name the server's configuration with -c, or run `headwater serve`.",
        )
    return folder


@command.command("stat")
@as_json
@with_settings
def stat(settings: Settings, as_json: bool) -> None:
    """Show partitions, readers and damage."""
    found = offline.stat(_folder(settings))
    if as_json:
        echo(json_text(found))
        return
    rows = [
        (
            it.first,
            it.end - it.first,
            format_bytes(it.bytes),
            format_time(it.first_at),
            format_time(it.last_at),
        )
        for it in found.partitions
    ]
    echo(format_table(("first", "events", "size", "from", "to"), rows))
    echo()
    readers = [(reader.name, reader.position, reader.lag_events) for reader in found.readers]
    echo(format_table(("reader", "position", "waiting"), readers))
    for path in found.damaged:
        echo(f"damaged: {path}")


@command.command("verify")
@as_json
@with_settings
@click.pass_context
def verify(ctx: click.Context, settings: Settings, as_json: bool) -> None:
    """Read every event and reject, and check their checksums; exit code 1 if anything is wrong.

    The queues of destinations in stream mode and their cursors are read too. `headwater pipeline verify`
    reads the event files.
    """
    with progress("verify") as report:
        problems = offline.verify(_folder(settings), report)
    for queue in EventFolder(settings.events_dir).queues().values():
        with progress(f"verify {queue.name}") as report:
            problems += verify_queue(queue, report)
    problems += _verify_rejects(rejects_path(settings))
    if as_json:
        echo(json_text({"ok": not problems, "problems": problems}))
    else:
        for problem in problems:
            echo(_line(problem))
        echo(f"{len(problems)} problem(s) found" if problems else "all events are readable and intact")
    if problems:
        ctx.exit(1)


def _verify_rejects(path: Path) -> list[offline.Finding]:
    if not path.exists():
        return []
    try:
        with closing(RejectReader(path)) as rejects:
            return [offline.Finding(path.name, text) for text in rejects.problems()]
    except LogUnavailable as error:
        return [offline.Finding(path.name, error.text)]


def _line(problem: msgspec.Struct) -> str:
    return ", ".join(f"{key}: {value}" for key, value in msgspec.structs.asdict(problem).items())


@command.command("export")
@click.option("--first", type=click.IntRange(min=1), help="First position; default: the oldest in the log.")
@click.option("--last", type=click.IntRange(min=1), help="Last position; default: the newest.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File; else stdout.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Write position and time with each event: {position, received_at, event}.",
)
@with_settings
def export(
    settings: Settings, first: int | None, last: int | None, output: Path | None, as_json: bool
) -> None:
    """Write the events in order, one per line: their bytes, except to a terminal, which gets escapes."""
    folder = _folder(settings)
    known = offline.stat(folder)
    total = max(0, min(last or known.end - 1, known.end - 1) - max(first or 1, known.first) + 1)
    count = 0
    with progress("export") as report, _target(output) as target:
        for event in offline.export(folder, first, last):
            line = _envelope(event) if as_json else _one_line(event.body)
            if output is None and sys.stdout.isatty():
                line = printable_block(line.decode(errors="backslashreplace")).encode()
            target.write(line)
            count += 1
            report(count, total)
    echo(f"{count:,} event(s) exported", err=True)


@contextmanager
def _target(output: Path | None) -> Iterator[BinaryIO]:
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with output.open("wb") as target:
        yield target


def _one_line(body: bytes) -> bytes:
    if b"\n" in body or b"\r" in body:
        # a line break can only be white space between values here: inside a string JSON must escape it
        body = msgspec.json.format(body, indent=-1)
    return body + b"\n"


def _envelope(event: Event) -> bytes:
    line = {
        "position": event.position,
        "received_at": event.received_at,
        "event": msgspec.Raw(_one_line(event.body)[:-1]),
    }
    return msgspec.json.encode(line) + b"\n"


def _known_reader(folder: Path, reader: str) -> None:
    known = [found.name for found in offline.stat(folder).readers]
    if reader not in known:
        raise HeadwaterError(
            f"No reader is called {reader}.", hint=f"Known are: {', '.join(known) or 'none'}."
        )


@command.command("forget")
@click.argument("reader")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json
@with_settings
def forget(settings: Settings, reader: str, yes: bool, as_json: bool) -> None:
    """Remove the cursor of a reader whose outlet was removed, so that the log no longer keeps events for it.

    The server must not be running.
    """
    from headwater.log.queue.log import Log

    folder = _folder(settings)
    _known_reader(folder, reader)
    if not yes:
        click.confirm(
            f"Remove the cursor of {reader}? Its waiting events will not be sent.", abort=True, err=True
        )
    log = Log.open(folder, settings.log)
    try:
        log.forget(reader)
    finally:
        log.close()
    echo(json_text({"forgotten": reader}) if as_json else f"{reader} is forgotten")


@command.command("rename")
@click.argument("reader")
@click.argument("name")
@as_json
@with_settings
def rename(settings: Settings, reader: str, name: str, as_json: bool) -> None:
    """Give the cursor and the rejects of an outlet that has another name in the settings now to that name.

    Without it the outlet of the new name begins at the oldest event that is kept, and sends again what the
    old one has sent. The server must not be running.
    """
    from headwater.log.queue.log import Log

    folder = _folder(settings)
    _known_reader(folder, reader)
    if name in (found.name for found in offline.stat(folder).readers):
        raise HeadwaterError(
            f"The reader {name} has a cursor already.",
            hint=f"Remove the one that is not wanted: headwater log forget {reader}",
        )
    log = Log.open(folder, settings.log)
    try:
        if rejects_path(settings).exists():  # first: a repeated command finds the reader, and goes on
            store = RejectStore(rejects_path(settings), max_bytes=settings.log.rejects_bytes)
            with closing(store) as rejects:
                rejects.rename_stage(f"outlet:{reader}", f"outlet:{name}")
        log.rename(reader, name)
    finally:
        log.close()
    echo(json_text({"renamed": reader, "name": name}) if as_json else f"{reader} is {name} now")


@command.command("trim")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json
@with_settings
def trim(settings: Settings, yes: bool, as_json: bool) -> None:
    """Drop the events that are beyond `log.retention_hours` and `log.retention_bytes`, delivered or not.

    The rejects of outlets that are beyond them, too. The server refuses to start with lower limits than
    before while events wait or rejects are open that are beyond them; this command drops and counts them.
    The server must not be running.
    """
    from headwater.log.queue.log import Log

    folder = _folder(settings)
    before = _dropped(folder)
    if not yes:
        count, refused = events_beyond(offline.stat(folder), settings.log), rejects_beyond(settings)
        text = f"Drop {count:,} event(s) that are not delivered yet, and {refused:,} reject(s) of outlets?"
        click.confirm(text, abort=True, err=True)
    log = Log.open(folder, settings.log)
    try:
        log.collect()
        refused = _trim_rejects(settings)
    finally:
        log.close()
    if (last := LastStart.load(Path(settings.data_dir))) is not None:
        limits = settings.log
        msgspec.structs.replace(
            last, retention_hours=limits.retention_hours, retention_bytes=limits.retention_bytes
        ).save(Path(settings.data_dir))
    dropped = {name: count - before.get(name, 0) for name, count in _dropped(folder).items()}
    if as_json:
        echo(json_text({"dropped": dropped, "rejects": refused}))
        return
    if refused:
        echo(f"{refused:,} reject(s) of outlets dropped")
    for name, count in dropped.items():
        echo(f"{name}: {count:,} event(s) dropped")
    echo("the log is within its limits")


def _trim_rejects(settings: Settings) -> int:
    if not (path := rejects_path(settings)).exists():
        return 0
    limits = settings.log
    store = RejectStore(
        path,
        max_bytes=limits.rejects_bytes,
        retention_bytes=limits.retention_bytes,
        retention_hours=limits.retention_hours,
    )
    with closing(store) as rejects:
        return rejects.trim(time.time())


def _dropped(folder: Path) -> dict[str, int]:
    return {each.name: each.dropped_age + each.dropped_bytes for each in offline.stat(folder).readers}

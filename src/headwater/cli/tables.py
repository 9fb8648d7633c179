"""`headwater tables`: work on the tables of destinations."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing
from typing import Any

import click
import msgspec

from headwater.cli.options import Duration, as_json, with_settings
from headwater.cli.output import echo, json_text
from headwater.cli.server.process import configure_logging
from headwater.cli.server.signals import Signals
from headwater.errors import HeadwaterError, SettingsError
from headwater.settings import DestinationSettings, Settings

logger = logging.getLogger(__name__)


@click.group("tables")
def command() -> None:
    """Heal columns of tables, and maintain their files."""


@command.command("heal")
@click.argument("table")
@click.option("--destination", "id", metavar="ID", help="The destination; needed if there are several.")
@click.option(
    "--widen",
    is_flag=True,
    help="First give columns a wider type: decimal or double, or text, so that all values fit.",
)
@as_json
@with_settings
def heal(settings: Settings, table: str, id: str | None, widen: bool, as_json: bool) -> None:
    """Move values of `_unmapped_data` into the columns that hold them now.

    Of numbers only those move that their column holds exactly; a column that has a value keeps it. One
    transaction, under the table's lock; it may be repeated.
    """
    from headwater.destinations.base import load_destination
    from headwater.destinations.locks import load_locks

    chosen = _destination(settings, id)
    locks = load_locks(settings.pipeline.lock, settings.locks_dir)
    with closing(load_destination(chosen)) as destination:
        destination.connect()
        with locks.hold(chosen.id, table):
            healed = destination.heal(table, widen=widen, max_rows=chosen.max_widen_rows)
    if as_json:
        echo(json_text(healed))
        return
    for column, kind in healed.widened.items():
        echo(f"{column} is {kind} now")
    echo(f"{healed.values:,} value(s) of {healed.rows:,} row(s) moved")
    for name, count in sorted(healed.left.items()):
        echo(f"{count:,} value(s) of {name} stay in _unmapped_data")


@command.command("maintain")
@click.argument("tables", nargs=-1)
@click.option("--destination", "id", metavar="ID", help="The destination; default: all that have files.")
@click.option(
    "--keep",
    "keep_seconds",
    type=Duration(),
    default="168h",
    show_default=True,
    help="Versions and files younger than this stay: readers may use them. At least an hour.",
)
@click.option("--every", type=Duration(), help="Keep running: once every `30m` or `6h`.")
@as_json
@with_settings
def maintain(
    settings: Settings,
    tables: tuple[str, ...],
    id: str | None,
    keep_seconds: float,
    every: float | None,
    as_json: bool,
) -> None:
    """Join small files of tables in Delta or Iceberg, and remove old versions and unnamed files.

    Works beside running pipelines, also of other machines: a commit of either is repeated if the other one
    comes first. Tables of other programs are left alone. SIGTERM or Ctrl-C stops --every after the table in
    work.
    """
    if keep_seconds < 3600:
        raise click.UsageError("--keep is at least 1h: a load under way has files that no version names yet.")
    chosen = [each for each in settings.destinations if id in (None, each.id)]
    if not chosen:
        _destination(settings, id)
    configure_logging(settings)
    stopping = threading.Event()
    if every is not None:
        Signals(stopping.set, "after the table in work")
    while True:
        began = time.monotonic()
        failed = False
        results: list[dict[str, Any]] = []
        for each in chosen:
            failed = _maintain(each, tables, keep_seconds, as_json, stopping, results) or failed
        if as_json:
            echo(json_text(results))
        if every is None:
            if failed:
                raise SystemExit(1)
            return
        if stopping.wait(max(0.0, began + every - time.monotonic())):
            return


def _maintain(
    chosen: DestinationSettings,
    tables: tuple[str, ...],
    keep_seconds: float,
    as_json: bool,
    stopping: threading.Event,
    results: list[dict[str, Any]],
) -> bool:
    """Maintains tables of one destination; whether a table failed, which holds back no other."""
    from headwater.destinations.base import load_destination

    failed = False
    with closing(load_destination(chosen)) as destination:
        try:
            destination.connect()
            found = destination.maintained_tables()
        except HeadwaterError as error:
            logger.error("destination %s: %s", chosen.id, error)
            return True
        for name in [each for each in found if not tables or each in tables]:
            if stopping.is_set():
                break
            try:
                done = destination.maintain(name, keep_seconds=keep_seconds)
            except HeadwaterError as error:
                logger.error("destination %s, table %s: %s", chosen.id, name, error)
                failed = True
                continue
            results.append({"destination": chosen.id, "table": name, **msgspec.structs.asdict(done)})
            if not as_json:
                echo(
                    f"{chosen.id}/{name}: {done.joined:,} file(s) joined into {done.written:,}, "
                    f"{done.expired:,} version(s) expired, {done.removed:,} file(s) removed"
                )
        for name in tables:
            if name not in found:
                logger.error("destination %s: it has no table %s to maintain.", chosen.id, name)
                failed = True
    return failed


def _destination(settings: Settings, id: str | None) -> DestinationSettings:
    found = [each for each in settings.destinations if id is None or each.id == id]
    if len(found) != 1:
        names = ", ".join(each.id for each in settings.destinations) or "none is configured"
        raise SettingsError([f"choose one destination by `--destination`: {names}"])
    return found[0]

"""`headwater tables`: work on the tables of destinations."""

from __future__ import annotations

from contextlib import closing

import click

from headwater.cli.options import as_json, with_settings
from headwater.cli.output import echo, json_text
from headwater.errors import SettingsError
from headwater.settings import DestinationSettings, Settings


@click.group("tables")
def command() -> None:
    """Move values of `_unmapped_data` into columns that hold them now."""


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


def _destination(settings: Settings, id: str | None) -> DestinationSettings:
    found = [each for each in settings.destinations if id is None or each.id == id]
    if len(found) != 1:
        names = ", ".join(each.id for each in settings.destinations) or "none is configured"
        raise SettingsError([f"choose one destination by `--destination`: {names}"])
    return found[0]

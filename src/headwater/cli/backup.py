"""`headwater backup`: copies the data folder, beside running processes or without them."""

from __future__ import annotations

from pathlib import Path

import click

from headwater.cli.options import as_json, with_settings
from headwater.cli.output import echo, format_bytes, json_text
from headwater.log.backup import back_up
from headwater.settings import Settings


@click.command("backup")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--archive/--no-archive", "with_archive", default=True, help="With processed event files, or not."
)
@as_json
@with_settings
def command(settings: Settings, folder: Path, with_archive: bool, as_json: bool) -> None:
    """Copy the data folder into a new FOLDER, beside a running server or without one.

    Every event that was acknowledged before the command is in the copy, unless all receivers have it. Tables
    are not: back up the warehouse by its own means, before or after. `headwater restore` puts it back.
    """
    made = back_up(Path(settings.data_dir), settings.events_dir, folder, with_archive=with_archive)
    if as_json:
        echo(json_text({"folder": str(folder), "files": len(made.files), "bytes": made.bytes}))
    else:
        echo(f"{len(made.files):,} file(s), {format_bytes(made.bytes)}, are in {folder}")

"""`headwater restore`: puts a copy that `headwater backup` made into the place of the data folder."""

from __future__ import annotations

from pathlib import Path

import click

from headwater.cli.options import as_json, with_settings
from headwater.cli.output import echo, format_time, json_text
from headwater.log.backup import restore
from headwater.settings import Settings


@click.command("restore")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@as_json
@with_settings
def command(settings: Settings, folder: Path, as_json: bool) -> None:
    """Put the backup in FOLDER into the place of a data folder that is missing or empty.

    Each file is compared with its checksum first. Server and pipeline must not be running. Events that are
    acknowledged afterwards are loaded once, also beside tables that are newer or older than the backup.
    """
    made = restore(folder, Path(settings.data_dir), settings.events_dir)
    if as_json:
        echo(json_text({"data_dir": settings.data_dir, "files": len(made.files), "at": made.at}))
    else:
        text = f"{len(made.files):,} file(s) of {format_time(made.at)} are in {settings.data_dir}"
        echo(f"{text}; start server and pipeline")

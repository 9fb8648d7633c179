"""`headwater down`: stops what `headwater up` runs."""

from __future__ import annotations

import os
import signal
import time

import click

from headwater.cli.options import with_settings
from headwater.cli.output import echo
from headwater.cli.up import supervisor_folder
from headwater.errors import HeadwaterError
from headwater.settings import Settings
from headwater.system.durable_files import is_locked, owner_of

POLL_SECONDS = 0.1


@click.command("down")
@with_settings
def command(settings: Settings) -> None:
    """Stop what `headwater up` runs, and wait until it has stopped.

    The gateway stops first, then the pipeline finishes a load in progress, which takes a while. Exit code 1
    if nothing runs.
    """
    folder = supervisor_folder(settings)
    process = owner_of(folder)
    if process is None:
        raise HeadwaterError(
            f"No `headwater up` runs on this machine with the data folder {settings.data_dir}.",
            hint="Name its configuration with -c.",
        )
    os.kill(process, signal.SIGTERM)
    echo(f"stopping process {process}: the gateway first, then the pipeline", err=True)
    while is_locked(folder) and owner_of(folder) in (process, None):
        time.sleep(POLL_SECONDS)

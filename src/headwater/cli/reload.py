"""`headwater reload`: asks a running server to read its settings again."""

from __future__ import annotations

import os
import signal

import click

from headwater.cli.options import log_folder, with_settings
from headwater.cli.output import echo
from headwater.errors import HeadwaterError
from headwater.settings import Settings
from headwater.system.durable_files import owner_of


@click.command("reload")
@with_settings
def command(settings: Settings) -> None:
    """Ask the running server to read keys, tokens, outlets again.

    The configuration is checked first: one that cannot be used is refused here and changes nothing. The
    server's log says what has changed, and which other settings need a restart. Other environment variables
    than those that it was started with need a restart too.
    """
    process = owner_of(log_folder(settings))
    if process is None:
        raise HeadwaterError(
            f"No server runs on this machine with the data folder {settings.data_dir}.",
            hint="Name its configuration with -c, or start it with `headwater serve`.",
        )
    os.kill(process, signal.SIGHUP)
    echo(f"process {process} reads keys, tokens and outlets again; its log says what has changed")

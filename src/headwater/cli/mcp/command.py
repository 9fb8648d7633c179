"""`headwater mcp`: serves an assistant by the Model Context Protocol."""

from __future__ import annotations

import importlib.util

import click

from headwater.cli.options import with_settings
from headwater.errors import ExtensionError
from headwater.settings import Settings
from headwater.system.installation import install_command


@click.command("mcp")
@with_settings
def command(settings: Settings) -> None:
    """Serve lineage, runs and rejects to an assistant (MCP), read-only, on standard input and output.

    It reads the files of `data_dir`, beside a running server or without one, and opens no port. Add to the
    assistant's configuration: command `headwater`, arguments `-c FILE mcp`.
    """
    if importlib.util.find_spec("mcp") is None:
        raise ExtensionError(
            "`headwater mcp` needs the package mcp, which is not installed.",
            hint=f"Run `{install_command('mcp')}`.",
        )
    from headwater.cli.mcp.server import mcp_server

    mcp_server(settings).run("stdio")

"""`headwater`: the list of commands, one module each, imported when the command is called."""

from __future__ import annotations

import errno
import importlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from headwater import __version__
from headwater.errors import HeadwaterError, SettingsError


class Command(NamedTuple):
    """The module of a command and its line of help, which is here so that `--help` imports no command."""

    module: str
    help: str


COMMANDS = {
    "init": Command("headwater.cli.init", "Write a commented headwater.yml to begin with."),
    "check": Command("headwater.cli.check", "Check the configuration and list its problems."),
    "serve": Command(
        "headwater.cli.serve", "Run the server: accept events, store them, deliver them to the outlets."
    ),
    "up": Command("headwater.cli.up", "Run server and pipeline together, and restart a part that dies."),
    "down": Command("headwater.cli.down", "Stop what `headwater up` runs, and wait until it has stopped."),
    "reload": Command("headwater.cli.reload", "Ask the running server to read keys, tokens, outlets again."),
    "pipeline": Command("headwater.cli.pipeline", "Load events into tables."),
    "lineage": Command("headwater.cli.lineage.command", "Where tables and columns come from."),
    "mcp": Command(
        "headwater.cli.mcp.command",
        "Serve lineage, runs and rejects to an assistant (MCP), read-only, on standard input and output.",
    ),
    "status": Command("headwater.cli.status", "Show what happened to every event, and what is waiting."),
    "rejects": Command("headwater.cli.rejects", "List, show, export, replay or drop rejected events."),
    "backup": Command(
        "headwater.cli.backup",
        "Copy the data folder into a new FOLDER, beside a running server or without one.",
    ),
    "restore": Command(
        "headwater.cli.restore",
        "Put the backup in FOLDER into the place of a data folder that is missing or empty.",
    ),
    "tables": Command("headwater.cli.tables", "Heal columns of tables, and maintain their files."),
    "log": Command(
        "headwater.cli.log",
        "Inspect the log; while no server runs, change it: forget, rename, trim.",
    ),
    "completion": Command(
        "headwater.cli.completion", "Print the script that completes commands and options in a shell."
    ),
    "demo": Command(
        "headwater.cli.demo.command",
        "Deliver events while processes are killed, load events into tables, trace a column.",
    ),
}


class Commands(click.Group):
    """A group that imports a command when it is called, and prints a HeadwaterError with its hint."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (found := COMMANDS.get(cmd_name)) is None:
            return None
        command = importlib.import_module(found.module).command
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        found = [CompletionItem(name, help=COMMANDS[name].help) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, found.help) for name, found in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        umask = os.umask(0o077)  # every command creates files as 0600 and folders as 0700 (G12)
        try:
            return self._invoke(ctx)
        finally:
            os.umask(umask)

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HeadwaterError as error:
            from headwater.cli.options import is_verbose
            from headwater.cli.output import echo
            from headwater.cli.server.process import report_error
            from headwater.system.installation import typeable

            if is_verbose(ctx):
                import traceback

                echo(traceback.format_exc(), err=True)
            report_error(error.text, typeable(error.hint, ctx.find_root().obj) if error.hint else "")
            ctx.exit(2 if isinstance(error, SettingsError) else 1)
        except PermissionError as error:
            from headwater.cli.server.process import report_error
            from headwater.system.permissions import permission_hint

            hint = permission_hint(Path(os.fsdecode(error.filename))) if error.filename else ""
            report_error(f"This user may not use {error.filename}.", hint)
            ctx.exit(1)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            from headwater.cli.server.process import report_error

            report_error(str(error))
            ctx.exit(1)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="headwater")
@click.option(
    "-c",
    "--config",
    metavar="FILE",
    help="Configuration; else $HEADWATER_CONFIG, else ./headwater.yml, else the defaults.",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="Log debug lines too, and print the traceback of an error."
)
@click.pass_context
def cli(ctx: click.Context, config: str | None, verbose: bool) -> None:
    """Accepts events over HTTP and never loses an acknowledged one.

    Exit codes: 0 success, 1 failure, 2 the command line or the configuration is wrong.
    """
    ctx.obj = config
    ctx.meta["headwater.verbose"] = verbose


def main() -> None:
    """The console script."""
    cli(prog_name="headwater")

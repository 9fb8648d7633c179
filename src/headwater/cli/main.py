"""`headwater`: one command per file, each imported only when it is asked for."""

from __future__ import annotations

import errno
import importlib
from typing import Any, NamedTuple

import click

from headwater import __version__
from headwater.errors import HeadwaterError, SettingsError

__all__ = ["COMMANDS", "cli", "main"]


class Place(NamedTuple):
    """Where a command is written, and its one line of help, which is here so that `--help` imports none."""

    module: str
    help: str


COMMANDS = {
    "init": Place("headwater.cli.init", "Write a commented headwater.yml to begin with."),
    "check": Place("headwater.cli.check", "Say what is wrong with the configuration."),
    "serve": Place("headwater.cli.serve", "Run the sidecar: take events in, keep them, send them on."),
    "up": Place("headwater.cli.up", "Run everything as one: sidecar and pipeline, restarted when they die."),
    "pipeline": Place("headwater.cli.pipeline.run", "Turn events into rows of tables."),
    "lineage": Place("headwater.cli.lineage.command", "Where tables and columns come from."),
    "status": Place("headwater.cli.status", "Say what became of every event, and what is waiting."),
    "rejects": Place("headwater.cli.rejects", "List, show, replay or drop events that were refused."),
    "log": Place("headwater.cli.log", "Look into the log: stat, verify, export, forget."),
    "demo": Place(
        "headwater.cli.demo.command",
        "Send events through outages, make tables of others, count; trace columns.",
    ),
}


class Commands(click.Group):
    """A group that imports a command when it is called, and shows our errors as a person wants them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (place := COMMANDS.get(cmd_name)) is None:
            return None
        command = importlib.import_module(place.module).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.help) for name, place in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HeadwaterError as error:
            click.secho(f"error: {error.text}", fg="red", err=True)
            if error.hint:
                click.echo(error.hint, err=True)
            ctx.exit(2 if isinstance(error, SettingsError) else 1)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            click.secho(f"error: {error}", fg="red", err=True)
            ctx.exit(1)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="headwater")
@click.option(
    "-c",
    "--config",
    metavar="FILE",
    help="Configuration; else $HEADWATER_CONFIG, else ./headwater.yml, else the defaults.",
)
@click.pass_context
def cli(ctx: click.Context, config: str | None) -> None:
    """Takes events in over HTTP and never loses one that it acknowledged.

    Exit codes: 0 all is well, 1 it failed, 2 the command line or the configuration is wrong.
    """
    ctx.obj = config


def main() -> None:
    """The console script."""
    cli(prog_name="headwater")

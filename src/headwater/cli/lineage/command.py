"""`headwater lineage`: where tables and columns of Spark jobs come from."""

from __future__ import annotations

import importlib.util
import os
import sys

import click

from headwater.cli.lineage import graph as lineage_graph
from headwater.errors import ExtensionError


@click.group("lineage")
def command() -> None:
    """Where tables and columns come from."""


for _graph_command in lineage_graph.COMMANDS:
    command.add_command(_graph_command)


@command.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=True,
)
@click.argument("script", metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(script: str, arguments: tuple[str, ...]) -> None:
    """Run a PySpark script, unchanged, and send its lineage.

    The script sees what it would see under `python SCRIPT ARGUMENTS…`, and its exit code is this command's.
    Events go where `spark.openlineage.transport.*`, openlineage.yml or OPENLINEAGE_URL say.
    """
    for name, package in {"pyspark": "pyspark", "openlineage.client": "openlineage-python"}.items():
        if _is_missing(name):
            raise ExtensionError(
                f"lineage needs {package}, which is not installed.",
                hint="Run `pip install 'headwater[lineage]'`.",
            )
    # In place of this process: signals, exit code and standard streams are the script's own, not click's.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "headwater.lineage", script, *arguments])  # noqa: S606


def _is_missing(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        return True

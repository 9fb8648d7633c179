"""`headwater lineage`: runs scripts with lineage, and shows where tables and columns come from."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from headwater.cli.lineage.look_up import job_meant, left_out, look_up, meant
from headwater.cli.lineage.text_tree import Picture, column_picture, dataset_picture
from headwater.cli.options import as_json, with_settings
from headwater.cli.output import echo, format_seconds, format_table, json_text, progress
from headwater.errors import ExtensionError, HeadwaterError
from headwater.formats.printable import printable_line
from headwater.graph.ingest.import_files import import_events, read_events
from headwater.graph.query.answers import Impact, Neighbourhood, Trace
from headwater.graph.query.query import MAX_DEPTH, MAX_LIMIT, GraphQuery
from headwater.graph.store.database import GraphDatabase, IngestResult
from headwater.graph.store.separated_names import reunite, separate
from headwater.settings import Settings
from headwater.system.installation import install_command

_depth = click.option(
    "--depth", type=click.IntRange(1, MAX_DEPTH), help="Maximum number of steps from dataset to dataset."
)
_limit = click.option(
    "--limit", type=click.IntRange(1, MAX_LIMIT), default=500, show_default=True, help="Maximum of results."
)
_namespace = click.option("-n", "--namespace", help="Namespace; then the argument is just the name.")
_mermaid = click.option("--mermaid", "as_mermaid", is_flag=True, help="Print a graph for Mermaid.")


@click.group("lineage")
def command() -> None:
    """Where tables and columns come from."""


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
                hint=f"Run `{install_command('lineage')}`.",
            )
    # In place of this process: signals, exit code and standard streams are the script's own, not click's.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "headwater.lineage", script, *arguments])  # noqa: S606


def _is_missing(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        return True


@command.command("show")
@click.argument("dataset")
@_namespace
@click.option("--column", help="A column of the dataset, where it is not part of the argument.")
@click.option("--up", "only", flag_value="up", help="Only upstream.")
@click.option("--down", "only", flag_value="down", help="Only downstream.")
@_depth
@_limit
@click.option("--direct", is_flag=True, help="For a column: omit filters, joins and other indirect uses.")
@as_json
@_mermaid
@with_settings
def show(
    settings: Settings,
    dataset: str,
    namespace: str | None,
    column: str | None,
    only: str | None,
    depth: int | None,
    limit: int,
    direct: bool,
    as_json: bool,
    as_mermaid: bool,
) -> None:
    """Show the lineage of a dataset, or of one column of it, upstream and downstream.

    DATASET is a name, a namespace and a name, or the end of a name; `.column` after it selects that column.
    """
    how = [as_json, as_mermaid]
    direction: Any = only or "both"
    with GraphQuery(settings.graph_dir) as query:
        answer = look_up(
            query,
            dataset,
            namespace=namespace,
            column=column,
            direction=direction,
            depth=depth,
            limit=limit,
            direct=direct,
        )
        found = answer.found
        _print(
            found,
            lambda: column_picture(found) if isinstance(found, Trace) else dataset_picture(found),
            answer.lines,
            how,
        )


@command.command("impact")
@click.argument("dataset")
@_namespace
@click.option("--column", help="A column of the dataset, where it is not part of the argument.")
@_depth
@_limit
@as_json
@with_settings
def impact(
    settings: Settings,
    dataset: str,
    namespace: str | None,
    column: str | None,
    depth: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """List the datasets that a change of a dataset, or of one column, affects, nearest first.

    If a job has no column lineage, every column that it writes counts as affected.
    """
    with GraphQuery(settings.graph_dir) as query:
        space, name, field = meant(query, dataset, namespace, column)
        found = query.impact(space, name, field, depth=depth or 50, limit=limit)
    if as_json:
        echo(json_text(found))
        return
    if not found.datasets:
        echo("No known dataset is downstream of it.")
        return
    jobs = {node.key: printable_line(node.name) for node in found.jobs}
    rows = [
        (
            each.distance,
            printable_line(each.name),
            "all" if each.columns is None else printable_line(", ".join(each.columns)),
            ", ".join(jobs[key] for key in each.jobs if key in jobs),
            printable_line(each.namespace),
        )
        for each in found.datasets
    ]
    echo(format_table(("steps", "dataset", "columns", "by", "namespace"), rows))
    _say_what_is_left_out(found)


@command.command("runs")
@click.argument("job", required=False)
@_namespace
@_limit
@as_json
@with_settings
def runs(settings: Settings, job: str | None, namespace: str | None, limit: int, as_json: bool) -> None:
    """List the runs of a job, or the latest of all, newest first."""
    with GraphQuery(settings.graph_dir) as query:
        space, name = job_meant(query, job, namespace)
        found = query.runs(space, name, limit=limit)
    if as_json:
        echo(json_text(found))
        return
    rows = [
        (
            run.state,
            (run.started_at or run.first_at or "")[:19],
            format_seconds(run.seconds) if run.seconds is not None else "",
            printable_line(run.job.name),
            run.id,
            printable_line(run.error.partition("\n")[0])[:80],
        )
        for run in found
    ]
    echo(format_table(("state", "started", "took", "job", "run", "error"), rows) if rows else "no runs")


@command.command("search")
@click.argument("text")
@_namespace
@_limit
@as_json
@with_settings
def search(settings: Settings, text: str, namespace: str | None, limit: int, as_json: bool) -> None:
    """Find datasets, jobs and columns by parts of their names, the closest first."""
    with GraphQuery(settings.graph_dir) as query:
        hits = query.search(text, namespace=namespace or "", limit=limit)
    if as_json:
        echo(json_text(hits))
        return
    rows = [
        (
            hit.kind,
            printable_line(hit.name if hit.column is None else f"{hit.name}.{hit.column}"),
            printable_line(hit.namespace),
            printable_line(f"{hit.alias.namespace} {hit.alias.name}") if hit.alias else "",
        )
        for hit in hits
    ]
    echo(format_table(("kind", "name", "namespace", "alias"), rows) if rows else "nothing was found")


@command.command("unlink")
@click.argument("kept", metavar="NAME")
@click.argument("apart", metavar="OTHER")
@with_settings
def unlink(settings: Settings, kept: str, apart: str) -> None:
    """Separate two names that `symlinks` facets made one dataset.

    OTHER, with the names that only it links, becomes a dataset of its own. This holds against later events
    too, until `headwater lineage link NAME OTHER`. Works with or without a running server.
    """
    with GraphQuery(settings.graph_dir) as query:
        ids = query.resolve_name(kept), query.resolve_name(apart)
    if ids[0] == ids[1]:
        raise click.UsageError("Both are the same name.")
    separate(settings.graph_dir, *ids)
    echo(f"{printable_line(apart)} is not the same dataset as {printable_line(kept)}, whatever events say")


@command.command("link")
@click.argument("one", metavar="NAME")
@click.argument("other", metavar="OTHER")
@with_settings
def link(settings: Settings, one: str, other: str) -> None:
    """Let links of two names count again that `headwater lineage unlink` separated."""
    with GraphQuery(settings.graph_dir) as query:
        ids = query.resolve_name(one), query.resolve_name(other)
    if not reunite(settings.graph_dir, *ids):
        raise HeadwaterError(
            f"{printable_line(one)} and {printable_line(other)} were not unlinked.",
            hint="Events link names by the facet `symlinks`.",
        )
    echo("links of the two names count again")


@command.command("import")
@click.argument("sources", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@as_json
@with_settings
def import_(settings: Settings, sources: tuple[Path, ...], as_json: bool) -> None:
    """Import events from files of JSON lines or a JSON array (also .gz), or from folders of a log.

    Importing again changes nothing. A server with the graph must not be running; while it runs, send the
    events to it instead.
    """
    database = GraphDatabase(settings.graph_dir, settings.graph)
    done = IngestResult(0, 0)
    try:
        for source in sources:
            total = source.stat().st_size if source.is_file() else 0
            with progress(f"import {source}") as report:
                done = done.plus(
                    import_events(
                        database,
                        read_events(source),
                        on_progress=lambda read, total=total: report(read, total),  # type: ignore[misc]
                    )
                )
    finally:
        database.close()
    if done.events == done.invalid:
        raise HeadwaterError(
            f"No OpenLineage event is in {', '.join(map(str, sources))} ({done.events:,} read).",
            hint="Each line, or each element of an array, must be an OpenLineage event.",
        )
    if as_json:
        left_out = {"mistimed": done.mistimed, "left_out": dict(done.left_out)}
        echo(json_text({"events": done.events, "unreadable": done.invalid} | left_out))
        return
    echo(f"{done.events - done.invalid:,} event(s) imported into {settings.graph_dir}")
    if done.invalid:
        echo(f"{done.invalid:,} line(s) are not OpenLineage events and were skipped", err=True)
    if done.mistimed:
        echo(f"{done.mistimed:,} event(s) had an impossible time; the time of the import counts", err=True)
    for kind, count in done.left_out.items():
        echo(f"{count:,} {kind} beyond the limits of an event were left out", err=True)


def _print(
    found: Any, picture: Callable[[], Picture], tree: Callable[[], Iterator[str]], how: list[bool]
) -> None:
    as_json, as_mermaid = how
    if as_json and as_mermaid:
        raise click.UsageError("--json and --mermaid exclude each other.")
    if as_json:
        echo(json_text(found))
    elif as_mermaid:
        echo(picture().mermaid())
    else:
        for line in tree():
            click.echo(line)
        _say_what_is_left_out(found)


def _say_what_is_left_out(found: Neighbourhood | Trace | Impact) -> None:
    if text := left_out(found):
        echo(f"{text}; use a larger --limit.", err=True)

"""Writes the pages of docs/ that are made from the code: settings, command line, metrics.

`--check` writes nothing and fails where a page is not what the code says.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from headwater.cli.main import cli
from headwater.metrics import CATALOGUE, SECONDS
from headwater.settings import Settings
from headwater.settings.describe import Field, describe
from headwater.spool import SpoolSettings

ROOT = Path(__file__).parent.parent
NOTICE = "<!-- Made from the code by scripts/docs.py: change the code, then `make docs`. -->"


def _paragraph(text: str) -> str:
    return " ".join(text.split())


SETTINGS_INTRO = _paragraph("""
    Read from the file named by `-c`, else by `$HEADWATER_CONFIG`, else from `./headwater.yml`; without any of
    them the defaults hold. `headwater init` writes a file to begin with, `headwater check` says what is wrong
    with it. Any value may hold `${env.NAME}` or `${env.NAME|default}`. A key that is not listed here is
    refused, and the nearest known one is named.
""")
OUTLETS_INTRO = _paragraph("""
    They stand beside the keys of `outlets[]`. Other packages can bring further types (entry point group
    `headwater.outlets`).
""")
DESTINATIONS_INTRO = _paragraph("""
    They stand beside the keys of `destinations[]`. Other packages can bring further types (entry point group
    `headwater.destinations`). [destinations.md](destinations.md) tells how they behave.
""")
SPOOL_INTRO = _paragraph("""
    These keys stand in the `transport` section of openlineage-python's configuration, with
    `type: headwater.spool.SpoolTransport`, beside the options of the outlet type `openlineage`.
    [spool.md](spool.md) tells how it works.
""")
METRICS_INTRO = _paragraph("""
    `GET /metrics` serves all of them as OpenMetrics text (`metrics.openmetrics`). With `metrics.statsd` they
    are also sent by UDP to any statsd server: the names without `headwater_` and `_total`, after the prefix
    and with label values as further parts, such as `headwater.delivery_lag_events.marquez`; counters as their
    growth (`|c`), gauges as they are (`|g`), histograms as the mean of the interval in milliseconds (`|ms`)
    and a `.count`. [operations.md](operations.md) says which of them to watch.
""")


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *[[cell.replace("|", "\\|") for cell in row] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# --- settings


def types_of(group: dict[str, str]) -> Iterator[str]:
    """A section for each type that an entry point group of ours names."""
    for name, place in group.items():
        module, _, attribute = place.partition(":")
        kind = getattr(importlib.import_module(module), attribute)
        yield f"### `type: {name}`"
        yield (inspect.getdoc(kind) or "").partition("\n\n")[0]
        yield from list(options(kind.Settings)) or ["No options of its own."]


def settings_page() -> str:
    parts = [
        "# Settings",
        NOTICE,
        SETTINGS_INTRO,
        *section("", Settings),
        "## Options of the outlet types",
        OUTLETS_INTRO,
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parts += types_of(project["entry-points"]["headwater.outlets"])
    parts += ["## Options of the destination types", DESTINATIONS_INTRO]
    parts += types_of(project["entry-points"]["headwater.destinations"])
    parts += [
        "## The spool transport",
        SPOOL_INTRO,
        *options(SpoolSettings),
    ]
    return "\n\n".join(parts) + "\n"


def section(path: str, struct: type[msgspec.Struct]) -> Iterator[str]:
    """A table of the plain fields, then a heading for each section below."""
    fields = list(describe(struct))
    if path:
        yield f"## `{path}`"
        yield inspect.getdoc(struct) or ""
    rows = [row(field, f"{path}." if path else "") for field in fields]
    yield table(["setting", "type", "default", "meaning"], rows)
    for field in fields:
        if field.struct is not None:
            yield from section(
                f"{path}.{field.name}".lstrip(".") + ("[]" if field.is_list else ""), field.struct
            )


def options(struct: type[msgspec.Struct]) -> Iterator[str]:
    """One table, with nested sections written as dotted names."""
    if rows := list(option_rows(struct, "")):
        yield table(["setting", "type", "default", "meaning"], rows)


def option_rows(struct: type[msgspec.Struct], prefix: str) -> Iterator[list[str]]:
    for field in describe(struct):
        if field.struct is not None and not field.is_list and not field.is_optional:
            yield from option_rows(field.struct, f"{prefix}{field.name}.")
        else:
            yield row(field, prefix)


def row(field: Field, prefix: str) -> list[str]:
    return [f"`{prefix}{field.name}`", field.kind, default(field), field.meaning]


def default(field: Field) -> str:
    if field.is_required:
        return "required"
    if field.struct is not None and not field.is_optional and not field.is_list:
        return "see below"
    value = field.default
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1024 and value % 1024 == 0:
        mebibytes = value / (1024 * 1024)
        return f"`{value}` ({mebibytes:g} MiB)" if mebibytes >= 1 else f"`{value}`"
    return f"`{msgspec.json.encode(value).decode()}`"


# --- command line


def cli_page() -> str:
    context = click.Context(cli, info_name="headwater")
    parts = ["# Command line", NOTICE, *command_parts(cli, context)]
    parts.insert(4, "Every command has `-h`, `--help`; `headwater --version` tells the release.")
    return "\n\n".join(parts) + "\n"


def command_parts(command: click.Command, context: click.Context) -> Iterator[str]:
    if context.parent is not None:
        yield f"{'#' * min(4, context.command_path.count(' ') + 1)} `{context.command_path}`"
    pieces = [piece for param in command.get_params(context) for piece in param.get_usage_pieces(context)]
    subcommand = ["COMMAND"] if isinstance(command, click.Group) else []
    yield f"```\n{' '.join([context.command_path, '[OPTIONS]', *pieces, *subcommand])}\n```"
    yield inspect.cleandoc(command.help or "")
    own = [param for param in command.params if isinstance(param, click.Option) and param.name != "version"]
    if own:
        yield table(["option", "meaning"], [option_row(option) for option in own])
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from command_parts(inner, click.Context(inner, info_name=name, parent=context))


def option_row(option: click.Option) -> list[str]:
    names = ", ".join(f"`{name}`" for name in option.opts)
    takes = "" if option.is_flag else f" `{option.metavar or str(option.type.name).upper()}`"
    shown: Any = option.default
    has_default = option.show_default and not option.is_flag
    return [names + takes, (option.help or "") + (f" Default: {shown}." if has_default else "")]


# --- metrics


def metrics_page() -> str:
    rows = [
        [
            f"`{entry.name}{'_total' if entry.kind == 'counter' else ''}`",
            entry.kind,
            ", ".join(f"`{label}`" for label in entry.labels),
            entry.help,
        ]
        for entry in CATALOGUE
    ]
    parts = [
        "# Metrics",
        NOTICE,
        METRICS_INTRO,
        table(["metric", "kind", "labels", "meaning"], rows),
        f"The histograms' bounds are {', '.join(f'{bound:g}' for bound in SECONDS)} seconds.",
    ]
    return "\n\n".join(parts) + "\n"


PAGES = {"docs/settings.md": settings_page, "docs/cli.md": cli_page, "docs/metrics.md": metrics_page}


def main() -> int:
    is_check = sys.argv[1:] == ["--check"]
    stale = 0
    for name, make in PAGES.items():
        path = ROOT / name
        text = make()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if is_check:
            print(f"{name} is not what the code says; type: make docs", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

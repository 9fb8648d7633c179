"""`headwater init`: a configuration to begin with, made from the settings themselves."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from headwater.cli.output import echo
from headwater.errors import HeadwaterError
from headwater.settings import Settings
from headwater.settings.describe import Field, describe
from headwater.system.installation import typeable

HEAD = """\
# Configuration of Headwater. A line that begins with `#name:` shows a default; remove the # to change it.
# Any value may hold ${env.NAME} or ${env.NAME|default}; sizes and times may have a unit: 4GiB, 30s, 24h.
# An environment variable such as HEADWATER_GATEWAY__PORT takes precedence. `headwater check` checks it all.
"""
OUTLETS = """\
# Who receives the events: any number of outlets, each at its own pace. docs/settings.md lists all keys.
outlets:
  - name: backend
    type: openlineage
    url: ${env.OPENLINEAGE_URL|http://localhost:5000}
    #api_key: ${env.OPENLINEAGE_API_KEY}
  #- name: copy
  #  type: file
  #  path: ./events.ndjson
"""


def template() -> str:
    """The text of the file: every setting with its meaning and its default."""
    blocks = [HEAD]
    for field in describe(Settings):
        if field.name == "outlets":
            blocks.append(OUTLETS)
        else:
            blocks.append("\n".join(_lines(field, "")) + "\n")
    return "\n".join(blocks)


def _lines(field: Field, indent: str) -> Iterator[str]:
    yield from textwrap.wrap(
        field.meaning, 105 - len(indent), initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
    )
    if field.struct is not None and not field.is_optional and not field.is_list:
        yield f"{indent}{field.name}:"
        for inner in describe(field.struct):
            yield from _lines(inner, indent + "  ")
        return
    yield f"{indent}#{field.name}: {msgspec.json.encode(field.default).decode()}"


@click.command("init")
@click.argument("path", default="headwater.yml", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def command(path: Path, force: bool) -> None:
    """Write a commented headwater.yml to begin with."""
    if path.exists() and not force:
        raise HeadwaterError(
            f"{path} exists already.", hint="Use --force to overwrite it, or name another file."
        )
    path.write_text(template(), encoding="utf-8")
    config = None if str(path) == "headwater.yml" else str(path)
    following = "set the outlet's url in it, run `headwater check`, then `headwater serve`."
    echo(typeable(f"Wrote {path}. Next: {following}", config))

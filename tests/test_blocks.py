"""The shell blocks of docs/: they are run in order against a server, or the line above them says why not."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click
import pytest

from headwater.cli.main import cli
from tests.sources import ROOT
from tests.support.server import EVENT, Server
from tests.support.waiting import wait_until

BLOCK = re.compile(r"^(?:<!-- not run: (?P<reason>[^>]+) -->\n\n?)?```sh\n(?P<code>.*?)^```", re.M | re.S)
RUNS_UNTIL_STOPPED = ("headwater serve", "headwater up")


class Block(NamedTuple):
    page: str
    code: str
    reason: str


def blocks() -> list[Block]:
    return [
        Block(page.name, found["code"], found["reason"] or "")
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


def lines() -> Iterator[str]:
    """Every command line of every block, without comments; a line that ends in \\ continues."""
    for block in blocks():
        yield from block.code.replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("line", [line for line in lines() if re.match(r"(\S+/)?headwater ", line)])
def test_the_options_exist_when_a_block_has_a_command(line: str) -> None:
    words = shlex.split(line.removesuffix("&"), comments=True)
    command, context, rest = cli, click.Context(cli, info_name="headwater"), words[1:]
    if rest[:1] == ["-c"]:
        rest = rest[2:]
    found: click.Command = command
    while isinstance(found, click.Group) and rest:
        inner = found.get_command(context, rest[0])
        assert inner is not None, line
        found, rest = inner, rest[1:]
        context = click.Context(found, info_name=rest[0] if rest else "", parent=context)
    known = {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest:
        assert not word.startswith("--") or word.partition("=")[0] in known, f"{line}: {word}"


def lineage(job: str, inputs: list[str], output: str, columns: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """A run that makes `output` of `inputs`, each column of one column."""
    facet = {"_producer": EVENT["producer"], "_schemaURL": "https://example.com/facet"}
    fields = {
        name: {"inputFields": [{"namespace": "db", "name": source, "field": field}]}
        for name, (source, field) in columns.items()
    }
    schema = facet | {"fields": [{"name": name} for name in columns]}
    return EVENT | {
        "job": {"namespace": "shop", "name": job},
        "run": {"runId": f"01941f29-7c00-7000-8000-{abs(hash(job)) % 10**12:012d}"},
        "inputs": [{"namespace": "db", "name": name} for name in inputs],
        "outputs": [
            {
                "namespace": "db",
                "name": output,
                "facets": {"schema": schema, "columnLineage": facet | {"fields": fields}},
            }
        ],
    }


def test_every_command_succeeds_when_the_blocks_are_run_in_order(tmp_path: Path) -> None:
    settings = {
        "graph": {"enabled": True},
        "tokens": [{"id": "web", "client_secret": "web-client", "server_secret": "web-server"}],
    }
    with Server(tmp_path, settings) as server:
        server.post(lineage("load_orders", ["customer"], "orders", {"price": ("customer", "balance")}))
        server.post(lineage("make_daily", ["orders"], "daily", {"total": ("orders", "price")}))
        server.post(lineage("load_decoy", ["customer"], "decoy", {"price": ("customer", "balance")}))
        (tmp_path / "event.json").write_text(json.dumps(EVENT))
        (tmp_path / "events.ndjson").write_text('{"event_type": "a"}\n{"event_type": "b"}\n')
        command = (
            f'headwater() {{ {shlex.quote(sys.executable)} -m headwater "$@"; }}\n'
            'curl() { command curl -sSf "$@"; }\n'
        )
        environment = os.environ | {"HEADWATER_CONFIG": str(server.config)}

        def run(code: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", command + code],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )

        wait_until(lambda: run("headwater lineage show daily.total").returncode == 0)
        ran = 0
        for block in blocks():
            if block.reason:
                continue
            code = "\n".join(
                line for line in block.code.splitlines() if not line.startswith(RUNS_UNTIL_STOPPED)
            )
            done = run(code.replace("127.0.0.1:8750", urlsplit(server.url).netloc))
            assert done.returncode == 0, f"{block.page}: {code}\n{done.stdout}{done.stderr}"
            ran += 1
    assert ran >= 5

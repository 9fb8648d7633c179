"""Tables, ledger, file statuses and graph of a release from before: the upgrade loses and doubles nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import duckdb
import pytest
from click.testing import CliRunner

from headwater.cli.main import cli
from headwater.destinations.base import load_destination
from headwater.graph.store.database import GraphDatabase
from headwater.log.files.checked_lines import LineReader
from headwater.log.files.layout import unprocessed
from headwater.pipeline.batch.file_in_cycle import FileInCycle
from headwater.pipeline.load_report import FileReport, Outcome
from headwater.settings import DestinationSettings
from tests.pipeline.warehouses import store
from tests.support.old_release import write_with_old_release

# Opens the graph with this release, which migrates it, ingests an event, and is killed.
REOPEN = """
import os, signal, sys
from pathlib import Path
from headwater.graph.store.database import GraphDatabase
GraphDatabase(Path(sys.argv[1])).ingest([], int(sys.argv[2]))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return write_with_old_release(Path(__file__).with_name("write_old_tables.py"), tmp_path)


def check(folder: Path) -> dict[str, list[str]]:
    """The findings of `headwater check` by subject."""
    config = folder / "headwater.yml"
    config.write_text(json.dumps({"gateway": {"port": 0}, "data_dir": str(folder)}))
    found = CliRunner().invoke(cli, ["-c", str(config), "check", "--json"])
    findings: dict[str, list[str]] = {}
    for each in json.loads(found.stdout)["findings"]:
        findings.setdefault(each["about"], []).append(f"{each['level']}: {each['text']}")
    return findings


@pytest.mark.long
def test_rows_statuses_and_graph_are_kept_when_the_release_before_wrote_them(old: Path) -> None:
    graph = old / "graph"
    assert any(f"warning: the next start brings {graph / 'graph.db'}" in x for x in check(old)["schema"])
    for position in (5, 6):
        command = [sys.executable, "-c", REOPEN, str(graph), str(position)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not any("graph.db" in text for text in check(old).get("schema", []))
    database = GraphDatabase(graph)
    assert database.position == 6
    database.close()
    with_graph = apsw.Connection(str(graph / "graph.db"))
    assert list(with_graph.execute("SELECT count(*) FROM jobs")) == [(3,)]
    version = int(with_graph.pragma("user_version"))
    with_graph.pragma("user_version", version + 1)
    with_graph.close()
    assert any(f"schema version {version + 1}" in text for text in check(old)["graph"])

    path = old / "dwh.duckdb"
    destination = load_destination(DestinationSettings(id="dwh", type="duckdb", options={"path": str(path)}))
    destination.connect()
    loaded = []
    for file in unprocessed(old / "events"):
        each = FileInCycle(file, FileReport(file.name))
        lacks = each.begin("dwh")
        loaded.append((lacks, each.is_open("events")))
        if each.is_open("events"):
            numbers = dict(enumerate(json.loads(line.event)["n"] for line in LineReader(file.path)))
            store(destination, each.load_id("events"), numbers, old)
            each.record("events", Outcome(rows=len(numbers)))
    destination.close()
    assert loaded == [(False, False), (True, True), (True, True)]
    with duckdb.connect(str(path)) as connection:
        rows = [n for (n,) in connection.execute("SELECT n FROM events ORDER BY n").fetchall()]
    assert rows == list(range(30))

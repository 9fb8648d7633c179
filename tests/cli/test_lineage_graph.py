"""`headwater lineage show|impact|runs|search|import`."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from headwater.log.queue.log import Log
from tests.gateway.running import wait_until
from tests.graph.events import dataset, encoded, flow, run_event, symlinks
from tests.graph.shop import shop
from tests.support.server import Server

from .conftest import Headwater


def write(folder: Path, events: list[Any]) -> str:
    path = folder / "events.ndjson"
    path.write_bytes(b"\n".join(encoded(events)) + b"\n")
    return str(path)


@pytest.fixture
def imported(headwater: Headwater, tmp_path: Path) -> Headwater:
    result = headwater("lineage", "import", write(tmp_path, shop()))
    assert result.exit_code == 0
    assert "3 event(s) imported" in result.stdout
    return headwater


def test_a_tree_of_both_sides_is_shown_when_a_dataset_is_named(imported: Headwater) -> None:
    result = imported("lineage", "show", "orders")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines == [
        "orders  db",
        "upstream",
        "└── load  jobs  COMPLETE",
        "    └── events  db",
        "downstream",
        "└── report  jobs  COMPLETE",
        "    └── daily  db",
        "        └── mail  jobs  COMPLETE",
        "            └── letters  db",
    ]


def test_a_column_is_shown_back_to_its_json_field_when_it_is_named(imported: Headwater) -> None:
    result = imported("lineage", "show", "daily.total", "--up")
    assert result.stdout.splitlines() == [
        "total  daily  db",
        "upstream",
        "├── price  orders  db  DIRECT AGGREGATION  by report",
        "│   └── amount  events  db  DIRECT TRANSFORMATION  by load",
        "└── id  orders  db  INDIRECT FILTER  by report",
        "    └── id  events  db  DIRECT IDENTITY  by load",
    ]
    direct = imported("lineage", "show", "-n", "db", "daily", "--column", "total", "--up", "--direct")
    assert "INDIRECT" not in direct.stdout
    assert "? mail has no column lineage" in imported("lineage", "show", "orders.price").stdout


def test_programs_get_what_they_read_when_they_ask_for_it(imported: Headwater) -> None:
    found = json.loads(imported("lineage", "show", "orders", "--json").stdout)
    assert {node["name"] for node in found["datasets"]} == {"events", "orders", "daily", "letters"}
    mermaid = imported("lineage", "show", "daily.total", "--mermaid").stdout
    assert mermaid.startswith("flowchart LR")
    assert "total<br/>daily" in mermaid
    assert "-.->" in mermaid
    assert imported("lineage", "show", "orders", "--mermaid", "--json").exit_code == 2


def test_what_a_change_reaches_is_listed_when_asked_for(imported: Headwater) -> None:
    lines = [line.split() for line in imported("lineage", "impact", "events.amount").stdout.splitlines()]
    assert lines[1:] == [
        ["1", "orders", "price", "load", "db"],
        ["2", "daily", "total", "report", "db"],
        ["3", "letters", "all", "mail", "db"],
    ]
    found = json.loads(imported("lineage", "impact", "events", "--json").stdout)
    assert [each["name"] for each in found["datasets"]] == ["orders", "daily", "letters"]
    assert "No known dataset" in imported("lineage", "impact", "letters").stdout


def test_runs_are_listed_when_asked_for(imported: Headwater) -> None:
    lines = imported("lineage", "runs", "load").stdout.splitlines()
    assert len(lines) == 2
    assert lines[1].split()[:2] == ["COMPLETE", "2026-01-01T00:01:00"]
    assert len(json.loads(imported("lineage", "runs", "--json").stdout)) == 3
    assert imported("lineage", "runs", "-n", "jobs", "load").stdout.splitlines() == lines
    unknown = imported("lineage", "runs", "nothing")
    assert unknown.exit_code == 1
    assert "No job is called nothing." in unknown.output


def test_parts_of_names_are_found_when_searched_for(imported: Headwater) -> None:
    lines = [line.split() for line in imported("lineage", "search", "pri").stdout.splitlines()]
    assert lines[1:] == [["column", "orders.price", "db"]]
    assert json.loads(imported("lineage", "search", "orders", "--json").stdout)[0]["kind"] == "dataset"
    assert imported("lineage", "search", "zzzz").stdout == "nothing was found\n"


def test_it_says_what_to_do_when_there_is_no_graph_or_no_such_name(
    headwater: Headwater, tmp_path: Path
) -> None:
    result = headwater("lineage", "show", "orders")
    assert result.exit_code == 1
    assert "headwater lineage import" in result.output
    headwater("lineage", "import", write(tmp_path, shop()))
    result = headwater("lineage", "show", "nothing")
    assert result.exit_code == 1
    assert "Nothing in the graph is called `nothing`." in result.output


def test_lines_that_are_no_events_are_counted_when_imported(headwater: Headwater, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text('{"no": "event"}\nrubbish\n', encoding="utf-8")
    result = headwater("lineage", "import", str(path), "--json")
    assert result.exit_code == 1  # not one event: probably the wrong file
    assert "No OpenLineage event is in" in result.output
    path.write_text(f'{json.dumps(shop()[0])}\n{{"no": "event"}}\nrubbish\n', encoding="utf-8")
    result = headwater("lineage", "import", str(path), "--json")
    assert json.loads(result.stdout) == {"events": 3, "unreadable": 2, "mistimed": 0, "left_out": {}}
    log = Log.open(tmp_path / "log")
    log.append_wait(encoded(shop()))
    log.close()
    assert "3 event(s) imported" in headwater("lineage", "import", str(tmp_path / "log")).stdout


def test_no_control_character_reaches_the_terminal_when_names_hold_some(
    headwater: Headwater, tmp_path: Path
) -> None:
    evil = 'x\x1b[31m\u202e"];evil\n'
    events = [flow(evil, [dataset(evil, evil)], ["t"]), run_event("FAIL", run=5, job=evil)]
    headwater("lineage", "import", write(tmp_path, events))
    for arguments in (
        ["show", "t"],
        ["show", "t", "--mermaid"],
        ["runs"],
        ["search", "evil"],
    ):
        text = headwater("lineage", *arguments).stdout
        assert "evil" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert '"];evil' not in headwater("lineage", "show", "t", "--mermaid").stdout


def test_a_server_folds_and_serves_while_it_takes_events_when_the_graph_is_on(
    headwater: Headwater, tmp_path: Path
) -> None:
    server = Server(tmp_path, {"gateway": {"port": 0}, "graph": {"enabled": True}})
    try:
        for event in shop():
            assert server.post(event).status_code == 200
        url = f"{server.url}/api/v1/graph/neighbourhood?namespace=db&name=letters&depth=9"

        def is_there() -> bool:
            answer = httpx2.get(url)
            return answer.status_code == 200 and len(answer.json()["datasets"]) == 5

        wait_until(is_there, 60)
        assert "daily" in headwater("lineage", "show", "orders").stdout  # beside the server
        refused = headwater("lineage", "import", write(tmp_path, shop()))
        assert refused.exit_code == 1
        assert "is in use by process" in refused.output
        assert httpx2.get(f"{server.url}/readyz").json()["ready"] is True
    finally:
        assert server.stop(signal.SIGTERM) == 0
    modules = (tmp_path / "modules.txt").read_text(encoding="utf-8").split()
    assert not {"pyspark", "duckdb", "pyarrow", "openlineage.client"} & set(modules)


def test_the_graph_is_neither_loaded_nor_served_when_it_is_off(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        assert httpx2.get(f"{server.url}/api/v1/graph/search?q=x").status_code == 404
    finally:
        assert server.stop(signal.SIGTERM) == 0
    modules = (tmp_path / "modules.txt").read_text(encoding="utf-8").split()
    assert not [name for name in modules if name.startswith("headwater.graph")]
    assert not (tmp_path / "headwater-data" / "graph").exists()


def test_names_are_unlinked_and_linked_again_when_a_server_is_running(
    headwater: Headwater, tmp_path: Path
) -> None:
    linked = run_event(inputs=[dataset("path", symlinks=symlinks(("db", "table")))])
    server = Server(tmp_path, {"gateway": {"port": 0}, "graph": {"enabled": True}})
    try:
        url = f"{server.url}/api/v1/graph/dataset?namespace=db&name=table"

        def name() -> str | None:
            answer = httpx2.get(url)
            return answer.json()["name"] if answer.status_code == 200 else None

        assert server.post(linked).status_code == 200
        wait_until(lambda: name() == "path", 60)
        result = headwater("lineage", "unlink", "path", "table")
        assert result.exit_code == 0, result.output
        assert name() == "table"
        again = linked | {"eventTime": "2026-01-01T01:00:00Z", "job": {"namespace": "jobs", "name": "again"}}
        assert server.post(again).status_code == 200
        wait_until(lambda: "again" in headwater("lineage", "search", "again").stdout, 60)
        assert name() == "table"
        assert headwater("lineage", "link", "table", "path").exit_code == 0
        assert name() == "path"
        refused = headwater("lineage", "link", "table", "path")
        assert refused.exit_code == 1
        assert "were not unlinked" in refused.output
        assert headwater("lineage", "unlink", "path", "nothing").exit_code == 1
    finally:
        assert server.stop(signal.SIGTERM) == 0

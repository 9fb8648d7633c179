"""`headwater mcp`, used by the SDK's own client, and the lineage of notebooks."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from headwater.cli.mcp.server import mcp_server
from headwater.errors import HeadwaterError
from headwater.log.rejects.rejects import rejects_path
from headwater.log.rejects.store import NewReject, RejectStore
from headwater.notebook import lineage
from headwater.settings import Settings
from tests.graph.events import dataset, encoded, run_event
from tests.graph.shop import shop

from .conftest import Headwater

Use = Callable[[Client], Awaitable[Any]]


@pytest.fixture
def settings(headwater: Headwater, tmp_path: Path) -> Settings:
    """A graph of three jobs, one of which failed later, and two rejects."""
    failed = run_event("FAIL", job="report", run=9, minute=50)
    (tmp_path / "events.ndjson").write_bytes(b"\n".join(encoded([*shop(), failed])) + b"\n")
    assert headwater("lineage", "import", str(tmp_path / "events.ndjson")).exit_code == 0
    found = Settings(data_dir=str(tmp_path / "headwater-data"))
    store = RejectStore(rejects_path(found), max_bytes=1_000_000)
    store.add("outlet:backend", [NewReject(f"no job {n}", b'{"secret": 1}', position=n) for n in (4, 5)])
    store.close()
    return found


def use(settings: Settings, work: Use) -> Any:
    """What `work` returns with a client of the server, in this process."""

    async def main() -> Any:
        async with Client(mcp_server(settings)) as client:
            return await work(client)

    return asyncio.run(main())


def call(settings: Settings, tool: str, **arguments: Any) -> dict[str, Any]:
    found = use(settings, lambda client: client.call_tool(tool, arguments))
    assert not found.is_error, found.content
    content: dict[str, Any] = found.structured_content
    return content


def test_every_tool_only_reads_when_they_are_listed(settings: Settings) -> None:
    found = use(settings, lambda client: client.list_tools()).tools
    assert [tool.name for tool in found] == ["search", "trace", "impact", "runs", "rejects"]
    for tool in found:
        assert tool.annotations.read_only_hint is True
        assert tool.description
        assert all("description" in each for each in tool.input_schema["properties"].values()), tool.name


def test_names_are_found_when_a_part_is_searched(settings: Settings) -> None:
    results = call(settings, "search", text="dai")["results"]
    assert {"kind": "dataset", "namespace": "db", "name": "daily"}.items() <= results[0].items()


def test_a_column_is_traced_back_to_the_events_when_it_is_named(settings: Settings) -> None:
    found = call(settings, "trace", name="daily.total", direction="up")
    assert found["incomplete"] == ""
    assert found["tree"].splitlines() == [
        "total  daily  db",
        "upstream",
        "├── price  orders  db  DIRECT AGGREGATION  by report",
        "│   └── amount  events  db  DIRECT TRANSFORMATION  by load",
        "└── id  orders  db  INDIRECT FILTER  by report",
        "    └── id  events  db  DIRECT IDENTITY  by load",
    ]
    assert "letters  db" in call(settings, "trace", name="orders")["tree"]


def test_the_answer_says_so_when_a_limit_cuts_it(settings: Settings) -> None:
    assert "of" in call(settings, "trace", name="orders", limit=1)["incomplete"]


def test_what_is_downstream_is_listed_with_its_jobs_when_a_column_changes(settings: Settings) -> None:
    datasets = call(settings, "impact", name="orders.price")["datasets"]
    assert datasets[0] == {
        "namespace": "db", "name": "daily", "steps": 1, "columns": ["total"], "jobs": ["jobs report"],
    }  # fmt: skip


def test_the_latest_run_is_first_when_the_runs_of_a_job_are_listed(settings: Settings) -> None:
    found = call(settings, "runs", job="report")["runs"]
    assert [run["state"] for run in found] == ["FAIL", "COMPLETE"]
    assert len(call(settings, "runs")["runs"]) == 4


def test_rejects_are_counted_without_their_events_when_they_are_listed(settings: Settings) -> None:
    found = call(settings, "rejects")
    assert found["counts"] == {"outlet:backend": 2}
    (group,) = found["groups"]
    assert (group["events"], group["stage"]) == (2, "outlet:backend")
    assert "secret" not in json.dumps(found)


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("trace", {"name": "nothing"}, "Nothing in the graph is called"),
        ("runs", {"job": "nothing"}, "No job is called nothing"),
        ("trace", {"name": "orders", "limit": 100_000}, "less than or equal to 500"),
        ("rejects", {"stage": 5}, "string"),
    ],
)
def test_the_reason_and_the_hint_are_returned_when_a_call_fails(
    settings: Settings, tool: str, arguments: dict[str, Any], text: str
) -> None:
    found = use(settings, lambda client: client.call_tool(tool, arguments))
    assert found.is_error
    assert text in found.content[0].text


def test_nothing_is_written_when_there_is_no_data(tmp_path: Path) -> None:
    empty = Settings(data_dir=str(tmp_path / "none"))
    for tool, arguments in (("search", {"text": ""}), ("rejects", {})):
        found = use(empty, lambda client: client.call_tool(tool, arguments))  # noqa: B023
        assert found.is_error
    assert list(tmp_path.iterdir()) == []


def test_a_client_speaks_to_the_command_when_it_starts_it(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "headwater.yml").write_text(json.dumps({"data_dir": settings.data_dir}), encoding="utf-8")
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "headwater", "-c", str(tmp_path / "headwater.yml"), "mcp"]
    )

    async def main() -> Any:
        async with Client(command) as client:
            return await client.call_tool("search", {"text": "orders"})

    assert asyncio.run(main()).structured_content["results"][0]["name"] == "orders"


# --- notebooks


def test_a_notebook_shows_nested_lists_when_a_cell_ends_with_lineage(settings: Settings) -> None:
    view = lineage("daily.total", direction="up")
    assert repr(view).splitlines()[:2] == ["total  daily  db", "upstream"]
    shown = view._repr_html_()
    assert (
        "<div>upstream</div><ul><li>price  orders  db  DIRECT AGGREGATION  by report<ul><li>amount" in shown
    )
    assert "\x1b" not in shown + repr(view)
    del settings


def test_text_of_events_is_no_markup_when_a_notebook_shows_it(headwater: Headwater, tmp_path: Path) -> None:
    name = "<script>alert(1)</script>"
    event = run_event(job=name, inputs=[dataset(name, "<b>")], outputs=[dataset("out", "<b>")])
    (tmp_path / "events.ndjson").write_bytes(b"\n".join(encoded([event])) + b"\n")
    assert headwater("lineage", "import", str(tmp_path / "events.ndjson")).exit_code == 0
    shown = lineage("out")._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    with pytest.raises(HeadwaterError, match="Nothing in the graph"):
        lineage("absent")

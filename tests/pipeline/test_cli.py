"""The pipeline as people run it: `headwater pipeline run`, `check --event`, replays; one Spark session."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from click.testing import CliRunner, Result

from headwater.cli.main import cli
from headwater.cli.options import Duration
from headwater.log.files.incoming import Incoming
from headwater.log.files.layout import unprocessed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Headwater = Callable[..., Result]
TEMPLATE = "{% if kind %}{{ kind }}{% if at is defined %}_{{ at | date('%Y') }}{% endif %}{% endif %}"


@pytest.fixture
def headwater(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Headwater:
    """Run a command as typed, in a folder with a configuration, on the session of the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADWATER_CONFIG", raising=False)
    configure(tmp_path)

    def run(*arguments: str, input: bytes | None = None) -> Result:
        return CliRunner().invoke(cli, list(arguments), input=input, prog_name="headwater")

    return run


def configure(folder: Path, **changes: Any) -> None:
    destination = {"id": "dwh", "type": "duckdb", "path": "warehouse.duckdb", "table_name_template": TEMPLATE}
    settings = {
        "tokens": [{"id": "web", "client_secret": "c"}],
        "destinations": [destination | changes],
    }
    (folder / "headwater.yml").write_text(json.dumps(settings))


def send(folder: Path, *events: Any) -> Path:
    events_dir = folder / "headwater-data" / "events"
    incoming = Incoming(events_dir)
    incoming.append_wait("web", [json.dumps(event).encode() for event in events])
    incoming.close()
    return events_dir


def test_what_gathered_becomes_rows_and_the_numbers_add_up_when_it_is_run(
    headwater: Headwater, tmp_path: Path
) -> None:
    events = send(
        tmp_path, {"kind": "a", "n": 1}, {"kind": "a", "n": 2.5}, {"kind": ""}, {"kind": "b", "at": "x"}
    )
    result = headwater("pipeline", "run")
    assert result.exit_code == 0, result.output
    assert "dwh: 4 events = 2 rows + 1 skipped + 1 rejected" in result.output
    assert "1 of 1 file(s) done" in result.output
    assert unprocessed(events) == []
    assert "no complete files are waiting" in headwater("pipeline", "run").output
    stat = json.loads(headwater("status", "--json").stdout)["events"]
    (dwh,) = stat["destinations"]
    assert dwh["events"] == dwh["rows"] + dwh["skipped"] + dwh["rejected"] == 4
    assert stat["last_cycle"]["errors"] == []


def test_the_numbers_are_those_of_whole_files_when_one_is_loaded_in_part(
    headwater: Headwater, tmp_path: Path
) -> None:
    with duckdb.connect(str(tmp_path / "warehouse.duckdb")) as connection:
        connection.execute("CREATE TABLE b AS SELECT 1::BIGINT AS n FROM range(2)")  # not unique
    configure(tmp_path, adopt_tables=["b"], primary_key=["/n"])
    send(tmp_path, {"kind": "a", "n": 1}, {"kind": "a", "n": 2}, {"kind": "b", "n": 3})
    result = headwater("pipeline", "run")
    assert result.exit_code == 1
    assert "events =" not in result.output
    assert "dwh: 1 file(s) not loaded whole, 2 rows of them are stored" in result.output
    with duckdb.connect(str(tmp_path / "warehouse.duckdb")) as connection:
        connection.execute("DELETE FROM b")
    result = headwater("pipeline", "run")
    assert "dwh: 3 events = 3 rows + 0 skipped + 0 rejected" in result.output
    assert "not loaded whole" not in result.output


def test_rejects_are_loaded_and_archived_when_they_are_replayed_after_the_fix(
    headwater: Headwater, tmp_path: Path
) -> None:
    events = send(tmp_path, {"kind": "a", "n": 1}, {"kind": "a", "at": "no time", "n": 2})
    assert headwater("pipeline", "run").exit_code == 0
    listed = headwater("rejects", "list", "--stage", "destination:dwh")
    assert "`date` got" in listed.output
    configure(tmp_path, table_name_template="{{ kind }}")
    assert "1 replay(s) requested" in headwater("rejects", "replay", "--stage", "destination:dwh").output
    result = headwater("pipeline", "run", "--json")
    (file,) = json.loads(result.stdout)["files"]
    assert (file["archived"], file["destinations"][0]["pairs"][0]["rows"]) == (True, 1)
    assert file["name"].startswith("failed.dst=dwh-")
    assert "no rejects" in headwater("rejects", "list").output
    assert len(list((events / "archive").glob("*/failed.dst=dwh-*.log.gz"))) == 1


def test_a_file_stays_with_the_reason_when_its_destination_is_unreachable(
    headwater: Headwater, tmp_path: Path
) -> None:
    events = send(tmp_path, {"kind": "a"})
    configure(tmp_path, type="postgres", url="postgresql://127.0.0.1:1/nowhere", path=None)
    settings = json.loads((tmp_path / "headwater.yml").read_text())
    del settings["destinations"][0]["path"]
    (tmp_path / "headwater.yml").write_text(json.dumps(settings))
    result = headwater("pipeline", "run")
    assert result.exit_code == 1
    assert "0 of 1 file(s) done" in result.output
    assert len(unprocessed(events)) == 1
    assert "no connection to Postgres" in headwater("status").output
    configure(tmp_path)
    assert headwater("pipeline", "run").exit_code == 0
    assert unprocessed(events) == []


def test_table_columns_types_and_values_are_shown_when_an_event_is_given(headwater: Headwater) -> None:
    event = b'{"kind": "order", "amount": 2.5, "who": {"id": 7, "new": true}, "tags": [1, "x"]}'
    result = headwater("check", "--event", "-", "--json", input=event)
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)
    assert (found["destination"], found["table"], found["reason"]) == ("dwh", "order", "")
    columns = {each["name"]: (each["sql_type"], each["value"]) for each in found["columns"]}
    assert columns["amount"] == ("DOUBLE", 2.5)
    assert columns["who_id"] == ("BIGINT", 7)
    assert columns["who_new"] == ("BOOLEAN", True)
    assert columns["tags"] == ("VARCHAR", '[1,"x"]')
    assert columns["_timestamp"][0] == "TIMESTAMP"
    assert columns["source_ip"] == ("VARCHAR", "127.0.0.1")


def test_the_reason_is_shown_when_the_event_would_be_no_row(headwater: Headwater, tmp_path: Path) -> None:
    rejected = headwater("check", "--event", "-", input=b'{"kind": "a", "at": "no time"}')
    assert (rejected.exit_code, "dwh: rejected: the filter `date` got" in rejected.output) == (1, True)
    assert "dwh: skipped" in headwater("check", "--event", "-", input=b'{"kind": ""}').output
    shown = headwater("check", "--event", "-", input=b'{"kind": "a", "n": 1}').output
    assert "dwh: table a" in shown
    broken = headwater("check", "--event", "-", input=b"[1]")
    assert (broken.exit_code, "This is not an event" in broken.output) == (1, True)
    assert not (tmp_path / "warehouse.duckdb").exists()


def test_an_error_is_printed_when_there_is_no_destination(headwater: Headwater, tmp_path: Path) -> None:
    (tmp_path / "headwater.yml").write_text("tokens: [{id: web, client_secret: c}]")
    for arguments in (("pipeline", "run"), ("check", "--event", "headwater.yml")):
        result = headwater(*arguments)
        assert (result.exit_code, "`destinations` is empty" in result.output) == (2, True)


def test_the_other_command_is_named_when_the_mode_is_not_its_own(
    headwater: Headwater, tmp_path: Path
) -> None:
    destination = {"id": "dwh", "type": "duckdb", "path": "x.duckdb"}
    for mode, command, part in (("stream", "run", "pipeline stream"), ("batch", "stream", "mode: stream")):
        settings = {"destinations": [destination | {"mode": mode}]}
        (tmp_path / "headwater.yml").write_text(json.dumps(settings))
        result = headwater("pipeline", command)
        assert (result.exit_code, part in result.output) == (2, True)


def test_a_backfill_says_so_when_the_archive_is_empty(headwater: Headwater, tmp_path: Path) -> None:
    found = headwater("pipeline", "backfill", "--destination", "dwh", "--since", "2026-11-16")
    assert (found.exit_code, "the archive has no files for dwh" in found.output) == (0, True)
    assert "--from" in found.output
    unknown = headwater("pipeline", "backfill", "--destination", "x", "--since", "2026-11-16")
    assert (unknown.exit_code, "Known: dwh" in unknown.output) == (1, True)
    wrong = headwater("pipeline", "backfill", "--destination", "dwh", "--since", "soon")
    assert (wrong.exit_code, "is not a time such as" in wrong.output) == (2, True)


def test_a_backfill_says_what_it_leaves_out_when_its_own_queue_began_or_no_event_is_left(
    headwater: Headwater, tmp_path: Path
) -> None:
    send(tmp_path, {"kind": "a", "n": 1, "_timestamp": "2026-11-16T09:00:00Z"})
    assert headwater("pipeline", "run").exit_code == 0
    configure(tmp_path, mode="stream")
    queue = tmp_path / "headwater-data" / "events" / "queue.dst=dwh"
    queue.mkdir()
    (queue / "identity").write_text("x")
    os.utime(queue / "identity", (began := 1_800_000_000, began))
    limit = datetime.fromtimestamp(began, UTC).strftime("%Y-%m-%d %H:%M:%S")
    arguments = ("pipeline", "backfill", "--destination", "dwh", "--since")
    found = headwater(*arguments, "2026-11-16")
    assert found.exit_code == 0
    assert f"events from {limit} UTC on are left out: dwh has had a queue since; --until" in found.output
    assert "dwh: 1 events = 1 rows" in found.output
    none = headwater(*arguments, "2026-11-16T10:00", "--until", "2026-11-17")
    assert none.exit_code == 0
    assert "none of 1 file(s) has an event for dwh since 2026-11-16 10:00:00 and before" in none.output
    assert "--token" in none.output
    assert "are left out" not in none.output


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("5m", 300.0), ("1.5h", 5400.0), ("7", 7.0), ("0.2s", 0.2)]
)
def test_a_pause_is_understood_when_it_has_a_unit(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "soon", "0s", "-5m", "5y", "1h30m"])
def test_a_pause_is_refused_when_it_is_no_time(headwater: Headwater, text: str) -> None:
    result = headwater("pipeline", "run", "--every", text)
    assert (result.exit_code, "is not a time" in result.output) == (2, True)

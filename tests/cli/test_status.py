from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.log.files.file_status import STOPPED, FileStatus, PipelineNow
from headwater.log.files.incoming import Incoming
from headwater.log.files.layout import status_path
from headwater.log.queue.log import Log
from headwater.log.rejects.store import NewReject, RejectStore
from tests.support.waiting import wait_until

from .conftest import Headwater


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Ten events; `fast` has finished all, one of them rejected; `slow` has finished three."""
    log = Log.open(tmp_path / "headwater-data" / "log")
    log.append_wait([b'{"n": %d}' % n for n in range(10)])
    log.reader("fast").finish(range(1, 10), [10])
    log.reader("slow").finish([1, 2, 3])
    log.close()
    rejects = RejectStore(tmp_path / "headwater-data" / "rejects.db", max_bytes=1_000_000)
    rejects.add("outlet:fast", [NewReject("no such job", b'{"n": 9}', position=10)])
    rejects.close()
    return tmp_path / "headwater-data"


def row(output: str, name: str) -> list[str]:
    (line,) = [line for line in output.splitlines() if line.startswith(name + " ")]
    return line.split()


@pytest.mark.usefixtures("data")
def test_the_four_numbers_add_up_when_the_server_is_down(headwater: Headwater) -> None:
    result = headwater("status")
    assert result.exit_code == 0
    assert "headwater is not running" in result.output
    assert "positions 1 to 10" in result.output
    assert row(result.output, "fast")[1:6] == ["10", "9", "1", "0", "0"]
    assert row(result.output, "slow")[1:6] == ["10", "3", "0", "0", "7"]
    assert "rejects: outlet:fast 1" in result.output
    assert "damaged files: none" in result.output


@pytest.mark.usefixtures("data")
def test_a_program_can_add_them_up_when_it_asks_for_json(headwater: Headwater) -> None:
    found = json.loads(headwater("status", "--json").stdout)
    assert found["log"]["running"] is False
    assert found["rejects"] == {"outlet:fast": 1}
    for reader in found["log"]["readers"]:
        dropped = reader["dropped_age"] + reader["dropped_bytes"] + reader["dropped_damage"]
        assert reader["appended"] == 10
        assert reader["appended"] == reader["delivered"] + reader["rejected"] + dropped + reader["lag_events"]


@pytest.mark.usefixtures("data")
def test_the_command_is_named_when_a_removed_outlet_keeps_events(
    headwater: Headwater, tmp_path: Path
) -> None:
    settings = {"outlets": [{"name": "fast", "type": "console"}], "gateway": {"port": 0}}
    (tmp_path / "headwater.yml").write_text(json.dumps(settings), encoding="utf-8")
    for command in ("status", "check"):
        output = headwater(command).output
        assert "run `headwater log forget slow`" in output
        assert "forget fast" not in output
    assert headwater("log", "forget", "slow", "--yes").exit_code == 0
    assert all("log forget" not in headwater(command).output for command in ("status", "check"))


def test_what_the_first_rows_wait_for_is_shown_when_they_are_on_their_way(
    headwater: Headwater, tmp_path: Path
) -> None:
    token = {"id": "web", "client_secret": "a", "server_secret": "b"}
    destination = {"id": "dwh", "type": "duckdb", "path": "x.duckdb"}
    settings = {"tokens": [token], "destinations": [destination], "events": {"rotation_minutes": 2}}
    (tmp_path / "headwater.yml").write_text(json.dumps(settings), encoding="utf-8")
    events = tmp_path / "headwater-data" / "events"
    incoming = Incoming(events)
    try:
        assert "next:" not in headwater("status").output
        incoming.append_wait("web", [b"{}"])
        output = headwater("status").output
        assert "next: the file of token web, " in output
        assert "is complete 5.0 s after its first event; in a steady flow after up to 2 min" in output
        assert "next: no pipeline runs that would load them" in output
        PipelineNow(doing="starting Spark", at=1_000_000_000).save(events)
        incoming.rotate()
        wait_until(lambda: "the file of token web" not in headwater("status").output)
        line = "next: the pipeline loads them; it is starting Spark, since 2001-09-09 01:46:40Z"
        assert line in headwater("status").output
        assert (
            json.loads(headwater("status", "--json").stdout)["events"]["pipeline"]["doing"]
            == "starting Spark"
        )
        PipelineNow(doing=STOPPED, at=1_000_000_001).save(events)
        assert "next: no pipeline runs" in headwater("status").output
    finally:
        incoming.close()


def test_it_says_so_when_the_server_is_running(headwater: Headwater, data: Path) -> None:
    log = Log.open(data / "log")
    try:
        assert "headwater is running" in headwater("status").output
    finally:
        log.close()


def test_a_damaged_file_is_named_when_there_is_one(headwater: Headwater, data: Path) -> None:
    (partition,) = (data / "log").glob("[0-9]*.db")
    partition.write_bytes(b"\0" * partition.stat().st_size)
    result = headwater("status")
    assert result.exit_code == 0
    assert partition.name in result.output.partition("damaged files:")[2]


@pytest.mark.parametrize("name", ["rejects.db", "log/index.db"])
def test_the_rest_is_shown_when_a_store_is_damaged(headwater: Headwater, data: Path, name: str) -> None:
    path = data / name
    assert path.exists()
    path.write_bytes(b"not a database" * 1000)
    result = headwater("status")
    assert result.exit_code == 0
    assert "positions 1 to" in result.output
    assert path.name in result.output
    assert "is damaged" in result.output or "damaged files" in result.output
    assert json.loads(headwater("status", "--json").stdout)["log"]["partitions"]


def test_it_says_so_when_no_outlet_ever_ran(headwater: Headwater, tmp_path: Path) -> None:
    Log.open(tmp_path / "headwater-data" / "log").close()
    result = headwater("status")
    assert "no readers" in result.output
    assert "no events" in result.output
    assert "rejects: none" in result.output


def test_rejects_that_a_limit_took_are_named_when_no_server_runs(headwater: Headwater, data: Path) -> None:
    store = RejectStore(data / "rejects.db", max_bytes=1, retention_bytes=1)
    store.add("outlet:slow", [NewReject("422", b"{}", position=1), NewReject("422", b"{}", position=2)])
    store.add("gateway", [NewReject("not JSON", b"{")])
    store.close()
    output = headwater("status").output
    # the one that was there before is of an acknowledged event too, and older
    assert "1 reject(s) of outlet:fast were dropped, though acknowledged once: beyond retention_b" in output
    assert "2 reject(s) of outlet:slow were dropped, though acknowledged once: beyond retention_b" in output
    assert "1 reject(s) of gateway were dropped: beyond rejects_bytes" in output
    found = json.loads(headwater("status", "--json").stdout)
    assert {(gone["stage"], gone["reason"], gone["events"]) for gone in found["rejects_dropped"]} == {
        ("outlet:fast", "bytes", 1),
        ("outlet:slow", "bytes", 2),
        ("gateway", "bytes", 1),
    }


@pytest.mark.usefixtures("data")
def test_the_numbers_of_a_destination_add_up_when_a_file_is_loaded_in_part(
    headwater: Headwater, data: Path
) -> None:
    path = data / "events" / "incoming" / "incoming.tok=web-2026-11-16T10-00-00.000.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{}")
    status = FileStatus(status_path(path))
    status.mark("dwh", "events", True, rows=2_179)
    status.mark("dwh", "users", False, error="the server is unreachable")
    status.save()
    output = headwater("status").output
    assert row(output, "dwh")[1:6] == ["0", "0", "0", "0", "0"]
    assert "dwh: 2,179 more row(s), of 1 file(s) that other tables lack" in output

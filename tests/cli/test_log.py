from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.log.queue.log import Log
from headwater.log.rejects.store import NewReject, RejectStore
from headwater.log.streams import Queues, StreamCursor, identity_of
from headwater.settings import DestinationSettings

from .conftest import Headwater

BODIES = [b'{"n": 1}', b'{\n  "n": 2,\r\n  "text": "a\\nb"\n}', b'{"n": 3}', b'{"n": 4}']


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "headwater-data" / "log"
    log = Log.open(folder)
    log.append_wait(BODIES)
    log.reader("gone").finish([1])
    log.close()
    return folder


@pytest.mark.usefixtures("folder")
def test_partitions_and_readers_are_shown_when_stat_is_asked_for(headwater: Headwater) -> None:
    result = headwater("log", "stat")
    assert result.exit_code == 0
    lines = [line.split() for line in result.output.splitlines()]
    assert ["gone", "2", "3"] in lines
    found = json.loads(headwater("log", "stat", "--json").stdout)
    assert [(part["first"], part["end"]) for part in found["partitions"]] == [(1, 5)]


@pytest.mark.usefixtures("folder")
def test_nothing_is_found_when_a_whole_log_is_verified(headwater: Headwater) -> None:
    result = headwater("log", "verify")
    assert (result.exit_code, result.stdout) == (0, "all events are readable and intact\n")
    assert json.loads(headwater("log", "verify", "--json").stdout) == {"ok": True, "problems": []}


def test_the_file_is_named_with_exit_code_one_when_a_damaged_log_is_verified(
    headwater: Headwater, folder: Path
) -> None:
    (partition,) = folder.glob("[0-9]*.db")
    partition.write_bytes(partition.read_bytes()[:5000])
    result = headwater("log", "verify")
    assert result.exit_code == 1
    assert partition.name in result.output
    found = json.loads(headwater("log", "verify", "--json").stdout)
    assert found["ok"] is False
    assert found["problems"]


def test_the_reject_is_named_when_its_event_is_damaged(headwater: Headwater, folder: Path) -> None:
    path = folder.parent / "rejects.db"
    store = RejectStore(path, max_bytes=1 << 30)
    store.add("outlet:a", [NewReject("422", b'{"amount": 100}', position=7, received_at=1.5)])
    store.close()
    path.write_bytes(path.read_bytes().replace(b'"amount": 100', b'"amount": 900'))
    result = headwater("log", "verify")
    assert result.exit_code == 1
    assert "reject 1 of outlet:a is damaged on disk" in result.output
    path.write_bytes(b"not a database" * 1000)
    assert "rejects.db is damaged" in headwater("log", "verify").output


@pytest.fixture
def queue(folder: Path) -> Path:
    """A queue of a stream, with its cursor."""
    events = folder.parent / "events"
    destination = DestinationSettings(id="now", type="duckdb", mode="stream")
    queues = Queues(events, [destination])
    queues.log("now").append_wait([b'{"amount":%d}' % n for n in range(9)])
    queues.close()
    found = events / "queue.dst=now"
    StreamCursor(queue=identity_of(found), position=3, archived=1).save(found)
    return found


@pytest.mark.usefixtures("queue")
def test_nothing_is_found_when_the_queues_of_streams_are_whole(headwater: Headwater) -> None:
    assert headwater("log", "verify").stdout == "all events are readable and intact\n"
    assert "queue.dst=now" not in headwater("status").output


def test_the_queue_is_named_by_verify_and_status_when_one_of_a_stream_is_damaged(
    headwater: Headwater, queue: Path
) -> None:
    cursor = queue / "stream" / "cursor.json"
    cursor.write_bytes(cursor.read_bytes().replace(b'"position":3', b'"position":8'))
    result = headwater("log", "verify")
    assert result.exit_code == 1
    assert "file: queue.dst=now/stream/cursor.json" in result.output
    assert "damaged: queue.dst=now: stream/cursor.json" in headwater("status").output
    (partition,) = queue.glob("[0-9]*.db")
    partition.write_bytes(partition.read_bytes()[:5000])
    result = headwater("log", "verify")
    assert result.exit_code == 1
    assert f"file: queue.dst=now/{partition.name}" in result.output
    assert f"damaged: queue.dst=now: {partition.name}" in headwater("status").output
    found = json.loads(headwater("status", "--json").stdout)["events"]["damaged"]
    assert {each["file"] for each in found} == {"queue.dst=now"}


@pytest.mark.usefixtures("folder")
def test_each_event_is_one_line_when_it_is_exported(headwater: Headwater) -> None:
    result = headwater("log", "export")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines == ['{"n": 1}', '{"n":2,"text":"a\\nb"}', '{"n": 3}', '{"n": 4}']
    assert "4 event(s) exported" in result.output


@pytest.mark.usefixtures("folder")
def test_only_the_asked_for_positions_are_exported_when_bounds_are_given(
    headwater: Headwater, tmp_path: Path
) -> None:
    result = headwater("log", "export", "--first", "2", "--last", "3", "--json", "-o", "out.ndjson")
    assert result.exit_code == 0
    lines = [json.loads(line) for line in (tmp_path / "out.ndjson").read_text(encoding="utf-8").splitlines()]
    assert [(line["position"], line["event"]["n"]) for line in lines] == [(2, 2), (3, 3)]
    assert all(line["received_at"] > 0 for line in lines)


@pytest.mark.usefixtures("folder")
def test_a_readers_cursor_is_gone_when_it_is_forgotten(headwater: Headwater) -> None:
    result = headwater("log", "forget", "gone", input="y\n")
    assert result.exit_code == 0
    assert "gone is forgotten" in result.output
    assert json.loads(headwater("log", "stat", "--json").stdout)["readers"] == []


@pytest.mark.usefixtures("folder")
def test_the_cursor_stays_when_the_question_is_not_answered_with_yes(headwater: Headwater) -> None:
    assert headwater("log", "forget", "gone", input="n\n").exit_code == 1
    assert len(json.loads(headwater("log", "stat", "--json").stdout)["readers"]) == 1


@pytest.mark.usefixtures("folder")
def test_the_known_readers_are_named_when_an_unknown_one_is_to_be_forgotten(headwater: Headwater) -> None:
    result = headwater("log", "forget", "unknown", "--yes")
    assert result.exit_code == 1
    assert "Known are: gone." in result.output


def test_nothing_is_forgotten_when_the_server_is_running(headwater: Headwater, folder: Path) -> None:
    log = Log.open(folder)
    try:
        result = headwater("log", "forget", "gone", "--yes")
    finally:
        log.close()
    assert result.exit_code == 1
    assert "is in use by process" in result.output


@pytest.mark.parametrize("name", ["stat", "verify", "export"])
def test_the_folder_is_named_when_there_is_none(headwater: Headwater, name: str) -> None:
    result = headwater("log", name)
    assert result.exit_code == 1
    assert "headwater-data/log does not exist" in result.output

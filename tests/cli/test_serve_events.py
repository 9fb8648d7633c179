"""`headwater serve` with tokens: events for the pipeline, over real sockets, signals and kills."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import httpx2
import pytest

from headwater.log.files.incoming import finish_interrupted
from headwater.log.files.layout import unprocessed
from headwater.log.queue.offline import export
from tests.log.event_parts import events_in
from tests.support.server import Server

from .conftest import Headwater

SETTINGS = {"tokens": [{"id": "web", "client_secret": "c", "server_secret": "s"}]}


def post(server: Server, number: int) -> int:
    answer = httpx2.post(f"{server.url}/api/v1/s2s/event", json={"n": number}, headers={"x-auth-token": "s"})
    return answer.status_code


def numbers(folder: Path) -> list[int]:
    events = folder / "headwater-data" / "events"
    return [json.loads(event)["n"] for file in unprocessed(events) for event in events_in(file.path)]


def test_events_are_in_a_complete_file_when_the_server_was_stopped(tmp_path: Path) -> None:
    server = Server(tmp_path, SETTINGS)
    assert [post(server, number) for number in range(3)] == [200, 200, 200]
    assert httpx2.get(f"{server.url}/readyz").status_code == 200
    assert "headwater_incoming_events_appended_total" in httpx2.get(f"{server.url}/metrics").text
    assert server.stop() == 0
    assert numbers(tmp_path) == [0, 1, 2]
    loaded = (tmp_path / "modules.txt").read_text().split()
    assert not {"pyspark", "duckdb", "pyarrow"} & set(loaded)


def test_every_acknowledged_event_is_there_once_when_the_server_was_killed(tmp_path: Path) -> None:
    server = Server(tmp_path, SETTINGS)
    assert post(server, 0) == 200
    server.stop(signal.SIGKILL)
    again = Server(tmp_path, SETTINGS)
    assert post(again, 1) == 200
    assert numbers(tmp_path) == [0]  # what the dead one left is complete
    again.stop(signal.SIGKILL)
    finish_interrupted(tmp_path / "headwater-data" / "events")
    assert numbers(tmp_path) == [0, 1]


@pytest.mark.parametrize("point", ["incoming.before_write", "incoming.after_write", "incoming.after_sync"])
def test_nothing_is_acknowledged_that_is_not_there_when_it_dies_at_a_write(
    tmp_path: Path, point: str
) -> None:
    server = Server(tmp_path, SETTINGS, env=os.environ | {"HEADWATER_CRASH_POINT": f"{point}:3"})
    acknowledged = []
    for number in range(5):
        try:
            if post(server, number) == 200:
                acknowledged.append(number)
        except (httpx2.HTTPError, RuntimeError):
            break
    assert server.wait(30) == -signal.SIGKILL
    assert acknowledged == [0, 1]
    finish_interrupted(tmp_path / "headwater-data" / "events")
    assert numbers(tmp_path)[:2] == acknowledged
    assert numbers(tmp_path) in ([0, 1], [0, 1, 2])


def test_events_are_in_the_queue_when_a_destination_is_in_stream_mode(
    tmp_path: Path, headwater: Headwater
) -> None:
    destinations = [
        {"id": "now", "type": "duckdb", "path": "x.duckdb", "mode": "stream"},
        {"id": "later", "type": "duckdb", "path": "x.duckdb"},
    ]
    server = Server(tmp_path, SETTINGS | {"destinations": destinations})
    assert [post(server, number) for number in range(3)] == [200, 200, 200]
    queue = tmp_path / "headwater-data" / "events" / "queue.dst=now"
    assert [json.loads(event.body)["n"] for event in export(queue)] == [0, 1, 2]
    assert 'headwater_queue_lag_events{destination="now"} 3' in httpx2.get(f"{server.url}/metrics").text
    assert httpx2.get(f"{server.url}/readyz").status_code == 200
    [stream] = json.loads(headwater("status", "--json").stdout)["events"]["streams"]
    assert (stream["id"], stream["waiting"], stream["rows"], stream["running"]) == ("now", 3, 0, False)
    assert "now" in headwater("status").output
    assert server.stop() == 0
    assert numbers(tmp_path) == [0, 1, 2]
    loaded = (tmp_path / "modules.txt").read_text().split()
    assert not {"pyspark", "duckdb", "pyarrow"} & set(loaded)


def test_the_second_server_is_refused_when_two_have_one_events_folder(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    shared = SETTINGS | {"events": {"dir": str(tmp_path / "events")}}
    first = Server(tmp_path / "first", shared)
    assert post(first, 0) == 200
    second = Server(tmp_path / "second", shared)
    assert second.wait(60) == 1
    assert "is in use by process" in second.output
    assert post(first, 1) == 200
    assert first.stop() == 0

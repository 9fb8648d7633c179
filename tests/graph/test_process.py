"""The writer of the graph in a process of its own."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.server import graph_process
from headwater.errors import LogLocked, LogUnavailable
from headwater.graph.ingest.follower import LogFollower
from headwater.graph.ingest.process import IngestProcess
from headwater.graph.query.query import GraphQuery
from headwater.graph.store.database import FILE, GraphDatabase
from headwater.log.queue.log import Log
from headwater.metrics import Metrics
from headwater.settings import GraphSettings, Settings
from tests.graph.events import content, encoded, flow, graph_of
from tests.graph.shop import shop


def started(folder: Path) -> IngestProcess:
    return IngestProcess(folder, GraphSettings(), graph_process.command(Settings()))


@pytest.fixture
def process(tmp_path: Path) -> Iterator[IngestProcess]:
    process = started(tmp_path / "graph")
    yield process
    process.close()


def received(events: Iterable[Any]) -> list[tuple[float, bytes]]:
    return [(1_800_000_000.0, body) for body in encoded(events)]


def test_the_graph_is_the_same_when_another_process_writes_it(process: IngestProcess, tmp_path: Path) -> None:
    events = [*shop(), {"no": "event"}]
    assert process.position == 0
    result = process.ingest_received(received(events), 5)
    assert (result.events, result.invalid) == (4, 1)
    assert process.position == 5
    assert process.clean_up(1_800_000_000.0) == 0
    graph_of(tmp_path / "own", events).close()
    assert content(tmp_path / "graph") == content(tmp_path / "own")


def test_it_is_started_again_when_it_was_killed(process: IngestProcess, tmp_path: Path) -> None:
    process.ingest_received(received(shop()), 4)
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(LogUnavailable, match="The process of the graph ended"):
        process.ingest_received(received(shop()), 5)
    assert process.position == 4
    process.ingest_received(received([flow("more", ["daily"], ["mails"])]), 5)
    with GraphQuery(tmp_path / "graph") as query:
        assert query.summary().jobs == 4


def test_it_is_refused_when_another_process_writes_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.graph.ingest import process as module

    database = GraphDatabase(tmp_path)
    command = (
        sys.executable,
        "-c",
        "from headwater.graph.ingest import process; process.LOCK_SECONDS = 0.0\n"
        "from headwater.cli.server import graph_process; import sys; sys.argv[1:] = ['text', 'info']\n"
        "graph_process.main()",
    )
    with pytest.raises(LogLocked, match="in use by"):
        module.IngestProcess(tmp_path, GraphSettings(), command)
    database.close()


def test_it_ends_when_the_server_is_gone(tmp_path: Path) -> None:
    process = started(tmp_path)
    pid = process.pid
    os.kill(pid, signal.SIGTERM)  # as a terminal or a supervisor sends to all processes
    process.ingest_received(received(shop()), 4)
    process.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_all_that_the_log_holds_is_ingested_again_when_a_new_process_finds_the_graph_damaged(
    tmp_path: Path,
) -> None:
    log = Log.open(tmp_path / "log")
    log.append_wait(encoded(shop()))
    process = started(tmp_path / "graph")
    follower = LogFollower(log, process, Metrics(), pause_seconds=0.01)
    follower.start()
    try:
        wait_for(lambda: follower.lag_events == 0)
        process.close()
        for path in (tmp_path / "graph").glob(f"{FILE}*"):
            path.write_bytes(b"not a database" * 1000 if path.name == FILE else b"")
        log.append_wait(encoded([flow("more", ["daily"], ["mails"])]))
        wait_for(lambda: follower.lag_events == 0)
    finally:
        follower.close()
        log.close()
    with GraphQuery(tmp_path / "graph") as query:
        assert query.summary().jobs == 4


def wait_for(condition: object) -> None:
    for _ in range(1_000):
        if condition():  # type: ignore[operator]
            return
        time.sleep(0.02)
    raise AssertionError("It did not happen.")

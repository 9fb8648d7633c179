"""The follower of the log, and the import of files."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from headwater.clock import ManualClock
from headwater.graph.ingest.follower import CLEANUP_SECONDS, READER, LogFollower
from headwater.graph.ingest.import_files import import_events, read_events
from headwater.graph.query.query import GraphQuery
from headwater.graph.store.database import FILE, GraphDatabase
from headwater.log.queue.log import Log
from headwater.metrics import Metrics
from headwater.settings import GraphSettings
from tests.graph.events import content, encoded, flow, graph_of, run_event
from tests.graph.shop import shop


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_events_are_in_the_graph_when_they_were_appended(tmp_path: Path) -> None:
    metrics = Metrics()
    with_log = Log.open(tmp_path / "log")
    follower = LogFollower(with_log, GraphDatabase(tmp_path / "graph"), metrics, pause_seconds=0.01)
    follower.start()
    with_log.append_wait([*encoded(shop()), b"[]"])
    until(lambda: follower.lag_events == 0)
    with_log.append_wait(encoded([flow("more", ["letters"], ["archive"], minute=4)]))
    until(lambda: follower.lag_events == 0)
    assert follower.stalled_reason() == ""
    assert with_log.reader(READER).lag_events() == 0
    follower.close()
    with_log.close()
    assert metrics.counter("graph_events_ingested").values[()] == 4
    assert metrics.counter("graph_events_invalid").values[()] == 1
    with GraphQuery(tmp_path / "graph") as query:
        assert len(query.neighbourhood("db", "events", direction="down", depth=9).datasets) == 5


def test_only_new_events_are_read_when_the_follower_starts_again(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    log.append_wait(encoded(shop()))
    for total in (3, 4):
        metrics = Metrics()
        follower = LogFollower(log, GraphDatabase(tmp_path / "graph"), metrics, pause_seconds=0.01)
        follower.start()
        until(lambda follower=follower: follower.lag_events == 0)  # type: ignore[misc]
        follower.close()
        graph = GraphDatabase(tmp_path / "graph")
        assert graph.position == total + 1
        graph.close()
        assert metrics.counter("graph_events_ingested").values[()] == (3 if total == 3 else 1)
        log.append_wait(encoded([flow("more", ["letters"], ["archive"], minute=4)]))
    log.close()


def test_all_events_of_the_log_are_ingested_again_when_the_graph_is_gone(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    log.append_wait(encoded(shop()))
    for name in ("one", "two"):
        follower = LogFollower(log, GraphDatabase(tmp_path / name), Metrics(), pause_seconds=0.01)
        follower.start()
        until(lambda follower=follower: follower.lag_events == 0)  # type: ignore[misc]
        follower.close()
    log.close()
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_the_log_is_ingested_from_its_start_when_the_graph_is_ahead_of_it(tmp_path: Path) -> None:
    graph = GraphDatabase(tmp_path / "graph")
    graph.ingest(encoded([flow("j", ["a"], ["b"])]), 1_000)
    log = Log.open(tmp_path / "log")
    log.append_wait(encoded(shop()))
    follower = LogFollower(log, graph, Metrics(), pause_seconds=0.01)
    follower.start()
    until(lambda: follower.lag_events == 0)
    follower.close()
    log.close()
    with GraphQuery(tmp_path / "graph") as query:
        assert query.dataset("db", "orders").name == "orders"


@pytest.mark.parametrize("point", ["graph.before_commit:3", "graph.after_commit:2", "cursor.before_commit:4"])
def test_the_graph_is_the_same_when_the_follower_is_killed_and_restarted(tmp_path: Path, point: str) -> None:
    bodies = encoded(
        [
            event
            for minute in range(0, 60, 3)
            for event in (*shop(), flow(f"j{minute}", ["a"], ["b"], minute=minute))
        ]
    )
    log = Log.open(tmp_path / "log")
    log.append_wait(bodies)
    log.close()
    command = [sys.executable, "-m", "tests.graph.ingest_process", str(tmp_path)]
    killed = subprocess.run(command, env=os.environ | {"HEADWATER_CRASH_POINT": point}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert subprocess.run(command, check=False).returncode == 0
    graph_of(tmp_path / "whole", map(orjson.loads, bodies)).close()
    assert content(tmp_path / "graph") == content(tmp_path / "whole")
    graph = GraphDatabase(tmp_path / "graph")
    assert graph.position == len(bodies) + 1
    graph.close()
    log = Log.open(tmp_path / "log")
    reader = log.reader(READER)
    assert (reader.position, reader.lag_events()) == (len(bodies) + 1, 0), (
        "else the log keeps them without limit"
    )
    log.close()


def test_no_event_is_passed_over_when_an_earlier_copy_of_the_log_has_grown_beyond_the_graph(
    tmp_path: Path,
) -> None:
    log = Log.open(tmp_path / "log")
    log.append_wait(encoded(shop()))
    log.close()
    shutil.copytree(tmp_path / "log", tmp_path / "copy")

    def ingest(*events: object) -> None:
        log = Log.open(tmp_path / "log")
        log.append_wait(encoded(events))
        follower = LogFollower(log, GraphDatabase(tmp_path / "graph"), Metrics(), pause_seconds=0.01)
        follower.start()
        until(lambda: follower.lag_events == 0)
        follower.close()
        log.close()

    ingest(flow("before", ["a"], ["b"], minute=1))
    shutil.rmtree(tmp_path / "log")
    (tmp_path / "copy").rename(tmp_path / "log")
    # more events than the graph has seen: its position lies within the log again
    ingest(*(flow(f"after{n}", [f"c{n}"], [f"d{n}"], minute=2 + n) for n in range(5)))
    with GraphQuery(tmp_path / "graph") as query:
        for name in ("b", *(f"d{n}" for n in range(5))):
            assert query.dataset("db", name).name == name


@pytest.mark.parametrize("restarted", [False, True])
def test_nothing_is_removed_by_age_when_the_clock_has_leapt(tmp_path: Path, restarted: bool) -> None:
    clock = ManualClock()
    log = Log.open(tmp_path / "log", clock=clock)

    def started() -> LogFollower:
        graph = GraphDatabase(tmp_path / "graph", GraphSettings(retention_days=10), clock=clock)
        return LogFollower(log, graph, Metrics())

    def ingest(job: str) -> set[str]:
        """Ingest an event of this moment and clean up; returns which jobs the graph then has."""
        time = datetime.fromtimestamp(clock.now(), UTC).isoformat()
        log.append_wait(encoded([run_event(job=job, outputs=["t"]) | {"eventTime": time}]))
        follower._ingest_next_batch()
        clock.advance(CLEANUP_SECONDS)
        follower._ingest_next_batch()
        return {row[0] for row in follower._database._connection.execute("SELECT name FROM jobs")}  # type: ignore[attr-defined]

    follower = started()
    assert ingest("old") == {"old"}
    if restarted:
        follower.close()
    clock.jump(100 * 86_400)
    if restarted:
        follower = started()
    assert ingest("ahead") == {"old", "ahead"}
    clock.advance(
        11 * 86_400
    )  # after the age limit the leap is believed: by now the event is old in any case
    assert ingest("later") == {"later"}
    follower.close()
    log.close()


def test_files_and_folders_are_imported_when_named(tmp_path: Path) -> None:
    bodies = encoded(shop())
    lines = tmp_path / "events.ndjson"
    lines.write_bytes(b"\n".join([bodies[0], b"", b"not json"]))  # without a newline at the end
    wrapped = tmp_path / "export.ndjson"
    wrapped.write_bytes(b'{"position":2,"received_at":1.5,"event":' + bodies[1] + b"}\n")
    log = Log.open(tmp_path / "log")
    log.append_wait(bodies[2:])
    log.close()
    graph = GraphDatabase(tmp_path / "graph")
    progress: list[int] = []
    assert import_events(graph, read_events(lines), batch_events=1, on_progress=progress.append)[:2] == (2, 1)
    assert import_events(graph, read_events(wrapped))[:2] == (1, 0)
    assert import_events(graph, read_events(tmp_path / "log"))[:2] == (1, 0)
    packed = tmp_path / "events.ndjson.gz"
    packed.write_bytes(gzip.compress(lines.read_bytes()))
    assert import_events(graph, read_events(packed))[:2] == (2, 1)
    graph.close()
    assert progress == [len(bodies[0]) + 1, len(bodies[0]) + len(b"\nnot json")]
    graph_of(tmp_path / "whole", shop()).close()
    assert content(tmp_path / "graph") == content(tmp_path / "whole")
    assert (tmp_path / "graph" / FILE).exists()

"""What the server reports of a pipeline that is another process: each state in /readyz and in the metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater import __version__
from headwater.cli.server import pipeline_watch
from headwater.cli.server.pipeline_watch import PipelineWatch
from headwater.clock import ManualClock
from headwater.log.files.file_status import LastCycle
from headwater.log.files.incoming import Incoming
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from headwater.log.rejects.store import NewReject, RejectStore
from headwater.log.streams import Queues, StreamCursor, identity_of
from headwater.metrics import Metrics
from headwater.settings import Settings

LIVE = {"id": "live", "type": "duckdb", "mode": "stream"}


class Watched:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metrics = Metrics()
        self.rejects = RejectStore(folder / "rejects.db", max_bytes=10_000, retention_bytes=1_000)

    def look(self, **settings: Any) -> list[str]:
        raw = {"data_dir": str(self.folder), "log": {"retention_bytes": 1_000}} | settings
        watch = PipelineWatch(msgspec.convert(raw, Settings), self.rejects, self.metrics)
        watch.look()
        return watch.reasons()

    def gauge(self, name: str, *labels: str) -> float:
        return self.metrics.gauge(name).values[labels]

    def queue(self, *events: bytes, id: str = "live") -> Path:
        settings = msgspec.convert({"destinations": [LIVE | {"id": id}]}, Settings)
        queues = Queues(self.folder / "events", settings.destinations)
        queues.log(id).append_wait(events)
        queues.close()
        return self.folder / "events" / f"queue.dst={id}"


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.rejects.close()


def test_release_and_free_space_are_reported_when_there_is_no_pipeline(watched: Watched) -> None:
    assert watched.look() == []
    [labels] = watched.metrics.gauge("build_info").values
    assert labels[0] == __version__
    assert watched.gauge("disk_free_bytes") > 0


def test_the_error_of_a_stream_is_a_reason_when_its_cursor_has_one(watched: Watched) -> None:
    queue = watched.queue(b"{}", b"{}")
    cursor = StreamCursor(
        queue=identity_of(queue), position=2, archived=1, rows=1, missing=4, error="no table"
    )
    cursor.save(queue)
    assert watched.look(destinations=[LIVE]) == ["stream live: no table"]  # those were missing long ago
    found = {
        name: watched.gauge(name, "live")
        for name in ("stream_failing", "stream_running", "stream_waiting_events", "stream_missing_events")
    }
    assert list(found.values()) == [1, 0, 1, 4]
    assert watched.gauge("destination_rows", "live") == 1


def test_missing_events_of_a_stream_are_a_reason_for_an_hour(watched: Watched) -> None:
    queue = watched.queue(b"{}")
    clock = ManualClock()
    raw = {"data_dir": str(watched.folder), "destinations": [LIVE]}
    watch = PipelineWatch(msgspec.convert(raw, Settings), watched.rejects, watched.metrics, clock=clock)
    cursor = StreamCursor(queue=identity_of(queue), position=2, archived=2)
    cursor.save(queue)
    watch.look()
    assert watch.reasons() == []
    cursor.missing, cursor.missing_at = 4, clock.now()
    cursor.save(queue)
    for seconds in (86_400, -86_400):
        watch.look()
        assert watch.reasons() == [
            "stream live: 4 event(s) were missing from its queue; see `headwater status`"
        ]
        clock.jump(seconds)
    clock.advance(3600)
    watch.look()
    assert watch.reasons() == []


def test_a_stream_without_a_process_is_a_reason_when_its_events_wait_for_long(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.queue(b"{}")
    assert watched.look(destinations=[LIVE]) == []
    monkeypatch.setattr(pipeline_watch, "DEAD_SECONDS", 0.0)
    assert watched.look(destinations=[LIVE]) == [
        "stream live: events wait, and no `headwater pipeline stream` runs"
    ]


def test_a_batch_pipeline_that_is_late_is_a_reason_when_files_wait(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    incoming = Incoming(watched.folder / "events")
    incoming.append_wait("web", [b"{}"])
    incoming.close()
    LastCycle(at=5.0, seconds=2.0, files=1, errors=["the disk is gone"]).save(watched.folder / "events")
    batch = {"destinations": [{"id": "dwh", "type": "duckdb"}], "events": {"rotation_minutes": 1e-9}}
    assert watched.look(**batch) == []
    monkeypatch.setattr(pipeline_watch, "LATE_SECONDS", 0.0)
    [reason] = watched.look(**batch)
    assert reason.startswith("pipeline: the oldest event file has waited for")
    assert reason.endswith(": the disk is gone")
    assert watched.gauge("pipeline_last_cycle_timestamp_seconds") == 5
    assert watched.gauge("pipeline_last_cycle_seconds") == 2
    assert watched.gauge("pipeline_last_cycle_errors") == 1
    assert watched.gauge("incoming_oldest_seconds") > 0


@pytest.mark.parametrize("jump", [86_400, -86_400])
def test_the_age_of_the_oldest_file_is_right_when_the_clock_jumps(watched: Watched, jump: float) -> None:
    clock = ManualClock(time.time() + 60)
    incoming = Incoming(watched.folder / "events")
    incoming.append_wait("web", [b"{}"])
    incoming.close()
    raw = {"data_dir": str(watched.folder), "events": {"rotation_minutes": 1e-9}}
    watch = PipelineWatch(msgspec.convert(raw, Settings), watched.rejects, watched.metrics, clock=clock)
    watch.look()
    began = watched.gauge("incoming_oldest_seconds")
    assert began == pytest.approx(60, abs=30)
    clock.jump(jump)
    clock.advance(600)
    watch.look()
    assert watched.gauge("incoming_oldest_seconds") == pytest.approx(began + 600)


def test_events_without_a_destination_are_a_reason_until_they_are_given_up(watched: Watched) -> None:
    queue = watched.queue(b"{}", id="old")
    [reason] = watched.look()
    assert "headwater pipeline forget old" in reason
    assert watched.gauge("orphaned_events", "old") == 1
    queue.rename(watched.folder / "elsewhere")
    assert watched.look() == []
    assert watched.gauge("orphaned_events", "old") == 0


def test_damage_is_a_reason_when_a_queue_has_some(watched: Watched) -> None:
    queue = watched.queue(b"{}")
    (queue / "stream" / "cursor.json").write_text("{")
    [reason] = watched.look(destinations=[LIVE])
    assert reason.startswith("damaged: queue.dst=live:")
    assert watched.gauge("events_damaged_files") == 1


def test_the_oldest_rejects_of_a_destination_go_and_are_reported_when_they_exceed_their_limit(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    rejects = DestinationRejects(watched.folder / "events")
    errors = [
        EventError.of(b"{}", "no", destination_id="dwh", source=f"f:{number}", at=time.time())
        for number in range(20)
    ]
    rejects.append("dwh", errors)
    [reason] = watched.look()
    left = rejects.counts()["dwh"]
    assert 0 < left < 20
    assert f"{20 - left} of destination:dwh by bytes" in reason
    assert f"{20 - left} rejects of destination:dwh were dropped for good" in caplog.text
    counted = watched.metrics.counter("rejects_dropped").values
    assert counted["destination:dwh", "bytes"] == sum(counted.values()) == 20 - left
    assert watched.gauge("rejects_by_stage", "destination:dwh") == left
    assert 0.5 < watched.gauge("rejects_full_ratio", "destination:dwh") < 0.9
    rejects.drop("dwh")
    watched.look()
    assert watched.gauge("rejects_by_stage", "destination:dwh") == 0


def test_rejects_are_counted_by_stage_and_a_reason_when_their_limit_is_near(watched: Watched) -> None:
    watched.rejects.add("gateway", [NewReject("no", b"x" * 300)])
    assert watched.look() == []
    watched.rejects.add("outlet:a", [NewReject("no", b"x" * 500), NewReject("no", b"x")])
    [reason] = watched.look()
    assert reason == "rejects: those of outlets fill 91% of their limit; the oldest go at 100%"
    assert watched.gauge("rejects_by_stage", "gateway") == 1
    assert watched.gauge("rejects_by_stage", "outlet:a") == 2
    watched.rejects.drop(None, "outlet:a")
    assert watched.look() == []
    assert watched.gauge("rejects_by_stage", "outlet:a") == 0

"""The limits that the user set hold, and what they cost is counted exactly (G3).

The test under load has a limit of 8 MiB; with `--full`, 50 MiB.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from headwater.clock import ManualClock
from headwater.log.queue import offline as inspect
from headwater.log.queue.log import Log
from headwater.log.queue.partition_file import (
    PartitionRange,
    PartitionWriter,
    partition_path,
    partition_paths,
)
from headwater.log.queue.retention import removals
from headwater.log.queue.sqlite import damaged_file_names
from headwater.metrics import Metrics
from tests.log.parts import MIB, FaultyDisk, adds_up, body, copy_of, fill, read_all, small

HOUR = 3600


def partition(first: int, end: int, at: float, size: int = 100) -> PartitionRange:
    return PartitionRange(Path(f"{first:020d}.db"), first, end, at, at, size)


THREE = [partition(1, 10, 0), partition(10, 20, 5 * HOUR), partition(20, 30, 9 * HOUR)]


@pytest.mark.parametrize(
    ("positions", "hours", "size", "now", "expected"),
    [
        ([], 100, 10_000, 10, []),
        ([15], 100, 10_000, 10, [(1, "passed")]),
        ([15, 30], 100, 10_000, 10, [(1, "passed")]),
        ([30, 30], 100, 10_000, 10, [(1, "passed"), (10, "passed"), (20, "passed")]),
        ([1], 4, 10_000, 10, [(1, "age"), (10, "age")]),
        ([10], 4, 10_000, 10, [(1, "passed"), (10, "age")]),
        ([], 4, 10_000, 10, [(1, "age"), (10, "age")]),
        ([1], 100, 250, 10, [(1, "bytes")]),
        ([1], 100, 151, 10, [(1, "bytes"), (10, "bytes")]),
        ([10], 6, 151, 10, [(1, "passed"), (10, "bytes")]),
        ([1], 100, 50, 10, [(1, "bytes"), (10, "bytes"), (20, "bytes")]),
        ([1], 6, 10_000, -100, []),  # a clock far behind drops nothing
    ],
)
def test_the_oldest_go_first_and_for_the_right_reason_when_limits_are_passed(
    positions: list[int], hours: float, size: int, now: float, expected: list[tuple[int, str]]
) -> None:
    settings = small(partition_bytes=50, retention_bytes=size, retention_hours=hours)
    chosen = removals(THREE, positions, settings, now * HOUR)
    assert [(removal.partition.first, removal.reason) for removal in chosen] == expected


def folder_bytes(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            pass  # collected while we looked
    return total


def test_the_folder_never_grows_beyond_the_limit_when_a_reader_never_advances(
    tmp_path: Path, full: bool
) -> None:
    metrics = Metrics()
    limit = (50 if full else 8) * MIB
    settings = small(
        partition_bytes=limit // 8, retention_bytes=limit, max_commit_bytes=limit // 64, collect_seconds=1
    )
    log = Log.open(tmp_path / "log", settings, metrics=metrics)
    log.reader("stuck")
    samples: list[int] = []
    done = threading.Event()

    def sample() -> None:
        while not done.is_set():
            samples.append(folder_bytes(log.folder))

    watcher = threading.Thread(target=sample)
    watcher.start()
    answered = threading.Semaphore(20)
    appended = 0
    while appended * 5000 < 4 * limit:
        answered.acquire()
        bodies = [os.urandom(5000) for _ in range(10)]
        log.append(bodies, lambda tokens, error: answered.release(len(tokens)), None)
        appended += len(bodies)
    for _ in range(20):
        answered.acquire()
    done.set()
    watcher.join()
    assert log.end == appended + 1
    assert len(samples) > 20
    assert max(samples) <= limit + settings.partition_bytes
    print(f"largest {max(samples):,} bytes in {len(samples):,} samples; the limit is {limit:,}")
    stuck = log.stat().readers[0]
    assert stuck.dropped_bytes == log.stat().first - 1 > appended // 2
    dropped = metrics.counter("log_events_dropped").values
    assert {labels: n for labels, n in dropped.items() if n} == {("stuck", "bytes"): stuck.dropped_bytes}
    adds_up(log)
    log.close()


def test_what_is_older_than_the_limit_is_dropped_and_counted_when_time_passes(tmp_path: Path) -> None:
    clock = ManualClock()
    log = Log.open(tmp_path / "log", small(retention_hours=10, collect_seconds=0), clock=clock)
    slow, quick = log.reader("slow"), log.reader("quick")
    for _ in range(24):
        fill(log, 10, size=100)
        quick.finish([event.position for event in read_all(quick)])
        clock.advance(HOUR)
    log.collect()
    kept = log.stat()
    assert kept.partitions[0].last_at >= clock.now() - 11 * HOUR
    assert len(kept.partitions) in (10, 11)
    assert slow.position == kept.first
    found = {reader.name: reader for reader in kept.readers}
    assert found["slow"].dropped_age == kept.first - 1
    assert found["quick"].dropped_age == 0
    assert found["quick"].delivered == 240
    adds_up(log)
    clock.advance(100 * HOUR)  # nothing more comes: the current partition is closed by age, and goes too
    deadline = threading.Event()
    while log.stat().partitions and not deadline.wait(0.02):
        pass
    assert log.stat().readers[0].dropped_age == 240
    assert log.append_wait([b"new"]) == 241
    adds_up(log)
    log.close()


def test_nothing_is_dropped_by_age_when_the_clock_leaps_ahead(tmp_path: Path) -> None:
    clock = ManualClock()
    log = Log.open(tmp_path / "log", small(retention_hours=10), clock=clock)
    log.reader("r")
    bodies = fill(log, 200)
    clock.jump(10_000 * HOUR)
    log.collect()
    assert [event.body for event in read_all(log.reader("r"))] == bodies
    clock.jump(-10_000 * HOUR)
    clock.advance(11 * HOUR)
    log.collect()
    assert log.stat().readers[0].dropped_age > 0
    adds_up(log)
    log.close()


def test_a_partition_is_closed_by_age_when_the_log_is_reopened_later(tmp_path: Path) -> None:
    clock = ManualClock()
    for _ in range(3):
        log = Log.open(tmp_path / "log", small(), clock=clock)
        log.append_wait([b"x"])
        log.close()
        clock.advance(HOUR / 2)
    assert [found.first for found in inspect.stat(tmp_path / "log").partitions] == [1, 3]


def test_space_is_given_back_when_every_reader_has_passed(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", small())
    one, two = log.reader("one"), log.reader("two")
    bodies = fill(log, 300)
    before = folder_bytes(log.folder)
    one.finish(range(1, 301))
    log.collect()
    assert log.stat().first == 1  # the other one still needs it
    two.finish(range(1, 250))
    log.collect()
    assert 1 < log.stat().first <= 250
    assert folder_bytes(log.folder) < before / 2
    log.forget("two")
    log.forget("unknown")
    fill(log, 1)
    log.collect()
    assert [found.name for found in log.stat().readers] == ["one"]
    two.finish([250])  # a reader that was forgotten while at work does not come back
    adds_up(log)
    log.close()
    log = Log.open(tmp_path / "log", small())
    assert [found.name for found in log.stat().readers] == ["one"]
    assert log.end == len(bodies) + 2
    adds_up(log)
    log.close()


def test_dropped_events_are_counted_when_there_is_no_reader(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", small(retention_bytes=1 * MIB))
    fill(log, 700)
    stat = log.stat()
    assert stat.first > 1
    assert stat.dropped_unread == stat.first - 1
    assert log.reader("late").position == stat.first
    adds_up(log)
    log.close()


def test_a_reader_goes_on_at_the_oldest_when_its_partition_is_collected_under_it(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", small(retention_bytes=1 * MIB))
    reader = log.reader("r")
    fill(log, 100)
    head = reader.read(1, 3, 1 << 20)
    fill(log, 700)
    assert log.stat().first > 4
    ahead = reader.read(4, 10, 1 << 20)
    assert ahead[0].position == log.stat().first
    reader.finish([event.position for event in head])  # delivered after it was counted as dropped: too late
    found = log.stat().readers[0]
    assert found.delivered == 0
    assert found.dropped_bytes == found.position - 1
    adds_up(log)
    log.close()


@pytest.mark.parametrize("retention", [1 * MIB, 64 * MIB], ids=["over the limit", "passed"])
def test_room_is_made_when_not_even_the_cursors_can_be_stored(
    tmp_path: Path, disk: FaultyDisk, retention: int
) -> None:
    log = Log.open(tmp_path / "log", small(retention_bytes=64 * MIB), vfs=disk.name)
    fill(log, 700)
    log.reader("r").finish(range(1, 11))
    log.close()
    log = Log.open(tmp_path / "log", small(retention_bytes=retention), vfs=disk.name)
    reader = log.reader("r")
    if retention > MIB:
        reader.finish(range(11, 600))
    disk.fault, disk.only, disk.times = "full", "index.db", 2
    log.collect()
    assert log.stat().first > 200
    found = log.stat().readers[0]
    assert (found.dropped_bytes > 0) == (retention == MIB)
    assert found.dropped_damage == 0
    adds_up(log)
    log.close()


def test_nothing_is_removed_when_the_count_cannot_be_stored(tmp_path: Path, disk: FaultyDisk) -> None:
    log = Log.open(tmp_path / "log", small(retention_bytes=64 * MIB), vfs=disk.name)
    fill(log, 400)
    log.reader("r")
    log.close()
    log = Log.open(tmp_path / "log", small(retention_bytes=1 * MIB), vfs=disk.name)
    disk.fault, disk.only = "sync", "index.db"
    fill(log, 100)  # appending goes on
    crashed = copy_of(log.folder, tmp_path / "crashed")
    disk.fault = ""
    log.collect()
    assert log.stat().readers[0].dropped_bytes > 0
    adds_up(log)
    log.close()
    log = Log.open(crashed, small())
    found = log.stat().readers[0]
    assert found.dropped_damage == 0
    assert len(read_all(log.reader("r"))) == 500 - found.dropped_bytes
    adds_up(log)
    log.close()


def test_partitions_are_single_files_when_they_are_closed(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", small())
    fill(log, 300)
    assert len(read_all(log.reader("r"))) == 300
    for path in partition_paths(log.folder)[:-1]:
        assert not path.with_suffix(".db-wal").exists()
        assert path.stat().st_size <= 256 * 1024 + len(body(1, 3000)) * 10
    adds_up(log)
    log.close()


def test_damaged_files_go_before_any_event_when_the_limit_is_reached(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", small(partition_bytes=100_000, retention_bytes=1_500_000))
    log.reader("stuck")
    damaged = log.folder / "damaged"
    damaged.mkdir()
    for name in ("old", "new"):
        (damaged / name).write_bytes(bytes(500_000))
        time.sleep(0.02)  # the file system's clock is a coarse one
    fill(log, 50)
    log.collect()
    assert damaged_file_names(log.folder) == ["new", "old"]
    fill(log, 100)
    log.collect()
    assert damaged_file_names(log.folder) == ["new"]
    fill(log, 120)
    log.collect()
    assert damaged_file_names(log.folder) == []
    assert log.stat().readers[0].dropped_bytes == 0
    log.close()


def test_nothing_is_dropped_by_age_when_a_server_starts_with_a_clock_days_ahead(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = small(retention_hours=10)
    log = Log.open(tmp_path / "log", settings, clock=clock)
    log.reader("r")
    bodies = fill(log, 200)
    log.close()
    clock.jump(240 * HOUR)
    log = Log.open(tmp_path / "log", settings, clock=clock)
    log.collect()
    bodies += fill(log, 100)
    assert [event.body for event in read_all(log.reader("r"))] == bodies
    assert inspect.stat(tmp_path / "log").clock_ahead_seconds == pytest.approx(240 * HOUR)
    clock.jump(-240 * HOUR)  # set right
    bodies += fill(log, 100)
    reader = log.reader("r")
    reader.finish(range(1, 201))
    clock.advance(60)
    assert reader.lag_seconds() >= 0
    clock.advance(60)
    assert reader.lag_seconds() == 120  # since it was appended, although it is dated in the future
    clock.advance(11 * HOUR)
    log.append_wait([b"new"])  # closes the partition by its age
    log.collect()
    dropped = log.stat().readers[0].dropped_age
    assert dropped > 0  # those that were dated in the future too
    adds_up(log)
    log.close()


def test_nothing_is_dropped_by_age_when_a_process_died_while_it_began_a_partition(tmp_path: Path) -> None:
    with closing(Log.open(tmp_path, small())) as log:
        log.reader("slow")
        for number in range(40):
            log.append_wait([body(number, 30_000)])
        end = log.end
        assert len(log.stat().partitions) > 2
    empty = partition_path(tmp_path, end)
    PartitionWriter(empty, vfs=None, limit_bytes=1 << 20).close()
    with closing(Log.open(tmp_path, small())) as log:
        log.collect()
        assert (found := log.stat().readers[0]).dropped_age == 0, found
        assert [event.position for event in read_all(log.reader("slow"))] == list(range(1, end))

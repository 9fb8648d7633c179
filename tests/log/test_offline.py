"""Looking from outside: beside a running log, at a closed one, at a damaged one; nothing is changed by it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headwater.log.queue import offline as inspect
from headwater.log.queue.log import Log
from headwater.log.queue.partition_file import partition_paths
from headwater.system.durable_files import FolderLock, is_locked
from tests.log.parts import DAMAGES, Damage, adds_up, copy_of, fill, small


def test_a_folder_is_described_when_nothing_was_ever_in_it(tmp_path: Path) -> None:
    found = inspect.stat(tmp_path / "nothing")
    assert (found.first, found.end, found.bytes, found.running) == (1, 1, 0, False)
    assert (found.partitions, found.readers, found.damaged) == ([], [], [])
    assert list(inspect.export(tmp_path / "nothing")) == []
    assert inspect.verify(tmp_path / "nothing") == []
    assert not (tmp_path / "nothing").exists()


def test_the_figures_are_the_same_from_inside_and_outside_when_a_log_runs(tmp_path: Path) -> None:
    log = Log.open(tmp_path, small())
    reader = log.reader("r")
    fill(log, 300)
    reader.finish([*range(1, 50), 60], [61])
    inside, outside = log.stat(), inspect.stat(tmp_path)
    assert inside.running
    assert outside.running
    assert outside.readers[0].lag_seconds > 0
    for found in (*inside.readers, *outside.readers):
        found.lag_seconds = 0
    assert inside.readers == outside.readers
    assert (inside.first, inside.end) == (outside.first, outside.end) == (1, 301)
    assert [each.first for each in inside.partitions] == [each.first for each in outside.partitions]
    assert outside.bytes == inside.bytes > 0
    log.close()
    assert not inspect.stat(tmp_path).running


def test_events_are_exported_when_a_range_is_asked_for(tmp_path: Path) -> None:
    log = Log.open(tmp_path, small())
    bodies = fill(log, 300)
    assert [event.body for event in inspect.export(tmp_path)] == bodies
    assert [event.position for event in inspect.export(tmp_path, 75, 222)] == list(range(75, 223))
    assert [event.position for event in inspect.export(tmp_path, first=295)] == list(range(295, 301))
    assert [event.position for event in inspect.export(tmp_path, last=3)] == [1, 2, 3]
    assert list(inspect.export(tmp_path, 301)) == []
    log.close()


def test_checkpoints_are_not_held_back_when_an_export_is_slow(tmp_path: Path) -> None:
    log = Log.open(tmp_path, small(partition_bytes=64 << 20))
    fill(log, 10)
    slow = inspect.export(tmp_path)
    assert next(slow).position == 1
    fill(log, 4000, per_commit=20)
    wal = partition_paths(tmp_path)[0].with_suffix(".db-wal")
    assert wal.stat().st_size < 8 << 20  # 12 MB were written
    assert sum(1 for _ in slow) == 4009
    log.close()


def test_nothing_is_wrong_when_a_good_log_is_verified(tmp_path: Path) -> None:
    log = Log.open(tmp_path, small())
    log.reader("r")
    fill(log, 300)
    steps: list[tuple[int, int]] = []
    assert inspect.verify(tmp_path, lambda done, of: steps.append((done, of))) == []
    count = len(partition_paths(tmp_path))
    assert steps == [(n, count) for n in range(count + 1)]
    log.close()
    assert inspect.verify(tmp_path) == []


@pytest.mark.parametrize("damage", [d for _, d in DAMAGES], ids=[name for name, _ in DAMAGES])
@pytest.mark.parametrize("file", ["partition", "index.db"])
def test_problems_are_named_and_the_rest_is_exported_when_a_file_is_damaged(
    tmp_path: Path, damage: Damage, file: str
) -> None:
    folder = tmp_path / "log"
    log = Log.open(folder, small())
    log.reader("r")
    bodies = fill(log, 300)
    log.close()
    second = inspect.stat(folder).partitions[1]
    path = folder / file if file == "index.db" else partition_paths(folder)[1]
    damage(path)
    copy_of(folder, tmp_path / "before")
    problems = inspect.verify(folder)
    stat = inspect.stat(folder)
    exported = {event.position: event.body for event in inspect.export(folder)}
    assert all(bodies[position - 1] == found for position, found in exported.items())
    if file == "partition":
        assert problems
        assert set(range(1, second.first)) | set(range(second.end, 301)) <= exported.keys()
    else:
        assert len(exported) == 300
        # a bit in an unused part of a page says nothing; a missing or empty index is as good as a new one
        assert problems or stat.damaged == []
    for found in (tmp_path / "before").iterdir():
        if found.is_file() and found.suffix == ".db":
            assert (folder / found.name).read_bytes() == found.read_bytes()  # looked at, not changed
    assert stat.end == 301


def test_what_is_missing_is_said_when_partitions_are_gone_or_set_aside(tmp_path: Path) -> None:
    log = Log.open(tmp_path, small())
    log.reader("r")
    fill(log, 300)
    log.close()
    second = inspect.stat(tmp_path).partitions[1]
    partition_paths(tmp_path)[1].unlink()
    text = f"positions {second.first} to {second.end - 1}"
    assert [problem.text for problem in inspect.verify(tmp_path)] == [f"{text} before it are missing"]
    assert inspect.stat(tmp_path).damaged == [f"{text} are missing"]
    path = partition_paths(tmp_path)[0]
    path.write_bytes(bytes(100))
    log = Log.open(tmp_path, small())
    adds_up(log)
    log.close()
    (folder_end := partition_paths(tmp_path)[-1]).write_bytes(b"")
    last = inspect.verify(tmp_path)
    assert [problem.file for problem in last if "after it are missing" in problem.text] == [folder_end.name]
    assert any("was set aside" in problem.text for problem in inspect.verify(tmp_path))


def test_looking_does_no_harm_when_a_log_is_written_and_collected_meanwhile(tmp_path: Path) -> None:
    log = Log.open(tmp_path, small(partition_bytes=128 * 1024))
    reader = log.reader("r")
    done = threading.Event()
    seen: list[inspect.LogStat] = []
    problems: list[inspect.Finding] = []

    def look() -> None:
        while not done.is_set():
            seen.append(inspect.stat(tmp_path))
            problems.extend(inspect.verify(tmp_path))

    watcher = threading.Thread(target=look)
    watcher.start()
    for _ in range(40):
        fill(log, 20)
        reader.finish(range(1, log.end - 10))
        log.collect()
    done.set()
    watcher.join()
    assert seen
    assert [text for stat in seen for text in stat.damaged] == []
    assert [problem for problem in problems if "gaps" not in problem.text] == []
    for stat in seen:
        for found in stat.readers:
            assert found.appended == found.delivered + found.lag_events
    adds_up(log)
    log.close()
    assert inspect.verify(tmp_path) == []


def test_a_lock_is_taken_when_another_process_only_looks_at_it(tmp_path: Path) -> None:
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            is_locked(tmp_path)

    lock = FolderLock(tmp_path)
    assert is_locked(tmp_path)
    lock.release()
    assert not is_locked(tmp_path)
    watcher = threading.Thread(target=look)
    watcher.start()
    for _ in range(50):
        FolderLock(tmp_path).release()
    stop.set()
    watcher.join()
    assert not is_locked(tmp_path)

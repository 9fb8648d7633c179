"""It starts in spite of damage, serves the rest, and counts what is missing (G9, G3)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headwater.errors import LogUnavailable
from headwater.log.queue import offline as inspect
from headwater.log.queue.log import Log
from headwater.log.queue.partition_file import PartitionWriter, partition_paths
from headwater.metrics import Metrics
from tests.log.parts import DAMAGES, Damage, FaultyDisk, adds_up, body, copy_of, fill, read_all, small

PER_PARTITION = 70  # roughly; the tests ask the log itself
damages = pytest.mark.parametrize("damage", [d for _, d in DAMAGES], ids=[name for name, _ in DAMAGES])


def made(folder: Path, *, crash: Path | None = None) -> tuple[Path, list[bytes]]:
    """A log of four partitions, closed or left by a crash; its reader `r` has finished 1 to 9 and 11."""
    log = Log.open(folder, small())
    reader = log.reader("r")
    bodies = fill(log, 4 * PER_PARTITION)
    reader.finish([*range(1, 10), 11])
    assert len(log.stat().partitions) >= 4
    if crash is not None:
        copy_of(folder, crash)
    log.close()
    return crash or folder, bodies


def check(folder: Path, bodies: list[bytes], *, least: int) -> int:
    """What is served is right, what is missing is counted, and it goes on; how many are missing."""
    metrics = Metrics()
    log = Log.open(folder, small(), metrics=metrics)
    assert log.end == len(bodies) + 1
    found = read_all(log.reader("r"))
    assert [(event.position, event.body) for event in found] == [
        (event.position, bodies[event.position - 1]) for event in found
    ]
    assert len(found) >= least
    adds_up(log)
    lost = log.stat().readers[0].dropped_damage
    assert metrics.counter("log_events_dropped").values.get(("r", "damage"), 0) == lost
    assert log.append_wait([b"new"]) == len(bodies) + 1
    assert read_all(log.reader("r"))[-1].body == b"new"
    adds_up(log)
    log.close()
    log = Log.open(folder, small())  # and the second start finds nothing new
    assert read_all(log.reader("r"))[:-1] == found
    assert log.stat().readers[0].dropped_damage == lost
    adds_up(log)
    log.close()
    return lost


@damages
@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "second", "last"])
def test_the_rest_is_served_when_a_partition_is_damaged(tmp_path: Path, damage: Damage, which: int) -> None:
    folder, bodies = made(tmp_path / "log")
    partition = inspect.stat(folder).partitions[which]
    damage(partition_paths(folder)[which])
    outside = len(bodies) - (partition.end - partition.first) - 10
    lost = check(folder, bodies, least=max(0, outside))
    assert lost <= partition.end - partition.first


@damages
@pytest.mark.parametrize("file", ["db", "db-wal"])
def test_the_rest_is_served_when_a_crash_left_a_damaged_file(
    tmp_path: Path, damage: Damage, file: str
) -> None:
    folder, bodies = made(tmp_path / "log", crash=tmp_path / "crashed")
    last = partition_paths(folder)[-1]
    damage(last.with_suffix(f".{file}"))
    check(folder, bodies, least=int(last.stem) - 11)


@damages
@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "crashed"])
def test_every_event_is_read_again_when_the_index_is_damaged(
    tmp_path: Path, damage: Damage, crashed: bool
) -> None:
    folder, bodies = made(tmp_path / "log", crash=tmp_path / "crashed" if crashed else None)
    damage(folder / "index.db")
    log = Log.open(folder, small())
    found = [event.body for event in read_all(log.reader("r", "latest"))]
    # either the index could be used after all, or the reader begins again at the oldest (G4)
    assert found in (bodies, bodies[9:10] + bodies[11:])
    adds_up(log)
    log.close()


@damages
def test_nothing_is_lost_when_the_wal_of_the_index_is_damaged(tmp_path: Path, damage: Damage) -> None:
    folder, bodies = made(tmp_path / "log", crash=tmp_path / "crashed")
    damage(folder / "index.db-wal")
    log = Log.open(folder, small())
    found = [event.body for event in read_all(log.reader("r"))]
    assert found[-(len(bodies) - 11) :] == bodies[11:]
    adds_up(log)
    log.close()


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\xff" * 20, b"99999999999999999999", b"99999999999999999999 00000000\n", b"-5", bytes(4096)],
)
def test_the_end_is_known_when_the_tail_is_garbage(tmp_path: Path, garbage: bytes) -> None:
    folder, bodies = made(tmp_path / "log")
    (folder / "tail").write_bytes(garbage)
    assert check(folder, bodies, least=len(bodies) - 10) == 0


def test_no_position_is_given_out_twice_when_the_last_partition_and_the_tail_are_gone(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = Log.open(folder, small())
    reader = log.reader("r")
    fill(log, 20)
    reader.finish([1, 18])
    log.close()
    partition_paths(folder)[0].unlink()
    (folder / "tail").unlink()
    log = Log.open(folder, small())
    assert log.append_wait([b"new"]) == 19  # 18 was finished once; a new event there would be skipped
    assert [event.body for event in read_all(log.reader("r"))] == [b"new"]
    adds_up(log)
    assert log.stat().readers[0].dropped_damage == 16
    log.close()


def test_a_reader_goes_on_when_the_end_of_the_log_is_lost_and_nothing_comes(tmp_path: Path) -> None:
    folder, bodies = made(tmp_path / "log")
    last = inspect.stat(folder).partitions[-1]
    partition_paths(folder)[-1].unlink()
    log = Log.open(folder, small())
    reader = log.reader("r")
    events = read_all(reader)
    reader.finish([event.position for event in events])
    assert reader.lag_events() == 0
    assert reader.position == len(bodies) + 1
    assert log.stat().readers[0].dropped_damage == last.end - last.first
    adds_up(log)
    log.close()


@damages
@pytest.mark.parametrize("opened", [False, True], ids=["before it is open", "while it is open"])
def test_readers_go_on_when_a_partition_is_damaged_under_a_running_log(
    tmp_path: Path, damage: Damage, opened: bool
) -> None:
    log = Log.open(tmp_path / "log", small())
    bodies = fill(log, 4 * PER_PARTITION)
    readers = [log.reader("a"), log.reader("b")]
    second = log.stat().partitions[1]
    if opened:
        for reader in readers:
            assert reader.read(second.first, 1, 1)[0].position == second.first
    damage(partition_paths(log.folder)[1])
    for reader in readers:
        found = read_all(reader)
        assert [event.body for event in found] == [bodies[event.position - 1] for event in found]
        outside = [n for n in range(1, len(bodies) + 1) if not second.first <= n < second.end]
        assert set(outside) <= {event.position for event in found}
    adds_up(log)
    assert len([name for name in log.stat().damaged if name.endswith(".db")]) <= 1  # repaired once
    log.close()


def test_the_current_partition_is_repaired_when_it_is_damaged_under_the_writer(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", small())
    bodies = fill(log, 30)
    log.reader("r")
    path = partition_paths(log.folder)[0]
    copy_of(log.folder, tmp_path / "copy")
    path.write_bytes(b"")
    path.with_suffix(".db-wal").unlink()
    found = read_all(log.reader("r"))
    assert [event.body for event in found] == [bodies[event.position - 1] for event in found]
    new = log.append_wait([b"new"])
    assert new == 31
    assert read_all(log.reader("r"))[-1].body == b"new"
    adds_up(log)
    log.close()


@pytest.mark.parametrize("times", [1, 2, 5])
def test_the_index_is_written_again_from_memory_when_it_is_damaged_under_a_running_log(
    tmp_path: Path, disk: FaultyDisk, times: int
) -> None:
    log = Log.open(tmp_path / "log", small(), vfs=disk.name)
    reader = log.reader("r")
    bodies = fill(log, 50)
    reader.finish([1, 2, 5])
    disk.fault, disk.only, disk.times = "corrupt", "index.db", times
    for position in range(6, 20):
        reader.finish([position])
    assert disk.times == 0
    adds_up(log)
    log.close()
    log = Log.open(tmp_path / "log", small())
    assert [event.body for event in read_all(log.reader("r"))] == [bodies[2], bodies[3], *bodies[19:]]
    assert [name for name in log.stat().damaged if name.startswith("index.db")]
    adds_up(log)
    log.close()


def test_files_of_other_names_are_left_alone_when_a_log_is_opened(tmp_path: Path) -> None:
    folder, bodies = made(tmp_path / "log")
    copy = folder / "00000000000000000001 (copy).db"
    copy.write_bytes(partition_paths(folder)[0].read_bytes())
    (folder / "2026.db").write_bytes(b"mine")
    assert check(folder, bodies, least=len(bodies) - 10) == 0
    assert copy.exists()
    assert (folder / "2026.db").read_bytes() == b"mine"


def test_a_partition_in_the_wrong_place_is_set_aside_when_its_name_lies(tmp_path: Path) -> None:
    folder, bodies = made(tmp_path / "log")
    first, second = partition_paths(folder)[:2]
    first.replace(second)
    check(folder, bodies, least=len(bodies) - 2 * PER_PARTITION - 20)


def test_leftovers_are_cleared_when_a_process_died_while_it_collected_or_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, bodies = made(tmp_path / "log")
    path = partition_paths(folder)[1]
    # died between two unlinks of a collection; while creating a partition; while repairing
    (folder / "00000000000000000000.db-wal").write_bytes(b"old")
    (folder / f"{path.name}-x.db-shm").write_bytes(b"")
    (folder / "00000000000000009999.db-wal").write_bytes(b"")
    (folder / "repair.tmp").write_bytes(b"half")
    (folder / "repair.tmp-wal").write_bytes(b"half")
    whole = path.read_bytes()
    path.write_bytes(b"damaged")
    path.with_suffix(".repaired").write_bytes(whole)
    path.with_suffix(".db-wal").write_bytes(b"of the damaged one")
    with caplog.at_level(logging.ERROR):
        assert check(folder, bodies, least=len(bodies) - 10) == 0
    assert caplog.text == ""
    names = {file.name for file in folder.iterdir()}
    assert not [name for name in names if "repair" in name or "0000000.db-" in name or "-x.db" in name]
    assert "damaged" not in names


def test_a_wal_without_its_database_is_set_aside_when_it_may_hold_events(tmp_path: Path) -> None:
    folder, bodies = made(tmp_path / "log", crash=tmp_path / "crashed")
    partition_paths(folder)[-1].unlink()
    assert check(folder, bodies, least=100) > 0
    assert [name for name in inspect.stat(folder).damaged if ".db-wal" in name]


def test_the_only_wal_is_set_aside_when_its_database_is_gone(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", small())
    fill(log, 5)
    crashed = copy_of(log.folder, tmp_path / "crashed")
    log.close()
    partition_paths(crashed)[0].unlink()
    log = Log.open(crashed, small())
    assert [name for name in log.stat().damaged if ".db-wal" in name]
    assert log.append_wait([b"new"]) == 6
    adds_up(log)
    log.close()


def test_an_empty_partition_is_used_again_when_a_process_died_while_creating_it(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = Log.open(folder, small())
    fill(log, 5)
    log.close()
    PartitionWriter(folder / f"{6:020d}.db", vfs=None, limit_bytes=1 << 20).close()
    (folder / f"{7:020d}.db").write_bytes(b"")  # not reachable by a crash, and still no reason to fail
    log = Log.open(folder, small())
    assert log.end in (6, 7)
    first = log.append_wait([b"a"])
    assert log.append_wait([b"b"]) == first + 1
    assert [event.body for event in read_all(log.reader("r"))][-2:] == [b"a", b"b"]
    adds_up(log)
    log.close()


def test_the_last_partition_is_gone_on_with_when_the_log_was_closed(tmp_path: Path) -> None:
    for _ in range(3):
        log = Log.open(tmp_path / "log", small())
        fill(log, 5)
        log.close()
    assert [(found.first, found.end) for found in inspect.stat(tmp_path / "log").partitions] == [(1, 16)]


def test_a_new_partition_is_begun_when_the_old_one_turns_out_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = Log.open(folder, small())
    bodies = fill(log, 5)
    log.close()
    log = Log.open(folder, small())
    path = partition_paths(folder)[0]
    path.write_bytes(b"x" * path.stat().st_size)
    assert log.append_wait([b"new"]) == 6
    log.reader("r")
    assert [event.body for event in read_all(log.reader("r"))] == [b"new"]
    assert len(bodies) == 5
    adds_up(log)
    log.close()


def test_a_repair_keeps_every_other_commit_when_pages_in_the_middle_are_bad(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = Log.open(folder, small(partition_bytes=8 << 20, max_commit_bytes=1 << 20))
    bodies = [body(n, 100_000) for n in range(20)]
    for each in bodies:
        log.append_wait([each])
    log.close()
    path = partition_paths(folder)[0]
    content = bytearray(path.read_bytes())
    for bad in (bodies[5], bodies[12]):  # two rows, each in pages of its own
        at = content.index(bad[50_000:50_100])
        content[at : at + 100] = bytes(100)
    path.write_bytes(content)
    log = Log.open(folder, small())
    log.reader("r")
    assert [event.body for event in read_all(log.reader("r"))] == bodies[:5] + bodies[6:12] + bodies[13:]
    assert log.stat().readers[0].dropped_damage == 2
    adds_up(log)
    log.close()


def test_a_reader_stands_still_and_goes_on_when_the_disk_cannot_be_read_for_a_while(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    log = Log.open(tmp_path / "log", small(), vfs=disk.name)
    bodies = fill(log, 2 * PER_PARTITION)
    reader = log.reader("r")
    disk.fault, disk.only = "read", ".db"
    with pytest.raises(LogUnavailable):
        read_all(reader)
    disk.fault = ""
    assert [event.body for event in read_all(reader)] == bodies
    assert log.stat().damaged == []
    adds_up(log)
    log.close()

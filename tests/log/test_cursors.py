"""What is finished is remembered exactly, in any order, across block boundaries and restarts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headwater.log.queue.cursors import BLOCK, Cursor, CursorRow, Index
from headwater.log.queue.log import Log
from tests.log.parts import FaultyDisk, adds_up, read_all, small


def reopened(path: Path, index: Index) -> tuple[Index, Cursor]:
    index.close()
    index = Index(path)
    return index, Cursor(index, index.cursors()[0])


@pytest.mark.parametrize("seed", range(5))
def test_a_cursor_knows_what_a_set_would_know_when_positions_are_finished_at_random(
    tmp_path: Path, seed: int
) -> None:
    chance, path = random.Random(seed), tmp_path / "index.db"
    base = chance.choice((1, BLOCK - 3, BLOCK, 5 * BLOCK + 17))
    index = Index(path)
    cursor = Cursor(index, CursorRow("r", base, base))
    finished: set[int] = set()
    top = base + 3 * BLOCK
    for step in range(60):
        if chance.random() < 0.5:
            start = chance.randrange(base, top)
            chosen: range | list[int] = range(start, min(top, start + chance.randrange(1, 2 * BLOCK)))
        else:
            chosen = [chance.randrange(base - 2 if base > 2 else base, top) for _ in range(50)]
        fresh = {position for position in chosen if position >= base} - finished
        assert cursor.finish({"delivered": chosen})["delivered"] == len(fresh)
        finished |= fresh
        lowest = next(n for n in range(base, top + 1) if n not in finished)
        assert cursor.position == lowest
        assert cursor.row.delivered == len(finished)
        assert cursor.is_in_order == (max(finished, default=0) < lowest)
        for position in chance.sample(range(base, top), 20):
            assert cursor.is_finished(position) == (position in finished)
        assert index.highest() == max(lowest, max(finished) + 1)
        if step % 10 == 9:
            index, cursor = reopened(path, index)
    index.close()


def test_what_was_finished_is_not_read_again_when_the_log_is_reopened(tmp_path: Path) -> None:
    log = Log.open(tmp_path, small())
    reader = log.reader("r")
    log.append_wait([b"%d" % n for n in range(1, 11)])
    reader.finish([3, 4, 8], [5])
    reader.finish([3, 1])
    log.close()
    log = Log.open(tmp_path, small())
    reader = log.reader("r")
    assert (reader.name, reader.position, reader.lag_events()) == ("r", 2, 5)
    assert [event.position for event in read_all(reader)] == [2, 6, 7, 9, 10]
    assert [event.position for event in reader.read(6, 2, 100)] == [6, 7]
    found = log.stat().readers[0]
    assert (found.delivered, found.rejected) == (4, 1)
    adds_up(log)
    for _ in range(2):  # a crash makes the rejects repeat what they did
        assert reader.settle("a", [(7, "delivered", 1)]) == 7
    found = log.stat().readers[0]
    assert (found.delivered, found.rejected) == (5, 0)
    adds_up(log)
    log.close()


def test_readers_begin_where_start_says_when_they_are_new(tmp_path: Path) -> None:
    log = Log.open(tmp_path, small())
    log.append_wait([b"old"])
    early, late = log.reader("early"), log.reader("late", "latest")
    log.append_wait([b"new"])
    assert [event.body for event in read_all(early)] == [b"old", b"new"]
    assert [event.body for event in read_all(late)] == [b"new"]
    assert log.reader("late", "earliest").position == 2  # known already: it stays where it is
    adds_up(log)
    log.close()


def test_memory_is_as_before_when_giving_up_events_cannot_be_stored(tmp_path: Path, disk: FaultyDisk) -> None:
    index = Index(tmp_path / "index.db", vfs=disk.name)
    cursor = Cursor(index, CursorRow("r", 1, 1))
    cursor.finish({"delivered": [1, 2, 7]})
    disk.fault = "full"
    with pytest.raises(Exception, match="full"):
        cursor.drop("dropped_age", range(3, 10))
    with pytest.raises(Exception, match="full"):
        cursor.settle("a", [(1, "delivered", 1)])
    assert (cursor.position, cursor.row.dropped_age, cursor.row.delivered) == (3, 0, 3)
    assert not cursor.is_finished(3)
    assert cursor.is_finished(7)
    with pytest.raises(Exception, match="full"):
        cursor.finish({"delivered": [3]})  # delivered, disk or no disk
    assert cursor.position == 4
    assert not cursor.is_stored
    disk.fault = ""
    assert cursor.drop("dropped_age", range(4, 10)) == 5
    assert cursor.is_stored
    index, cursor = reopened(tmp_path / "index.db", index)
    assert (cursor.position, cursor.row.dropped_age, cursor.row.delivered) == (10, 5, 4)
    index.close()


def test_a_drop_is_counted_when_its_partition_is_removed_and_the_disk_still_fails(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    index = Index(tmp_path / "index.db", vfs=disk.name)
    cursor = Cursor(index, CursorRow("r", 1, 1))
    disk.fault = "full"
    assert cursor.drop("dropped_age", range(1, 10), is_removed=True) == 9
    assert (cursor.position, cursor.row.dropped_age, cursor.is_stored) == (10, 9, False)
    disk.fault = ""
    cursor.store()
    index, cursor = reopened(tmp_path / "index.db", index)
    assert (cursor.position, cursor.row.dropped_age) == (10, 9)
    index.close()


def test_what_becomes_of_rejects_is_counted_once_when_it_is_repeated(tmp_path: Path) -> None:
    index = Index(tmp_path / "index.db")
    cursor = Cursor(index, CursorRow("r", 1, 1))
    cursor.finish({"rejected": range(1, 11)})
    steps = [(3, "delivered", 2), (5, "dropped_bytes", 4)]
    assert cursor.settle("first", steps) == 5
    index, cursor = reopened(tmp_path / "index.db", index)
    assert cursor.settle("first", [*steps, (6, "dropped_age", 1)]) == 6
    assert (
        cursor.settle("second", [(1, "delivered", 9)]) == 1
    )  # a new file: more than are known are not moved
    row = cursor.row
    assert (row.delivered, row.rejected, row.dropped_bytes, row.dropped_age) == (5, 0, 4, 1)
    assert row.finished == 10
    index.close()

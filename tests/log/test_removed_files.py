"""Files that are removed or replaced under a running log: nothing is acknowledged that is not on its path."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.errors import LogUnavailable
from headwater.log.queue import offline as inspect
from headwater.log.queue.log import Log
from headwater.log.queue.partition_file import partition_paths
from headwater.system.durable_files import FolderLock
from tests.log.parts import adds_up, copy_of, fill, read_all, small
from tests.support.waiting import wait_until


def killed(log: Log, to: Path) -> Log:
    """The log that is found after the process was killed now."""
    crashed = copy_of(log.folder, to)
    log.close()
    return Log.open(crashed, small())


def databases(folder: Path) -> list[Path]:
    return [partition_paths(folder)[-1]]


def wals(folder: Path) -> list[Path]:
    return [Path(f"{partition_paths(folder)[-1]}-wal")]


def every_partition(folder: Path) -> list[Path]:
    return list(folder.glob("0*"))


def everything(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]


@pytest.mark.parametrize("chosen", [databases, wals, every_partition, everything])
@pytest.mark.parametrize("act", ["removed", "replaced"])
@pytest.mark.parametrize("events", [30, 0], ids=["with events", "fresh"])
def test_no_acknowledged_event_is_gone_when_the_open_files_were_removed(
    tmp_path: Path, chosen: Callable[[Path], list[Path]], act: str, events: int
) -> None:
    log = Log.open(tmp_path / "log", small())
    reader = log.reader("r")
    bodies = fill(log, max(events, 1))
    reader.finish([1])
    for path in chosen(log.folder):
        path.unlink()
        if act == "replaced" and path.name != "lock":
            path.write_bytes(b"")
    bodies += fill(log, 30)
    assert [event.body for event in read_all(reader)] == bodies[1:]
    adds_up(log)
    log = killed(log, tmp_path / "killed")
    assert [event.body for event in read_all(log.reader("r"))] == bodies[1:]
    assert log.stat().readers[0].dropped_damage == 0
    adds_up(log)
    log.close()


def test_the_loss_is_damage_and_the_rest_is_served_when_a_closed_partition_was_removed(
    tmp_path: Path,
) -> None:
    log = Log.open(tmp_path / "log", small(collect_seconds=0.05))
    reader = log.reader("r")
    bodies = fill(log, 300)
    first, second = log.stat().partitions[:2]
    for path in partition_paths(log.folder)[:2]:
        path.unlink()
    wait_until(lambda: log.stat().first == second.end)
    gone = second.end - first.first
    assert inspect.stat(log.folder).damaged == log.stat().damaged == [f"positions 1 to {gone} are missing"]
    assert [event.body for event in read_all(reader)] == bodies[gone:]
    assert log.stat().readers[0].dropped_damage == gone
    adds_up(log)
    log.close()


def test_nothing_is_acknowledged_until_it_is_back_when_the_folder_is_moved_away(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = Log.open(folder, small(collect_seconds=0.05))
    bodies = fill(log, 10)
    folder.rename(tmp_path / "moved")
    wait_until(lambda: not log.healthy)  # although no event arrives
    with pytest.raises(LogUnavailable, match="removed or replaced under this server") as error:
        log.append_wait([b"lost"])
    assert "put the folder back" in error.value.hint
    shutil.copytree(tmp_path / "moved", folder)  # a copy is not the folder that is locked
    with pytest.raises(LogUnavailable):
        log.append_wait([b"lost"])
    shutil.rmtree(folder)
    (tmp_path / "moved").rename(folder)
    assert log.append_wait([b"kept"]) == 11
    wait_until(lambda: log.healthy)
    log = killed(log, tmp_path / "killed")
    assert [event.body for event in read_all(log.reader("r"))] == [*bodies, b"kept"]
    log.close()


def test_nothing_is_acknowledged_when_another_process_has_the_lock(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", small())
    fill(log, 10)
    (log.folder / "lock").unlink()
    lock = FolderLock(log.folder)
    with pytest.raises(LogUnavailable, match="`lock` was removed or replaced"):
        log.append_wait([b"lost"])
    assert log.end == 11
    lock.release()
    with pytest.raises(LogUnavailable):  # what it did meanwhile is not known
        log.append_wait([b"lost"])
    log.close()


def test_a_lock_that_was_removed_is_taken_again_when_no_event_arrives(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", small(collect_seconds=0.05))
    (log.folder / "lock").unlink()
    wait_until((log.folder / "lock").exists)
    assert inspect.stat(log.folder).running
    log.close()

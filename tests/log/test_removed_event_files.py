"""Event files, their folder or its lock are removed under a running server: no acknowledged event is lost."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.clock import ManualClock
from headwater.errors import LogLocked
from headwater.log.files.incoming import Incoming
from headwater.system.durable_files import FolderLock
from tests.log.event_parts import lines
from tests.support.waiting import wait_until


@pytest.fixture
def incoming(tmp_path: Path) -> Iterator[Incoming]:
    made = Incoming(tmp_path / "events", clock=ManualClock())
    made.append_wait("web", [b"1", b"2"])
    yield made
    made.close()


def active(incoming: Incoming) -> Path:
    return incoming.folder.active("web")


def kept(incoming: Incoming) -> list[bytes]:
    incoming.close()
    return lines(incoming.folder.path)


def test_the_events_are_written_again_when_their_file_was_removed(incoming: Incoming) -> None:
    active(incoming).unlink()
    incoming.append_wait("web", [b"3"])
    assert kept(incoming) == [b"1\n", b"2\n", b"3\n"]


def test_the_events_are_written_again_when_no_other_comes(incoming: Incoming) -> None:
    active(incoming).unlink()
    wait_until(active(incoming).exists, "the writer notices")
    assert kept(incoming) == [b"1\n", b"2\n"]


def test_the_events_are_written_again_when_the_folder_was_removed(incoming: Incoming) -> None:
    shutil.rmtree(incoming.folder.path)
    incoming.append_wait("web", [b"3"])
    incoming.append_wait("app", [b"4"])
    with pytest.raises(LogLocked):
        FolderLock(incoming.folder.incoming, wait_seconds=0)
    assert sorted(kept(incoming)) == [b"1\n", b"2\n", b"3\n", b"4\n"]


def test_no_event_is_doubled_when_the_file_was_moved(incoming: Incoming, tmp_path: Path) -> None:
    moved = active(incoming).rename(tmp_path / "moved.log")
    incoming.append_wait("web", [b"3"])
    assert kept(incoming) == [b"3\n"]
    assert moved.read_bytes().count(b"\n") == 2


def test_no_event_is_doubled_when_the_file_was_replaced_by_its_copy(
    incoming: Incoming, tmp_path: Path
) -> None:
    copy = Path(shutil.copy(active(incoming), tmp_path / "copy"))
    copy.rename(active(incoming))
    incoming.append_wait("web", [b"3"])
    assert kept(incoming) == [b"1\n", b"2\n", b"3\n"]


def test_both_are_kept_when_the_file_was_replaced_by_another(incoming: Incoming, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"9\n")
    (tmp_path / "other").rename(active(incoming))
    incoming.append_wait("web", [b"3"])
    assert sorted(kept(incoming)) == [b"1\n", b"2\n", b"3\n", b"9\n"]


def test_nothing_is_acknowledged_when_another_process_has_the_new_folder(
    incoming: Incoming, tmp_path: Path
) -> None:
    moved = incoming.folder.path.rename(tmp_path / "moved")
    incoming.folder.make()
    other = FolderLock(incoming.folder.incoming)
    with pytest.raises(LogLocked):
        incoming.append_wait("web", [b"3"])
    wait_until(lambda: not incoming.healthy, "the server is not ready")
    other.release()
    incoming.append_wait("web", [b"4"])
    wait_until(lambda: incoming.healthy, "the server is ready")
    assert kept(incoming) == [b"4\n"]
    assert (moved / "incoming" / "incoming.tok=web.log").exists()


def test_a_foreign_file_is_not_completed_as_ours_when_it_takes_the_place(incoming: Incoming) -> None:
    active(incoming).unlink()
    active(incoming).write_bytes(b"torn")
    incoming.rotate()
    assert kept(incoming) == [b"1\n", b"2\n"]


def test_every_acknowledged_event_is_kept_when_files_are_removed_all_the_time(incoming: Incoming) -> None:
    stop = threading.Event()

    def remove() -> None:
        while not stop.wait(0.002):
            active(incoming).unlink(missing_ok=True)

    remover = threading.Thread(target=remove)
    remover.start()
    acknowledged = [b"1\n", b"2\n"]
    for number in range(10, 200):
        try:
            incoming.append_wait("web", [b"%d" % number])
        except Exception:
            continue
        acknowledged.append(b"%d\n" % number)
    stop.set()
    remover.join()
    found = kept(incoming)
    assert set(acknowledged) <= set(found)
    assert len(found) == len(set(found))

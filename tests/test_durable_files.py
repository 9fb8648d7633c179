"""Locks and open files are noticed to be gone, and new folders survive a power cut."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from headwater.errors import LogLocked
from headwater.system.durable_files import (
    FolderLock,
    exclusive,
    folder_watchers,
    is_locked,
    is_same_file,
    make_folder,
)


def test_an_open_file_is_the_one_on_its_path_until_it_is_removed_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with path.open("rb") as file:
        assert is_same_file(file.fileno(), path)
        path.rename(tmp_path / "moved")
        assert not is_same_file(file.fileno(), path)
        path.touch()
        assert not is_same_file(file.fileno(), path)
        assert not is_same_file(file.fileno(), path / "below a file")
        (tmp_path / "moved").replace(path)
        assert is_same_file(file.fileno(), path)


def test_a_lock_is_taken_again_when_its_file_was_removed(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    assert lock.is_held()
    lock.path.unlink()
    assert not is_locked(tmp_path)
    assert lock.is_held()
    assert is_locked(tmp_path)
    with pytest.raises(LogLocked, match="in use by process"):
        FolderLock(tmp_path, wait_seconds=0)
    lock.release()
    assert not is_locked(tmp_path)


def test_a_lock_is_lost_when_another_owner_was_faster_or_the_folder_is_another(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    first = FolderLock(folder)
    first.path.unlink()
    second = FolderLock(folder)  # as another process would: the lock file that it finds is not locked
    assert second.is_held()
    assert not first.is_held()
    first.release()
    folder.rename(tmp_path / "moved")
    assert not second.is_held()
    folder.mkdir()
    assert not second.is_held()
    folder.rmdir()
    (tmp_path / "moved").rename(folder)
    assert second.is_held()
    second.release()


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_lock_counts_only_when_its_path_names_the_locked_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The file is removed, and made again, between `open` and `flock`: its lock excludes no other process."""
    path, flock, removals = tmp_path / "lock", fcntl.flock, 2

    def late(fd: int, operation: int) -> None:
        nonlocal removals
        flock(fd, operation)
        if removals:
            removals -= 1
            path.unlink()
            path.touch()

    monkeypatch.setattr(fcntl, "flock", late)
    if kind == "file":
        with exclusive(path):
            assert is_locked(tmp_path)
    else:
        lock = FolderLock(tmp_path)
        assert lock.is_held()
        assert is_locked(tmp_path)
        lock.release()
    assert removals == 0


def test_the_name_of_each_new_parent_is_synced_when_a_folder_is_made(tmp_path: Path) -> None:
    synced: list[Path] = []
    folder_watchers.append(synced.append)
    try:
        make_folder(tmp_path / "a" / "b" / "c")
        make_folder(tmp_path / "a" / "b" / "c")
    finally:
        folder_watchers.remove(synced.append)
    assert sorted(synced) == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]

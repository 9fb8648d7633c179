"""Folders of older releases are brought up to date, those of newer ones are refused."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from headwater.errors import LogTooNew
from headwater.log.queue import offline as inspect
from headwater.log.queue.cursors import MIGRATIONS, Index
from headwater.log.queue.log import Log
from headwater.log.queue.partition_file import partition_paths
from headwater.log.queue.sqlite import migrate
from headwater.log.rejects.store import RejectStore
from tests.log.parts import adds_up, fill, read_all, small


def set_version(path: Path, version: int) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", version)
    connection.close()


def test_cursors_are_kept_when_the_index_is_of_version_1(tmp_path: Path) -> None:
    log = Log.open(tmp_path, small())
    bodies = fill(log, 20)
    log.close()
    (tmp_path / "index.db").unlink()
    old = apsw.Connection(str(tmp_path / "index.db"))
    old.pragma("journal_mode", "wal")
    assert migrate(old, MIGRATIONS[:1], tmp_path / "index.db") == 0
    old.execute("INSERT INTO cursors VALUES ('r', 1, 6, 4, 1, 0, 0, 0)")
    old.close()
    log = Log.open(tmp_path, small())
    reader = log.reader("r")
    assert reader.position == 6
    assert [event.body for event in read_all(reader)] == bodies[5:]
    reader.finish([8])  # needs the table of version 2
    assert reader.lag_events() == 14
    adds_up(log)
    log.close()
    assert len(MIGRATIONS) == 3


@pytest.mark.parametrize("which", ["index", "partition"])
def test_a_folder_is_refused_and_left_alone_when_a_newer_release_wrote_it(tmp_path: Path, which: str) -> None:
    log = Log.open(tmp_path, small())
    fill(log, 5)
    log.close()
    path = tmp_path / "index.db" if which == "index" else partition_paths(tmp_path)[0]
    set_version(path, 99)
    before = path.read_bytes()
    with pytest.raises(LogTooNew) as refused:
        Log.open(tmp_path, small())
    assert "version 99" in refused.value.text
    assert "newer" in refused.value.hint
    assert path.read_bytes() == before
    assert not (tmp_path / "damaged").exists()
    with pytest.raises(LogTooNew):
        inspect.stat(tmp_path)


def test_rejects_are_refused_when_a_newer_release_wrote_them(tmp_path: Path) -> None:
    RejectStore(tmp_path / "rejects.db", max_bytes=1000).close()
    set_version(tmp_path / "rejects.db", 99)
    with pytest.raises(LogTooNew):
        RejectStore(tmp_path / "rejects.db", max_bytes=1000)


def test_a_step_is_all_or_nothing_when_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    Index(path).close()

    def half(connection: apsw.Connection) -> None:
        connection.execute("CREATE TABLE half(x)")
        raise RuntimeError("the process ended here")

    connection = apsw.Connection(str(path))
    with pytest.raises(RuntimeError):
        migrate(connection, (*MIGRATIONS, half), path)
    assert connection.pragma("user_version") == len(MIGRATIONS)
    connection.close()
    Index(path).close()

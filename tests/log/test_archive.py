from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headwater.clock import ManualClock
from headwater.errors import LogUnavailable
from headwater.log.files.archive import archive, clean_archive
from headwater.log.files.file_status import FileStatus
from headwater.log.files.incoming import Incoming, finish_interrupted
from headwater.log.files.layout import unprocessed
from tests.log.event_parts import archived_events, killed

NOW = datetime(2026, 11, 16, 10, tzinfo=UTC).timestamp()


def a_file(folder: Path, now: float = NOW) -> None:
    incoming = Incoming(folder, clock=ManualClock(now))
    incoming.append_wait("web", [b'{"a":1}', b'{"a":2}'])
    incoming.close()


def test_a_file_is_compressed_under_its_day_with_its_status_when_it_is_done(tmp_path: Path) -> None:
    a_file(tmp_path)
    (file,) = unprocessed(tmp_path)
    status = FileStatus.load(file)
    status.mark("dwh", "events", True, rows=2)
    status.save()
    place = archive(file)
    assert place == tmp_path / "archive/2026-11-16/incoming.tok=web-2026-11-16T10-00-00.000.log.gz"
    assert archived_events(tmp_path) == [b'{"a":1}', b'{"a":2}']
    assert FileStatus.read(place.with_name(f"{file.name}.status")).is_done("dwh", "events")
    assert unprocessed(tmp_path) == []
    assert not file.status_path.exists()
    assert archive(file) == place


def test_archiving_fails_when_a_file_has_disappeared(tmp_path: Path) -> None:
    a_file(tmp_path)
    (file,) = unprocessed(tmp_path)
    file.path.unlink()
    with pytest.raises(LogUnavailable, match="disappeared"):
        archive(file)


ARCHIVE = """
import sys
from pathlib import Path
from headwater.log.files.archive import archive
from headwater.log.files.layout import unprocessed
archive(unprocessed(Path(sys.argv[1]))[0])
"""


@pytest.mark.parametrize("point", ["archive.after_copy", "archive.after_unlink"])
def test_one_whole_copy_is_left_when_the_process_was_killed(tmp_path: Path, point: str) -> None:
    a_file(tmp_path)
    status = FileStatus.load(unprocessed(tmp_path)[0])
    status.mark("dwh", "events", True, rows=2)
    status.save()
    killed(ARCHIVE, str(tmp_path), at=point)
    finish_interrupted(tmp_path)
    for file in unprocessed(tmp_path):
        assert FileStatus.load(file).is_done("dwh", "events")
        archive(file)
    (copy,) = (tmp_path / "archive").glob("*/*.gz")
    assert archived_events(tmp_path) == [b'{"a":1}', b'{"a":2}']
    assert FileStatus.read(copy.with_suffix(".status")).is_done("dwh", "events")
    assert sorted(path.name for path in (tmp_path / "incoming").iterdir()) == ["lock"]


def test_old_days_go_when_their_time_is_over(tmp_path: Path) -> None:
    for days in (0, 29, 30, 31, 400):
        a_file(tmp_path, NOW - days * 86400)
        archive(unprocessed(tmp_path)[0])
    (tmp_path / "archive" / "precious").mkdir()
    (tmp_path / "archive" / "2026-99-99").mkdir()
    assert clean_archive(tmp_path, 0, clock=ManualClock(NOW)) == 0
    assert clean_archive(tmp_path, 30, clock=ManualClock(NOW)) == 2
    left = sorted(path.name for path in (tmp_path / "archive").iterdir() if path.is_dir())
    assert left == ["2026-10-17", "2026-10-18", "2026-11-16", "2026-99-99", "precious"]


def test_only_old_drafts_are_removed_when_the_folder_is_settled(tmp_path: Path) -> None:
    a_file(tmp_path)
    old, new = tmp_path / "incoming/.a.status.1.tmp", tmp_path / "incoming/.b.status.2.tmp"
    for path in (old, new):
        path.touch()
    long_ago = time.time() - 2 * 86400
    os.utime(old, (long_ago, long_ago))
    finish_interrupted(tmp_path)
    assert (old.exists(), new.exists()) == (False, True)


def test_the_original_stays_when_the_copy_cannot_be_put_in_its_place(tmp_path: Path) -> None:
    a_file(tmp_path)
    (file,) = unprocessed(tmp_path)
    (file.archive_path / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match="irectory"):
        archive(file)
    assert file.path.exists()
    assert [path.name for path in file.archive_path.parent.iterdir()] == [file.archive_path.name]


@pytest.mark.parametrize("is_first", [True, False], ids=["no time was witnessed", "time was witnessed"])
def test_no_day_goes_when_the_clock_has_leapt_ahead(tmp_path: Path, is_first: bool) -> None:
    a_file(tmp_path)
    archive(unprocessed(tmp_path)[0])
    if not is_first:
        assert clean_archive(tmp_path, 30, clock=ManualClock(NOW)) == 0
    for hours in range(3):  # cycles of a machine whose clock is 32 days ahead
        wrong = ManualClock(NOW + 32 * 86400 + hours * 3600)
        assert clean_archive(tmp_path, 30, clock=wrong) == 0
    assert clean_archive(tmp_path, 30, clock=ManualClock(NOW + 86400)) == 0  # it was set right
    removed_at = [
        day for day in range(2, 40) if clean_archive(tmp_path, 30, clock=ManualClock(NOW + day * 86400))
    ]
    assert removed_at in ([31], [32])  # a right clock removes it, at most a day later


def test_the_other_days_are_removed_when_one_cannot_be(tmp_path: Path) -> None:
    for days in (41, 40, 0):
        a_file(tmp_path, NOW - days * 86400)
        archive(unprocessed(tmp_path)[0])
    (tmp_path / "archive" / "2026-10-06" / "foreign").mkdir()
    (tmp_path / "archive" / "2026-10-07" / "foreign.txt").write_text("x")
    assert clean_archive(tmp_path, 30, clock=ManualClock(NOW)) == 2
    assert [path.name for path in (tmp_path / "archive").glob("2026-10-*/*")] == ["foreign"]
    assert clean_archive(tmp_path, 30, clock=ManualClock(NOW)) == 0

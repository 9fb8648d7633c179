from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.clock import ManualClock
from headwater.log.files.file_status import FileStatus
from headwater.log.files.incoming import Incoming
from headwater.log.files.layout import IncomingFile, unprocessed
from headwater.system.durable_files import replace
from tests.log.event_parts import FullDisk


def a_file(folder: Path) -> IncomingFile:
    incoming = Incoming(folder, clock=ManualClock())
    incoming.append_wait("web", [b"{}"])
    incoming.close()
    return unprocessed(folder)[0]


def test_a_pair_is_done_when_it_was_marked_so_and_saved(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    status = FileStatus.load(file)
    assert not status.is_done("dwh", "events")
    status.mark("dwh", "events", True, rows=12)
    status.mark("dwh", "a/b", False, error="the server is unreachable")
    status.count("dwh", events=15, skipped=1, rejected=2)
    assert not FileStatus.load(file).is_done("dwh", "events")
    status.save()
    again = FileStatus.load(file)
    assert again.is_done("dwh", "events")
    assert not again.is_done("dwh", "a/b")
    assert not again.is_complete
    assert again.pairs["dwh", "a/b"].error == "the server is unreachable"
    assert again.counts["dwh"].rejected == 2


def test_the_file_has_its_documented_form_when_it_is_read_by_others(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    status = FileStatus.load(file)
    status.mark("dwh", "events", True, rows=12)
    status.save()
    assert file.status_path.name == f"{file.name}.status"
    assert json.loads(file.status_path.read_bytes())["status"] == {
        "dwh/events": {"uploaded": True, "error": "", "rows": 12, "unmapped": 0}
    }


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"status": 5}', b"\xff"])
def test_it_begins_again_when_the_file_is_damaged(tmp_path: Path, content: bytes) -> None:
    file = a_file(tmp_path)
    file.status_path.write_bytes(content)
    status = FileStatus.load(file)
    assert status.pairs == {}
    status.mark("dwh", "events", True)
    status.save()
    assert FileStatus.load(file).is_done("dwh", "events")
    assert [path.name for path in file.path.parent.glob(".*")] == []


def test_the_old_content_stays_when_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "status"
    replace(path, b"old")
    with pytest.raises(OSError, match="no space"):
        replace(path, b"new and longer", FullDisk(room=3))
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["status"]

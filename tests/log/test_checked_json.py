"""A flipped bit of a small file never moves a cursor, and never changes what became of a file (G3, G5)."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.checked_json import checked, with_checksum
from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import status_path, unprocessed
from headwater.log.files.verify import verify_events
from headwater.log.streams import StreamCursor
from tests.log.test_file_status import a_file


def flipped(data: bytes) -> list[bytes]:
    """The data with each of its bits flipped in turn."""
    found = []
    for at in range(len(data)):
        for bit in range(8):
            found.append(data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :])
    return found


@given(st.dictionaries(st.text(max_size=7), st.one_of(st.integers(), st.text(max_size=9)), max_size=3))
def test_an_object_comes_back_and_stays_json_when_it_has_a_checksum(content: dict[str, object]) -> None:
    encoded = msgspec.json.encode(content)
    assert checked(with_checksum(encoded)) == encoded
    assert {name: json.loads(with_checksum(encoded))[name] for name in content} == content


def test_an_object_is_read_when_an_earlier_release_wrote_it() -> None:
    for encoded in (b"{}", b'{"position":12,"error":""}', b'{"position":12,"error":"timeouts"}'):
        assert checked(encoded) == encoded


def test_a_stream_never_skips_positions_when_any_bit_of_its_cursor_is_flipped(tmp_path: Path) -> None:
    (tmp_path / "stream").mkdir()
    cursor = StreamCursor(queue="q", position=1200, archived=1100, rows=1199, error="away")
    cursor.save(tmp_path)
    path = tmp_path / "stream" / "cursor.json"
    for data in flipped(path.read_bytes()):
        path.write_bytes(data)
        found = StreamCursor.load(tmp_path, "q")
        assert found in (cursor, StreamCursor(queue="q", position=1, archived=1))
        assert StreamCursor.peek(tmp_path) in (cursor, None)  # the gateway collects nothing by a damaged one


def test_no_file_has_another_fate_when_any_bit_of_its_status_is_flipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = a_file(tmp_path)
    status = FileStatus.load(file)
    status.mark("dwh", "events", True, rows=12)
    status.mark("dwh", "other", False, error="away")
    status.cut("dwh", "events", 0, 16)
    status.count("dwh", events=15, skipped=1, rejected=2)
    status.save()
    data = file.status_path.read_bytes()
    monkeypatch.setattr("headwater.log.files.file_status.logger.error", lambda *_: None)
    for bad in flipped(data):
        file.status_path.write_bytes(bad)
        found = FileStatus.load(file)
        assert found.is_damaged == (found.pairs == {})
        if not found.is_damaged:
            assert (found.pairs, found.counts, found.cuts("dwh", "events")) == (
                status.pairs,
                status.counts,
                [(0, 16)],
            )


def test_a_damaged_status_is_named_when_event_files_are_verified(tmp_path: Path) -> None:
    a_file(tmp_path)
    (file,) = unprocessed(tmp_path)
    path = status_path(file.path)
    assert [each.problem for each in verify_events(tmp_path)] == [""]
    path.write_bytes(path.read_bytes().replace(b'"lines":1', b'"lines":3'))
    assert [each.problem for each in verify_events(tmp_path)] == [
        "its status file is damaged, so the number of its lines is not known"
    ]

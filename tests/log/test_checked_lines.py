from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.clock import ManualClock
from headwater.log.files.archive import archive
from headwater.log.files.checked_lines import LineReader, LineWriter, checked_line, has_checksums, read_line
from headwater.log.files.file_status import FileStatus
from headwater.log.files.incoming import Incoming
from headwater.log.files.layout import IncomingFile, unprocessed
from headwater.log.files.verify import verify_events
from headwater.log.rejects.destination_file import DestinationRejects, EventError

EVENTS = [b'{"n":%d,"amount":%d}' % (number, number * 100) for number in range(20)]
NOW = 1_800_000_000.0


def a_file(folder: Path) -> IncomingFile:
    incoming = Incoming(folder, clock=ManualClock(NOW))
    incoming.append_wait("web", EVENTS)
    incoming.close()
    return unprocessed(folder)[0]


def flip(path: Path, at: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


@given(st.binary().filter(lambda event: b"\n" not in event))
def test_an_event_is_read_as_it_was_written(event: bytes) -> None:
    line = checked_line(event)
    assert line == event + b"\t%08x\n" % zlib.crc32(event)
    assert read_line(line) == (event, zlib.crc32(event), False)


@given(st.integers(0), st.integers(0, 7))
def test_no_event_is_another_when_any_bit_of_a_file_is_flipped(at: int, bit: int) -> None:
    content = bytearray(b"".join(map(checked_line, EVENTS)))
    content[at % len(content)] ^= 1 << bit
    lines = [read_line(line) for line in bytes(content).split(b"\n") if line]
    assert {line.event for line in lines if not line.is_damaged} < set(EVENTS)
    assert 1 <= sum(line.is_damaged for line in lines) <= 2


@given(st.binary(max_size=40).filter(lambda line: b"\n" not in line))
def test_a_foreign_line_is_damaged_unless_it_has_the_right_checksum(line: bytes) -> None:
    found = read_line(line)
    assert found.is_damaged or checked_line(found.event) == line + b"\n"


def test_the_number_and_order_of_lines_is_recorded_when_a_file_is_complete(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    lines = file.path.read_bytes().splitlines(True)
    written = FileStatus.load(file).written
    assert written is not None
    assert written.lines == len(EVENTS)
    for changed, said in (
        (lines, ""),
        (lines[:5] + lines[6:], "20 lines were written, 19 are there"),
        (lines[:5] + lines[4:], "20 lines were written, 21 are there"),
        (lines[:5] + lines[4:5] + lines[6:], "not those that were written"),
        ([*lines[:5], lines[6], lines[5], *lines[7:]], "not in their order"),
    ):
        file.path.write_bytes(b"".join(changed))
        reader = LineReader(file.path)
        reader.read_all()
        assert said in reader.problem(written)
        assert bool(said) == bool(reader.problem(written))


def test_the_damage_is_in_the_status_and_the_copy_is_as_it_was_when_a_file_is_archived(
    tmp_path: Path,
) -> None:
    file = a_file(tmp_path)
    flip(file.path, 8)
    content = file.path.read_bytes()
    place = archive(file)
    assert gzip.decompress(place.read_bytes()) == content
    assert FileStatus.read(place.with_suffix(".status")).damage == "1 of 20 lines are damaged"


def test_a_file_of_one_damaged_line_is_known_to_have_checksums(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path, clock=ManualClock(NOW))
    incoming.append_wait("web", [b'{"n":1}'])
    incoming.close()
    (file,) = unprocessed(tmp_path)
    flip(file.path, 5)
    assert not has_checksums(file.path)
    (found,) = verify_events(tmp_path)
    assert (found.is_checked, found.damaged) == (True, 1)
    assert FileStatus.read(archive(file).with_suffix(".status")).damage


def test_the_lines_are_recorded_when_the_writer_had_died(tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    active = tmp_path / "incoming" / "incoming.tok=web.log"
    active.write_bytes(b"".join(map(checked_line, EVENTS)) + b'{"torn')
    Incoming(tmp_path).close()
    writer = LineWriter()
    writer.wrote(writer.lines(EVENTS)[1])
    assert FileStatus.load(unprocessed(tmp_path)[0]).written == writer.written


def test_a_file_of_an_earlier_release_is_read_without_checksums(tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    active = tmp_path / "incoming" / "incoming.tok=web.log"
    active.write_bytes(b"".join(event + b"\n" for event in EVENTS))
    Incoming(tmp_path).close()
    (file,) = unprocessed(tmp_path)
    assert FileStatus.load(file).written is None
    assert [line.event for line in LineReader(file.path)] == EVENTS
    (found,) = verify_events(tmp_path)
    assert found[1:] == (20, 0, False, "")
    assert FileStatus.read(archive(file).with_suffix(".status")).damage == ""


# --- rejects of destinations ----------------------------------------------------------------------------


def reject(number: int) -> EventError:
    return EventError.of(EVENTS[number], "bad", destination_id="dwh", source=f"file:{number}", at=NOW)


def test_rejects_get_checksums_when_their_file_is_of_an_earlier_release(tmp_path: Path) -> None:
    rejects = DestinationRejects(tmp_path)
    rejects.append("dwh", [reject(0), reject(1)])
    path = tmp_path / "failed" / "failed.dst=dwh.log"
    path.write_bytes(b"".join(line.event + b"\n" for line in LineReader(path)))
    assert [error.line() for error in rejects.read("dwh")] == EVENTS[:2]
    rejects.append("dwh", [reject(2)])
    assert has_checksums(path)
    assert [error.line() for error in rejects.read("dwh")] == EVENTS[:3]


def test_a_damaged_reject_is_listed_and_no_event_when_it_is_replayed(tmp_path: Path) -> None:
    rejects = DestinationRejects(tmp_path)
    rejects.append("dwh", [reject(0), reject(1), reject(2)])
    path = tmp_path / "failed" / "failed.dst=dwh.log"
    flip(path, path.read_bytes().index(b'"amount":100') + 9)
    first, damaged, last = rejects.read("dwh")
    assert [first.line(), last.line()] == [EVENTS[0], EVENTS[2]]
    assert damaged.damaged
    assert "does not match its checksum" in damaged.error
    assert b'"amount":000' in damaged.line()
    assert rejects.request_replay("dwh", NOW) == 3
    (file,) = unprocessed(tmp_path)
    lines = list(LineReader(file.path))
    assert [line.is_damaged for line in lines] == [False, True, False]
    assert [line.event for line in lines if not line.is_damaged] == [EVENTS[0], EVENTS[2]]


# --- verify ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["active", "complete", "archived", "rejects"])
def test_damage_is_found_in_every_kind_of_file(tmp_path: Path, kind: str) -> None:
    DestinationRejects(tmp_path).append("dwh", [reject(number) for number in range(5)])
    archive(a_file(tmp_path))
    incoming = Incoming(tmp_path, clock=ManualClock(NOW + 60))
    incoming.append_wait("web", EVENTS)
    incoming.rotate()
    incoming.append_wait("web", EVENTS)
    assert [(file.lines, file.problem) for file in verify_events(tmp_path)] == [
        (20, ""),
        (5, ""),
        (20, ""),
        (20, ""),
    ]
    path = {
        "active": tmp_path / "incoming/incoming.tok=web.log",
        "complete": unprocessed(tmp_path)[0].path,
        "archived": next(tmp_path.glob("archive/*/*.gz")),
        "rejects": tmp_path / "failed/failed.dst=dwh.log",
    }[kind]
    flip(path, path.stat().st_size // 2)
    assert [file.path for file in verify_events(tmp_path) if file.problem] == [path]
    incoming.close()


def test_the_tail_is_not_damage_when_a_line_is_being_written(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path)
    incoming.append_wait("web", EVENTS)
    with (tmp_path / "incoming/incoming.tok=web.log").open("ab") as file:
        file.write(b'{"n":')
        file.flush()
        (found,) = verify_events(tmp_path)
    assert (found.lines, found.problem) == (20, "")
    incoming.close()


def test_a_truncated_file_of_the_archive_is_reported(tmp_path: Path) -> None:
    place = archive(a_file(tmp_path))
    place.write_bytes(place.read_bytes()[:-20])
    (found,) = verify_events(tmp_path)
    assert "cannot be read beyond line" in found.problem
    place.write_bytes(b"not gzip")
    (found,) = verify_events(tmp_path)
    assert "cannot be read" in found.problem

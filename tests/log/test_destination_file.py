from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from headwater.log.files.archive import archive
from headwater.log.files.incoming import finish_interrupted
from headwater.log.files.layout import unprocessed
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from tests.log.event_parts import FullDisk, events_in, killed, lines

NOW = 1_800_000_000.0


def reject(line: bytes, number: int = 1) -> EventError:
    return EventError.of(line, "no table", destination_id="dwh", source=f"file.log:{number}", at=NOW)


def kept(folder: Path) -> list[bytes]:
    return [error.line() for error in DestinationRejects(folder).read("dwh")]


def test_a_reject_has_its_documented_form_when_it_is_written(tmp_path: Path) -> None:
    DestinationRejects(tmp_path).append("dwh", [reject(b'{"a": 1.50, "eventn_ctx":{"event_id":"e1"}}')])
    (line,) = events_in(tmp_path / "failed" / "failed.dst=dwh.log")
    assert b'"a": 1.50' in line
    assert json.loads(line) == {
        "event": {"a": 1.5, "eventn_ctx": {"event_id": "e1"}},
        "error": "no table",
        "event_id": "e1",
        "destination_id": "dwh",
        "at": "2027-01-15T08:00:00.000Z",
        "source": "file.log:1",
    }


@pytest.mark.parametrize("line", [b"{", b"[1]", b"5", b'{"a":"\xff"}', b"", b"[" * 5000])
def test_the_text_is_kept_when_a_line_is_no_event(tmp_path: Path, line: bytes) -> None:
    DestinationRejects(tmp_path).append("dwh", [reject(line)])
    (found,) = DestinationRejects(tmp_path).read("dwh")
    assert bytes(found.event) == b""
    assert found.malformed_event == line.decode(errors="replace")
    assert found.error == "no table"


def test_a_reject_is_one_when_the_pipeline_wrote_it_twice(tmp_path: Path) -> None:
    batch = [reject(b'{"n":%d}' % number, number) for number in range(3)]
    assert DestinationRejects(tmp_path).append("dwh", batch) == 3
    DestinationRejects(tmp_path).append("dwh", batch)
    assert kept(tmp_path) == [
        b'{"n":0}',
        b'{"n":1}',
        b'{"n":2}',
    ]
    assert DestinationRejects(tmp_path).counts() == {"dwh": 3}
    assert list(DestinationRejects(tmp_path).read("other")) == []


def test_a_torn_line_is_cut_when_the_next_is_written(tmp_path: Path) -> None:
    DestinationRejects(tmp_path).append("dwh", [reject(b'{"n":1}')])
    path = tmp_path / "failed" / "failed.dst=dwh.log"
    with path.open("ab") as file:
        file.write(b'{"event": ' + b"x" * 100_000)
    assert DestinationRejects(tmp_path).counts() == {"dwh": 1}
    DestinationRejects(tmp_path).append("dwh", [reject(b'{"n":2}', 2)])
    assert kept(tmp_path) == [b'{"n":1}', b'{"n":2}']


def test_a_line_that_is_no_reject_is_kept_as_it_is_when_it_is_read(tmp_path: Path) -> None:
    DestinationRejects(tmp_path).append("dwh", [reject(b'{"n":1}')])
    with (tmp_path / "failed" / "failed.dst=dwh.log").open("ab") as file:
        file.write(b"not ours\n")
    DestinationRejects(tmp_path).append("dwh", [reject(b'{"n":2}', 2)])
    assert kept(tmp_path) == [
        b'{"n":1}',
        b"not ours",
        b'{"n":2}',
    ]


def test_the_error_is_raised_when_the_disk_is_full(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no space"):
        DestinationRejects(tmp_path).append("dwh", [reject(b'{"n":1}')], disk=FullDisk(room=10))
    DestinationRejects(tmp_path).append("dwh", [reject(b'{"n":1}')])
    assert DestinationRejects(tmp_path).counts() == {"dwh": 1}


def test_rejects_become_a_file_for_their_destination_when_they_are_replayed(tmp_path: Path) -> None:
    DestinationRejects(tmp_path).append("dwh", [reject(b'{"n": 1}'), reject(b"{bad\r\n", 2)])
    assert DestinationRejects(tmp_path).request_replay("dwh", NOW) == 2
    assert DestinationRejects(tmp_path).request_replay("dwh", NOW) == 0
    (file,) = unprocessed(tmp_path)
    assert file.name == "failed.dst=dwh-2027-01-15T08-00-00.000.log"
    assert (file.kind, file.destination_id, file.token_id) == ("failed", "dwh", "")
    assert lines(tmp_path) == [b'{"n": 1}\n', b"{bad  \n"]
    assert DestinationRejects(tmp_path).counts() == {}
    DestinationRejects(tmp_path).append("dwh", [reject(b'{"n":3}')])
    assert DestinationRejects(tmp_path).request_replay("dwh", NOW) == 1
    assert [file.name for file in unprocessed(tmp_path)] == [
        "failed.dst=dwh-2027-01-15T08-00-00.000.log",
        "failed.dst=dwh-2027-01-15T08-00-00.001.log",
    ]
    place = archive(file)
    assert place == tmp_path / "archive/2027-01-15/failed.dst=dwh-2027-01-15T08-00-00.000.log.gz"


REPLAY = """
import sys
from pathlib import Path
from headwater.log.rejects.destination_file import DestinationRejects
DestinationRejects(Path(sys.argv[1])).request_replay("dwh", 1_800_000_000.0)
"""


@pytest.mark.parametrize("point", ["failed.after_rename", "failed.after_unwrap"])
def test_a_replay_happens_once_when_it_was_interrupted(tmp_path: Path, point: str) -> None:
    DestinationRejects(tmp_path).append("dwh", [reject(b'{"n":1}')])
    killed(REPLAY, str(tmp_path), at=point)
    finish_interrupted(tmp_path)
    finish_interrupted(tmp_path)
    assert lines(tmp_path) == [b'{"n":1}\n']
    assert DestinationRejects(tmp_path).counts() == {}
    assert sorted(path.suffix for path in (tmp_path / "failed").iterdir()) == ["", ".log", ".status"]


def test_no_reject_is_lost_when_a_replay_comes_between_writers(tmp_path: Path) -> None:
    def write(start: int) -> None:
        for number in range(start, start + 30):
            DestinationRejects(tmp_path).append("dwh", [reject(b'{"n":%d}' % number, number)])

    threads = [threading.Thread(target=write, args=(100 * i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        DestinationRejects(tmp_path).request_replay("dwh", NOW)
    for thread in threads:
        thread.join()
    DestinationRejects(tmp_path).request_replay("dwh", NOW)
    found = [json.loads(line)["n"] for line in lines(tmp_path)]
    assert sorted(found) == sorted(n for i in range(3) for n in range(100 * i, 100 * i + 30))

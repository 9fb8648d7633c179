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


def numbers(folder: Path) -> list[int]:
    return [json.loads(line)["n"] for line in kept(folder)]


def gone(folder: Path) -> dict[str, int]:
    return {each.reason: each.events for each in DestinationRejects(folder).dropped()}


def at(line: bytes, number: int, seconds: float) -> EventError:
    return EventError.of(line, "no", destination_id="dwh", source=f"f:{number}", at=NOW + seconds)


def test_counts_follow_the_file_when_other_processes_change_it(tmp_path: Path) -> None:
    rejects, other = DestinationRejects(tmp_path), DestinationRejects(tmp_path)
    path = tmp_path / "failed" / "failed.dst=dwh.log"
    for number in range(4):
        other.append("dwh", [reject(b'{"n":1}', number), reject(b'{"n":2}', number + 1)])
        assert rejects.counts() == {"dwh": number + 2}
    size = rejects.bytes("dwh")
    content = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"event": ')  # is being written
    assert (rejects.counts(), rejects.bytes("dwh")) == ({"dwh": 5}, size)
    # what was counted is not read again: the same file, with other bytes where the first rejects were
    with path.open("r+b") as file:
        file.seek(len(content) // 2)
        file.write(b"?")
    assert rejects.counts() == {"dwh": 5}
    other.drop("dwh")
    assert rejects.counts() == {}
    other.append("dwh", [reject(b"{}", number) for number in range(50)])
    assert rejects.counts() == {"dwh": 50}
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[10:]))  # in the same file
    assert rejects.counts() == {"dwh": 40}


def test_the_oldest_are_dropped_and_counted_when_they_exceed_their_bytes(tmp_path: Path) -> None:
    rejects = DestinationRejects(tmp_path)
    for number in range(0, 100, 5):
        # a crash makes the pipeline write the same batch again: it is the same rejects
        for _ in range(2):
            batch = [reject(b'{"n":%d}' % each, each) for each in range(number, number + 5)]
            rejects.append("dwh", batch)
        rejects.apply_limits(most_bytes=5_000, age_seconds=1e9, now=NOW)
        assert rejects.bytes("dwh") <= 5_000
    left = numbers(tmp_path)
    assert left == list(range(100 - len(left), 100))
    assert gone(tmp_path) == {"bytes": 100 - len(left)}
    assert rejects.counts() == DestinationRejects(tmp_path).counts() == {"dwh": len(left)}


def test_the_old_are_dropped_and_counted_when_they_exceed_their_age(tmp_path: Path) -> None:
    rejects = DestinationRejects(tmp_path)
    rejects.append("dwh", [at(b'{"n":%d}' % number, number, 60.0 * number) for number in range(10)])
    path = tmp_path / "failed" / "failed.dst=dwh.log"
    path.write_bytes(b"not ours\n" + path.read_bytes())
    hour = {"most_bytes": 1 << 30, "age_seconds": 3600.0}
    rejects.apply_limits(**hour, now=NOW + 3600)  # type: ignore[arg-type]
    assert gone(tmp_path) == {}
    rejects.apply_limits(**hour, now=NOW + 3600 + 150)  # type: ignore[arg-type]
    assert gone(tmp_path) == {"age": 4}  # those of the first three minutes, and what stood before them
    assert numbers(tmp_path) == list(range(3, 10))
    rejects.append("dwh", [at(b'{"n":10}', 10, 600.0)])
    rejects.apply_limits(**hour, now=NOW + 9e9)  # type: ignore[arg-type]
    assert gone(tmp_path) == {"age": 12}
    assert rejects.counts() == {}


LIMIT = """
import sys
from pathlib import Path
from headwater.log.rejects.destination_file import DestinationRejects
DestinationRejects(Path(sys.argv[1])).apply_limits(most_bytes=3_000, age_seconds=1e9, now=1_800_000_000.0)
"""


@pytest.mark.parametrize("point", ["failed.after_count", "failed.after_cut"])
@pytest.mark.parametrize("then", ["limit", "replay", "drop"])
def test_a_dropped_reject_is_counted_once_when_the_process_is_killed(
    tmp_path: Path, point: str, then: str
) -> None:
    rejects = DestinationRejects(tmp_path)
    rejects.append("dwh", [reject(b'{"n":%d}' % number, number) for number in range(50)])
    killed(LIMIT, str(tmp_path), at=point)
    rejects.append("dwh", [reject(b'{"n":50}', 50)])
    if then == "limit":
        rejects.apply_limits(most_bytes=1 << 30, age_seconds=1e9, now=NOW)
        left = rejects.counts()["dwh"]
    elif then == "replay":
        left = rejects.request_replay("dwh", NOW)
    else:
        left = rejects.drop("dwh")
    assert 0 < left < 51
    assert gone(tmp_path) == {"bytes": 51 - left}


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


def because(reason: str, number: int) -> EventError:
    found = reject(b'{"n":%d}' % number, number)
    found.error = reason
    return found


def is_type(error: EventError) -> bool:
    return error.error == "type"


MIXED = [because("type", 1), because("null", 2), because("type", 3)]


def test_some_are_replayed_and_the_others_stay_when_they_are_selected(tmp_path: Path) -> None:
    rejects = DestinationRejects(tmp_path)
    rejects.append("dwh", MIXED)
    assert rejects.request_replay("dwh", NOW, lambda error: error.error == "other") == 0
    assert (unprocessed(tmp_path), rejects.counts()) == ([], {"dwh": 3})
    assert rejects.request_replay("dwh", NOW, is_type) == 2
    assert lines(tmp_path) == [b'{"n":1}\n', b'{"n":3}\n']
    assert kept(tmp_path) == [b'{"n":2}']
    rejects.append("dwh", [because("type", 4)])
    assert rejects.drop("dwh", is_type) == 1
    assert kept(tmp_path) == [b'{"n":2}']
    assert rejects.drop("dwh", lambda error: True) == 1
    assert rejects.counts() == {}


REPLAY_SOME = """
import sys
from pathlib import Path
from headwater.log.rejects.destination_file import DestinationRejects
DestinationRejects(Path(sys.argv[1])).request_replay(
    "dwh", 1_800_000_000.0, lambda error: error.error == "type"
)
"""


@pytest.mark.parametrize(
    "point", ["failed.after_selection", "failed.after_removal", "failed.after_rename", "failed.after_unwrap"]
)
def test_each_reject_is_replayed_or_kept_when_a_replay_of_some_was_interrupted(
    tmp_path: Path, point: str
) -> None:
    rejects = DestinationRejects(tmp_path)
    rejects.append("dwh", MIXED)
    killed(REPLAY_SOME, str(tmp_path), at=point)
    rejects.append("dwh", [because("type", 4)])
    finish_interrupted(tmp_path)
    finish_interrupted(tmp_path)
    replayed, left = (
        [json.loads(line)["n"] for line in lines(tmp_path)],
        [json.loads(line)["n"] for line in kept(tmp_path)],
    )
    assert sorted(replayed + left) == [1, 2, 3, 4]
    assert replayed == ([] if point == "failed.after_selection" else [1, 3])

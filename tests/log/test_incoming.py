from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headwater.clock import ManualClock
from headwater.errors import HeadwaterError, LogClosed, LogFull, LogLocked, LogUnavailable
from headwater.log.files.incoming import WRITERS, Incoming, finish_interrupted
from headwater.log.files.layout import IncomingFile, unprocessed
from headwater.metrics import Metrics
from headwater.settings import EventsSettings
from tests.log.event_parts import FullDisk, events_in, killed, lines
from tests.support.waiting import wait_until

START = 1_800_000_000.0  # 2027-01-15T08:00:00Z


def names(folder: Path) -> list[str]:
    return [file.name for file in unprocessed(folder)]


def test_events_are_in_the_file_of_their_token_when_they_are_answered(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path)
    incoming.append_wait("web", [b'{"a":1}', b'{"a":2}'])
    incoming.append_wait("app", [b'{"a":3}'])
    found = (tmp_path / "incoming" / "incoming.tok=web.log").read_bytes()
    assert found == b'{"a":1}\t561bacaf\n{"a":2}\t7d36ff6c\n'
    assert events_in(tmp_path / "incoming" / "incoming.tok=app.log") == [b'{"a":3}']
    assert unprocessed(tmp_path) == []
    incoming.close()
    incoming.close()
    assert sorted(lines(tmp_path)) == [b'{"a":1}\n', b'{"a":2}\n', b'{"a":3}\n']


def test_all_answers_of_a_group_come_in_order_when_many_threads_append(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path)
    answered: list[int] = []
    done = threading.Event()

    def answer(tokens: list[Any], error: HeadwaterError | None) -> None:
        assert error is None
        answered.extend(tokens)
        if len(answered) == 400:
            done.set()

    def send(start: int) -> None:
        for number in range(start, start + 100):
            incoming.append("web", [b"%d" % number], answer, number)

    threads = [threading.Thread(target=send, args=(100 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done.wait(30)
    incoming.close()
    assert [int(line) for line in lines(tmp_path)] == answered
    assert sorted(answered) == list(range(400))


def test_a_file_is_completed_when_it_is_old_enough(tmp_path: Path) -> None:
    clock = ManualClock(START)
    metrics = Metrics()
    incoming = Incoming(tmp_path, EventsSettings(rotation_minutes=5), clock=clock, metrics=metrics)
    incoming.append_wait("web", [b"0"])
    incoming.rotate()
    unprocessed(tmp_path)[0].path.unlink()
    incoming.append_wait("web", [b"1"])
    clock.advance(4)
    incoming.append_wait("web", [b"2"])
    assert names(tmp_path) == []
    clock.advance(1)
    incoming.append_wait("web", [b"3"])
    assert names(tmp_path) == ["incoming.tok=web-2027-01-15T08-00-05.000.log"]
    assert lines(tmp_path) == [b"1\n", b"2\n"]
    assert metrics.counter("incoming_files_rotated").values == {("web",): 2}
    assert metrics.gauge("incoming_files_waiting").values == {(): 1}
    incoming.close()
    assert lines(tmp_path) == [b"1\n", b"2\n", b"3\n"]


def test_files_are_completed_soon_and_then_seldom_when_events_flow_after_a_pause(tmp_path: Path) -> None:
    clock = ManualClock(START)
    metrics = Metrics()
    incoming = Incoming(tmp_path, EventsSettings(rotation_minutes=5), clock=clock, metrics=metrics)
    rotated = metrics.counter("incoming_files_rotated").values
    completed_at: list[int] = []
    for second in range(2020):
        if second == 905:
            incoming.rotate()  # as the clock of the writer's thread does
        if second < 700 or second > 2000:  # a steady flow, a pause, and the flow again
            incoming.append_wait("web", [b"%d" % second])
        if rotated.get(("web",), 0) > len(completed_at):
            completed_at.append(second)
        clock.advance(1)
    incoming.close()
    assert completed_at == [5, 15, 35, 75, 155, 315, 615, 905, 2006, 2016]
    assert len(lines(tmp_path)) == 719


def test_a_file_is_completed_when_it_is_idle_and_old(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path, EventsSettings(rotation_minutes=0.0001))
    incoming.append_wait("web", [b"1"])
    deadline = threading.Event()
    for _ in range(1000):
        if names(tmp_path):
            break
        deadline.wait(0.02)
    assert lines(tmp_path) == [b"1\n"]
    incoming.close()


def test_a_file_is_completed_when_it_is_large_enough(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path, EventsSettings(rotation_bytes=100), clock=ManualClock(START))
    for number in range(10):
        incoming.append_wait("web", [b"%040d" % number])
    incoming.close()
    assert [file.path.stat().st_size for file in unprocessed(tmp_path)] == [100] * 5
    assert [int(line) for line in lines(tmp_path)] == list(range(10))


def test_names_differ_and_keep_their_order_when_the_clock_goes_back(tmp_path: Path) -> None:
    clock = ManualClock(START)
    incoming = Incoming(tmp_path, clock=clock)
    for number in range(3):
        incoming.append_wait("web", [b"%d" % number])
        incoming.rotate()
        clock.jump(-3600)
    incoming.close()
    assert names(tmp_path) == [
        "incoming.tok=web-2027-01-15T08-00-00.000.log",
        "incoming.tok=web-2027-01-15T08-00-00.001.log",
        "incoming.tok=web-2027-01-15T08-00-00.002.log",
    ]
    assert lines(tmp_path) == [b"0\n", b"1\n", b"2\n"]


def test_no_file_is_replaced_when_another_has_its_name_already(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path, clock=ManualClock(START))
    strange = tmp_path / "incoming" / "incoming.tok=web-2027-01-15T08-00-00.000.log"
    strange.write_bytes(b"by hand\n")
    incoming.append_wait("web", [b"0"])
    incoming.close()
    assert strange.read_bytes() == b"by hand\n"
    assert names(tmp_path) == [strange.name, "incoming.tok=web-2027-01-15T08-00-00.001.log"]


def test_a_few_threads_serve_all_tokens_when_there_are_many(tmp_path: Path) -> None:
    before = threading.active_count()
    incoming = Incoming(tmp_path)
    answered: list[int] = []
    for number in range(300):
        incoming.append(
            f"t{number % 100}", [b"%d" % number], lambda found, error: answered.extend(found), number
        )
    wait_until(lambda: len(answered) == 300)
    incoming.rotate()
    assert threading.active_count() <= before + WRITERS
    assert sorted(answered) == list(range(300))
    incoming.append_wait("t0", [b"300"])
    incoming.close()
    assert sorted(int(line) for line in lines(tmp_path)) == list(range(301))
    assert len(names(tmp_path)) == 101


def test_identities_differ_when_a_name_is_used_again(tmp_path: Path) -> None:
    found = []
    for body in (b"1", b"2"):
        incoming = Incoming(tmp_path, clock=ManualClock(START))
        incoming.append_wait("web", [body])
        incoming.close()
        (file,) = unprocessed(tmp_path)
        found.append((file.name, file.identity()))
        file.path.unlink()
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]


def test_no_file_is_completed_when_nothing_came(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path)
    incoming.rotate()
    incoming.close()
    assert unprocessed(tmp_path) == []
    with pytest.raises(LogClosed):
        incoming.append("web", [b"1"], lambda tokens, error: None, 1)


@pytest.mark.parametrize("token", ["../x", "a.b", "", "a/b", "a\n", "ü", "x" * 65])
def test_a_token_is_refused_when_it_could_leave_the_folder(tmp_path: Path, token: str) -> None:
    incoming = Incoming(tmp_path)
    with pytest.raises(ValueError, match="file name"):
        incoming.append_wait(token, [b"1"])
    incoming.close()


def test_an_event_is_refused_when_it_is_more_than_a_line(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path)
    with pytest.raises(ValueError, match="single line"):
        incoming.append_wait("web", [b'{"a":\n1}'])
    incoming.close()
    assert lines(tmp_path) == []


def test_the_folder_is_refused_when_another_process_writes_there(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path)
    incoming.append_wait("web", [b"1"])
    code = "import sys; from pathlib import Path; from headwater.log.files.incoming import Incoming; "
    code += "Incoming(Path(sys.argv[1]), lock_seconds=0.1)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "LogLocked" in done.stderr
    with pytest.raises(LogLocked, match="in use by process"):
        Incoming(tmp_path, lock_seconds=0.1)
    finish_interrupted(tmp_path)  # beside a living writer its file is left alone
    assert names(tmp_path) == []
    incoming.close()
    assert lines(tmp_path) == [b"1\n"]


def test_nothing_half_written_stays_when_the_disk_is_full_and_it_heals(tmp_path: Path) -> None:
    disk = FullDisk(room=16)
    metrics = Metrics()
    incoming = Incoming(tmp_path, disk=disk, metrics=metrics)
    incoming.append_wait("web", [b"good"])
    with pytest.raises(LogFull, match="full"):
        incoming.append_wait("web", [b"too much"])
    assert not incoming.healthy
    assert events_in(tmp_path / "incoming" / "incoming.tok=web.log") == [b"good"]
    disk.room = 100
    incoming.append_wait("web", [b"again"])
    assert incoming.healthy
    incoming.close()
    assert lines(tmp_path) == [b"good\n", b"again\n"]
    assert metrics.counter("incoming_commit_errors").values == {("full",): 1, ("io",): 0}


def test_nothing_is_written_behind_a_torn_line_when_it_cannot_be_cut(tmp_path: Path) -> None:
    disk = FullDisk()
    incoming = Incoming(tmp_path, disk=disk)
    incoming.append_wait("web", [b"good"])
    disk.room, disk.keeps = 3, True
    for _ in range(2):
        with pytest.raises((LogFull, LogUnavailable)):
            incoming.append_wait("web", [b"torn"])
        disk.room = 100
    disk.keeps = False
    incoming.append_wait("web", [b"after"])
    incoming.close()
    assert lines(tmp_path) == [b"good\n", b"after\n"]


def test_an_event_is_not_kept_when_its_sync_failed(tmp_path: Path) -> None:
    disk = FullDisk()
    incoming = Incoming(tmp_path, disk=disk)
    disk.breaks_sync = True
    with pytest.raises(LogUnavailable, match="broken"):
        incoming.append_wait("web", [b"lost"])
    disk.breaks_sync = False
    incoming.append_wait("web", [b"kept"])
    incoming.close()
    assert lines(tmp_path) == [b"kept\n"]


def test_one_tokens_trouble_is_not_anothers_when_only_its_file_fails(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path)
    (tmp_path / "incoming" / "incoming.tok=bad.log").mkdir()
    with pytest.raises(LogUnavailable):
        incoming.append_wait("bad", [b"1"])
    incoming.append_wait("good", [b"2"])
    incoming.close()
    assert lines(tmp_path) == [b"2\n"]


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        pytest.param(b"1\n2\n", [b"1\n", b"2\n"], id="whole"),
        pytest.param(b'1\n{"torn', [b"1\n"], id="torn"),
        pytest.param(b"1\n" + b"\0" * 5000, [b"1\n"], id="zeros"),
        pytest.param(b"1\n" + b"x" * 200_000, [b"1\n"], id="long"),
        pytest.param(b"torn", [], id="nothing"),
        pytest.param(b"", [], id="empty"),
    ],
)
@pytest.mark.parametrize("by", ["writer", "pipeline"])
def test_a_dead_writers_file_is_completed_when_the_folder_is_opened(
    tmp_path: Path, left: bytes, kept: list[bytes], by: str
) -> None:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "incoming.tok=web.log").write_bytes(left)
    if by == "writer":
        Incoming(tmp_path).close()
    else:
        finish_interrupted(tmp_path)
    assert lines(tmp_path) == kept
    assert not (tmp_path / "incoming" / "incoming.tok=web.log").exists()


WRITE = """
import sys
from pathlib import Path
from headwater.log.files.incoming import Incoming
incoming = Incoming(Path(sys.argv[1]))
for number in range(3):
    incoming.append_wait("web", [b"%d" % number])
    print(number, flush=True)
incoming.rotate()
"""


@pytest.mark.parametrize(
    ("point", "acknowledged"),
    [
        ("incoming.before_write:2", 1),
        ("incoming.after_write:2", 1),
        ("incoming.after_sync:2", 1),
        ("incoming.before_rotate", 3),
        ("incoming.after_rotate", 3),
    ],
)
def test_what_was_acknowledged_is_there_once_when_the_writer_was_killed(
    tmp_path: Path, point: str, acknowledged: int
) -> None:
    done = killed(WRITE, str(tmp_path), at=point)
    assert done.stdout.split() == [str(number) for number in range(acknowledged)]
    finish_interrupted(tmp_path)
    found = [int(line) for line in lines(tmp_path)]
    assert found[:acknowledged] == list(range(acknowledged))
    assert found == list(range(len(found)))


def test_files_are_found_oldest_first_and_strangers_are_left_when_the_folder_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "incoming"
    folder.mkdir()
    (tmp_path / "failed").mkdir()
    ours = [
        folder / "incoming.tok=z-2026-11-16T10-00-00.000.log",
        tmp_path / "failed" / "failed.dst=dwh-2026-11-16T10-00-00.500.log",
        folder / "incoming.tok=a-b-2026-11-16T10-00-01.000.log",
    ]
    strangers = [
        folder / "incoming.tok=z.log",
        folder / "incoming.tok=z-2026-11-16T10-00-00.000.log.status",
        folder / "incoming.tok=z-2026-13-46T10-00-00.000.log",
        folder / "failed.dst=dwh-2026-11-16T10-00-00.500.log",
        folder / "notes.txt",
    ]
    for path in (*ours, *strangers):
        path.write_bytes(b"1\n")
    found = unprocessed(tmp_path)
    assert [file.path for file in found] == ours
    assert [(file.kind, file.token_id, file.destination_id) for file in found] == [
        ("incoming", "z", ""),
        ("failed", "", "dwh"),
        ("incoming", "a-b", ""),
    ]
    assert isinstance(found[0], IncomingFile)
    assert unprocessed(tmp_path / "nowhere") == []

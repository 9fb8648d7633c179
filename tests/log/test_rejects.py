"""The rejects: kept with their reason until they are replayed or dropped (G6)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from headwater.clock import ManualClock
from headwater.errors import LogFull, LogUnavailable, RejectNotFound
from headwater.log.queue.sqlite import migrate
from headwater.log.rejects.salvage import salvage_path
from headwater.log.rejects.schema import MIGRATIONS
from headwater.log.rejects.store import NewReject, RejectReader, RejectStore
from headwater.metrics import Metrics
from tests.log.parts import DAMAGES, Damage, FaultyDisk, body

BIG = 1 << 30


def bad(position: int | None = None, size: int = 10) -> NewReject:
    return NewReject("no `run`", body(position or 0, size), [{"path": "/run"}], position, 5.0)


def test_a_reject_is_kept_whole_when_it_is_added(tmp_path: Path) -> None:
    clock, metrics = ManualClock(), Metrics()
    rejects = RejectStore(tmp_path / "new" / "rejects.db", max_bytes=BIG, clock=clock, metrics=metrics)
    rejects.add("outlet:a", [bad(7)])
    found = rejects.get(1)
    assert (found.stage, found.position, found.received_at, found.at) == ("outlet:a", 7, 5.0, clock.now())
    assert (found.reason, found.details, found.body) == ("no `run`", [{"path": "/run"}], body(7, 10))
    assert (found.replay_requested, found.tries) == (False, 0)
    assert metrics.gauge("rejects_open").values == {(): 1}
    with pytest.raises(RejectNotFound, match="There is no reject 2") as missing:
        rejects.get(2)
    assert "rejects list" in missing.value.hint
    rejects.close()


def test_an_event_is_one_reject_when_it_is_refused_twice(tmp_path: Path) -> None:
    rejects = RejectStore(tmp_path / "rejects.db", max_bytes=BIG)
    for _ in range(2):
        rejects.add("outlet:a", [bad(1), bad(2)])
    rejects.add("outlet:b", [bad(1)])
    for _ in range(2):
        rejects.add("gateway", [bad()])  # no position: each is an event of its own
    assert rejects.counts() == {"outlet:a": 2, "outlet:b": 1, "gateway": 2}
    assert [found.id for found in rejects.list("outlet:a")] == [1, 2]
    assert [found.stage for found in rejects.list(limit=2, after=2)] == ["outlet:b", "gateway"]
    rejects.close()


def test_replays_are_asked_for_and_concluded_when_another_process_asks(tmp_path: Path) -> None:
    path = tmp_path / "rejects.db"
    server, command = RejectStore(path, max_bytes=BIG), RejectStore(path, max_bytes=BIG)
    server.add("outlet:a", [bad(1), bad(2), bad(3)])
    server.add("gateway", [bad()])
    assert command.request_replay([1, 2, 99]) == 2
    assert [found.id for found in server.requested("outlet:a")] == [1, 2]
    assert [found.id for found in server.requested("outlet:a", limit=1)] == [1]
    assert server.requested("gateway") == []
    server.replayed(1)
    server.failed_again(2, "still bad")
    again = command.get(2)
    assert (again.reason, again.tries, again.replay_requested) == ("still bad", 1, False)
    assert command.request_replay(None, "outlet:a") == 2
    assert command.request_replay(None) == 3
    assert command.drop([2, 2, 50]) == 1
    assert command.drop(None, "gateway") == 1
    assert server.counts() == {"outlet:a": 1}
    assert command.drop(None) == 1
    assert server.counts() == {}
    command.close()
    server.close()


def test_the_oldest_are_dropped_and_counted_when_there_are_too_many_bytes(tmp_path: Path) -> None:
    metrics = Metrics()
    rejects = RejectStore(tmp_path / "rejects.db", max_bytes=50_000, metrics=metrics)
    for number in range(1, 301):
        rejects.add("gateway", [bad(number, 1000)])
    kept = rejects.list(limit=1000)
    assert sum(len(found.body) for found in kept) <= 50_000
    assert [found.position for found in kept] == list(range(301 - len(kept), 301))
    assert metrics.counter("rejects_dropped").values["gateway", "bytes"] == 300 - len(kept)
    rejects.add("gateway", [bad(1000, 60_000)])  # alone larger than the limit: nothing of it stays
    assert rejects.counts() == {}
    assert rejects.drop(None) == 0
    rejects.close()


def test_the_file_stays_near_the_limit_when_rejects_are_small_and_their_reasons_long(tmp_path: Path) -> None:
    path = tmp_path / "rejects.db"
    rejects = RejectStore(path, max_bytes=500_000)
    for _ in range(40):
        rejects.add("gateway", [NewReject("why " * 100, b"0") for _ in range(100)])
    rejects.close()
    assert 0 < rejects_kept(path) < 4000
    assert path.stat().st_size < 1_000_000


def rejects_kept(path: Path) -> int:
    again = RejectStore(path, max_bytes=500_000)
    counts = again.counts()
    again.close()
    return counts["gateway"]


def test_space_is_given_back_when_rejects_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "rejects.db"
    rejects = RejectStore(path, max_bytes=BIG)
    rejects.add("gateway", [NewReject("bad", os.urandom(1000)) for _ in range(2000)])
    rejects.drop(None)
    rejects.close()
    assert path.stat().st_size < 100_000


def test_nothing_is_kept_and_it_heals_when_the_disk_refuses(tmp_path: Path, disk: FaultyDisk) -> None:
    rejects = RejectStore(tmp_path / "rejects.db", max_bytes=BIG, vfs=disk.name)
    rejects.add("gateway", [bad(1)])
    disk.fault = "full"
    with pytest.raises(LogFull):
        rejects.add("gateway", [bad(2)])
    with pytest.raises(LogFull):
        rejects.failed_again(1, "no room for this")
    disk.fault = "sync"
    with pytest.raises(LogUnavailable):
        rejects.request_replay(None)
    disk.fault = ""
    assert [found.position for found in rejects.list()] == [1]
    rejects.add("gateway", [bad(2)])
    assert rejects.counts() == {"gateway": 2}
    rejects.close()
    disk.fault = "full"
    with pytest.raises(LogFull):
        RejectStore(tmp_path / "other.db", max_bytes=BIG, vfs=disk.name)


@pytest.mark.parametrize("damage", [d for _, d in DAMAGES], ids=[name for name, _ in DAMAGES])
def test_it_opens_and_takes_new_ones_when_the_file_is_damaged(tmp_path: Path, damage: Damage) -> None:
    path = tmp_path / "rejects.db"
    rejects = RejectStore(path, max_bytes=BIG)
    rejects.add("gateway", [bad(n, 3000) for n in range(1, 60)])
    rejects.close()
    damage(path)
    rejects = RejectStore(path, max_bytes=BIG)
    rejects.add("gateway", [bad(100)])
    assert rejects.list("gateway", limit=1, after=rejects.counts()["gateway"] - 1)
    rejects.close()
    if not path.parent.joinpath("damaged").exists():
        assert RejectStore(path, max_bytes=BIG).counts()["gateway"] in (1, 60)


def test_new_ones_are_kept_when_the_file_is_damaged_under_a_running_server(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    path = tmp_path / "rejects.db"
    rejects = RejectStore(path, max_bytes=BIG, vfs=disk.name)
    rejects.add("gateway", [bad(1)])
    disk.fault, disk.times = "corrupt", 1
    rejects.add("gateway", [bad(2)])
    assert [found.position for found in rejects.list()] == [1, 2]  # the first could still be read
    assert [file.name[:10] for file in (tmp_path / "damaged").iterdir()].count("rejects.db") >= 1
    rejects.close()


@pytest.mark.parametrize("replaced", [True, False])
def test_the_new_file_is_used_when_another_process_took_the_old_one_away(
    tmp_path: Path, replaced: bool
) -> None:
    path = tmp_path / "rejects.db"
    rejects = RejectStore(path, max_bytes=BIG)
    rejects.add("gateway", [bad(1)])
    for file in list(tmp_path.iterdir()):
        file.unlink()
    if replaced:
        RejectStore(path, max_bytes=BIG).close()
    rejects.add("gateway", [bad(2)])
    rejects.close()
    other = RejectStore(path, max_bytes=BIG)
    assert [found.position for found in other.list()] == [2]
    other.close()


def test_two_processes_may_write_when_both_do_at_once(tmp_path: Path) -> None:
    path = tmp_path / "rejects.db"
    rejects = RejectStore(path, max_bytes=BIG)
    code = (
        "import sys; from pathlib import Path\n"
        "from headwater.log.rejects.store import NewReject, RejectStore\n"
        "rejects = RejectStore(Path(sys.argv[1]), max_bytes=1 << 30)\n"
        "for n in range(200): rejects.add('other', [NewReject('bad', b'x', position=n)])\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(path)])
    for number in range(200):
        rejects.add("gateway", [bad(number)])
    assert other.wait(60) == 0
    assert rejects.counts() == {"gateway": 200, "other": 200}
    rejects.close()


def test_a_reject_is_listed_as_damaged_and_never_sent_when_a_bit_of_its_event_is_flipped(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rejects.db"
    store = RejectStore(path, max_bytes=BIG)
    store.add("outlet:a", [NewReject("422", b'{"amount": 100}', position=7), bad(8)])
    store.close()
    path.write_bytes(path.read_bytes().replace(b'"amount": 100', b'"amount": 900'))
    store = RejectStore(path, max_bytes=BIG)
    store.request_replay(None)
    assert [found.position for found in store.requested("outlet:a")] == [8]
    first, second = store.list("outlet:a")
    assert (first.is_damaged, first.replay_requested, first.tries) == (True, False, 1)
    assert "damaged on disk" in first.reason
    assert not second.is_damaged
    assert len(list(store.problems())) == 1
    store.close()


def test_rejects_without_checksums_are_replayed_when_an_earlier_release_wrote_them(tmp_path: Path) -> None:
    path = tmp_path / "rejects.db"
    old = apsw.Connection(str(path))
    old.pragma("journal_mode", "wal")
    migrate(old, MIGRATIONS[:2], path)
    old.execute(
        "INSERT INTO rejects(at, stage, position, received_at, reason, details, body, replay_requested)"
        " VALUES (1.0, 'outlet:a', 3, 5.0, 'bad', x'5b5d', x'7b7d', 1)"
    )
    old.close()
    reader = RejectReader(path)  # before a server of this release opened it
    assert [found.body for found in reader.list()] == [b"{}"]
    reader.close()
    store = RejectStore(path, max_bytes=BIG)
    assert [found.body for found in store.requested("outlet:a")] == [b"{}"]
    assert list(store.problems()) == []
    store.close()


def test_the_salvaged_file_is_used_when_the_process_died_before_it_took_its_place(tmp_path: Path) -> None:
    path = tmp_path / "rejects.db"
    store = RejectStore(path, max_bytes=BIG)
    store.add("outlet:a", [bad(1)])
    store.close()
    path.rename(salvage_path(path))
    store = RejectStore(path, max_bytes=BIG)
    assert store.counts() == {"outlet:a": 1}
    store.close()


def test_the_file_is_left_as_it_is_when_a_reader_meets_damage(tmp_path: Path) -> None:
    path = tmp_path / "rejects.db"
    RejectStore(path, max_bytes=BIG).close()
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(LogUnavailable, match="is damaged") as damage:
        RejectReader(path).counts()
    assert "damaged/" in damage.value.hint
    assert path.read_bytes().startswith(b"not a database")
    assert not (tmp_path / "damaged").exists()


def test_a_reader_sees_changes_and_makes_none_when_a_server_writes(tmp_path: Path) -> None:
    path = tmp_path / "rejects.db"
    store = RejectStore(path, max_bytes=BIG)
    reader = RejectReader(path)
    store.add("gateway", [bad(1), bad(2)])
    assert reader.counts() == {"gateway": 2}
    assert [found.position for found in reader.list()] == [1, 2]
    assert reader.get(2).position == 2
    with pytest.raises(apsw.ReadOnlyError):
        reader._connection.execute("DELETE FROM rejects")
    reader.close()
    store.close()


def _raise(error: Exception) -> Any:
    raise error


def test_the_new_file_stays_when_a_second_process_meets_the_same_damage(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    path = tmp_path / "rejects.db"
    first = RejectStore(path, max_bytes=BIG, vfs=disk.name)
    second = RejectStore(path, max_bytes=BIG)
    first.add("gateway", [bad(1)])
    disk.fault, disk.times = "corrupt", 1
    first.add("gateway", [bad(2)])
    moved = list((tmp_path / "damaged").iterdir())
    transact, errors = second._transact, [apsw.CorruptError("as the first process met it")]
    second._transact = lambda change: transact(change) if not errors else _raise(errors.pop())  # type: ignore[method-assign]
    second.add("gateway", [bad(3)])
    assert [found.position for found in first.list()] == [1, 2, 3]
    assert list((tmp_path / "damaged").iterdir()) == moved
    first.close()
    second.close()


def test_figures_are_those_of_the_file_when_changes_fail_or_others_make_them(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    path, metrics = tmp_path / "rejects.db", Metrics()
    store = RejectStore(path, max_bytes=BIG, metrics=metrics, vfs=disk.name)
    store.add("gateway", [bad(number, 100) for number in range(1, 6)])
    disk.fault = "full"
    with pytest.raises(LogFull):
        store.add("gateway", [bad(number, 5000) for number in range(6, 50)])
    disk.fault = ""
    store.failed_again(1, "a longer reason than before")
    store.replayed(2)
    other = RejectStore(path, max_bytes=BIG)
    assert store.totals().stored == other.totals().stored
    assert other.drop([3]) == 1
    assert store.requested("gateway") == []  # any look notices the other process
    assert metrics.gauge("rejects_open").values == {(): 3}
    assert store.totals().stored == other.totals().stored
    other.close()
    store.close()


def test_all_are_dropped_when_they_are_more_than_one_transaction_takes(tmp_path: Path) -> None:
    store = RejectStore(tmp_path / "rejects.db", max_bytes=BIG)
    store.add("gateway", [bad(number) for number in range(2500)])
    store.add("outlet:a", [bad(1)])
    assert store.drop(None, "gateway") == 2500
    assert store.counts() == {"outlet:a": 1}
    store.close()

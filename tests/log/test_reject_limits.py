"""What the limits of the rejects take, they count (G3); work grows with the rejects that are meant alone."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from headwater.clock import ManualClock
from headwater.log.queue.sqlite import files_of, migrate
from headwater.log.rejects.schema import MIGRATIONS
from headwater.log.rejects.store import NewReject, RejectReader, RejectStore
from headwater.metrics import Metrics

BIG = 1 << 30
HOUR = 3600.0


def refused(position: int | None, size: int = 1000, received_at: float = 5.0) -> NewReject:
    return NewReject("422", bytes(size), position=position, received_at=received_at)


def test_acknowledged_events_stay_when_junk_fills_the_store(tmp_path: Path) -> None:
    store = RejectStore(tmp_path / "rejects.db", max_bytes=50_000)
    store.add("outlet:a", [refused(n) for n in range(1, 61)])  # more than junk may take
    for _ in range(300):
        store.add("gateway", [refused(None)])
    assert [found.position for found in store.list("outlet:a")] == list(range(1, 61))
    assert store.totals().bytes(acknowledged=False) <= 50_000
    assert store.trouble() is None  # what was never acknowledged is no loss
    store.close()


def test_the_loss_is_logged_and_counted_for_good_when_acknowledged_events_exceed_their_bytes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()

    def opened(metrics: Metrics) -> RejectStore:
        path = tmp_path / "rejects.db"
        return RejectStore(path, max_bytes=BIG, retention_bytes=25_000, clock=clock, metrics=metrics)

    metrics = Metrics()
    store = opened(metrics)
    store.add("gateway", [refused(None)])
    for position in range(1, 61):
        store.add("outlet:a", [refused(position)])
    kept = [found.position for found in store.list("outlet:a")]
    assert kept == list(range(61 - len(kept), 61))
    assert store.counts() == {"gateway": 1, "outlet:a": len(kept)}
    lost = 60 - len(kept)
    assert {labels: n for labels, n in metrics.counter("rejects_dropped").values.items() if n} == {
        ("outlet:a", "bytes"): lost
    }
    assert f"{lost} of outlet:a by bytes" in (store.trouble() or "")
    store.close()
    lines = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert sum(record.args[0] for record in lines) == lost  # type: ignore[index, misc]
    assert len(lines) == 2  # the first at once, the rest in one line
    metrics = Metrics()
    again = opened(metrics)
    assert {labels: n for labels, n in metrics.counter("rejects_dropped").values.items() if n} == {
        ("outlet:a", "bytes"): lost
    }
    assert again.trouble() is not None
    assert RejectReader(tmp_path / "rejects.db").totals().dropped["outlet:a", "bytes"].events == lost
    clock.advance(2 * HOUR)
    assert again.trouble() is None
    again.close()


def test_acknowledged_events_go_when_they_are_older_than_the_log_keeps_any(tmp_path: Path) -> None:
    clock = ManualClock()
    store = RejectStore(tmp_path / "rejects.db", max_bytes=BIG, retention_hours=2, clock=clock)
    store.add("gateway", [refused(None)])
    store.add("outlet:a", [refused(1)])
    clock.advance(1.5 * HOUR)
    store.add("outlet:a", [refused(2)])
    store.expire(clock.now())
    assert len(store.list("outlet:a")) == 2
    clock.advance(HOUR)
    store.expire(clock.now())
    assert [found.position for found in store.list()] == [None, 2]
    assert store.totals().dropped["outlet:a", "age"].events == 1
    store.close()


def test_both_events_are_kept_when_two_logs_have_one_position(tmp_path: Path) -> None:
    store = RejectStore(tmp_path / "rejects.db", max_bytes=BIG)
    store.add("outlet:a", [refused(7, received_at=5.0)])
    store.add("outlet:a", [refused(7, received_at=9.0), refused(7, received_at=5.0)])
    assert [found.received_at for found in store.list()] == [5.0, 9.0]
    store.close()


@pytest.mark.parametrize("running", [True, False])
def test_rejects_that_are_lost_with_their_file_are_counted(tmp_path: Path, running: bool) -> None:
    path = tmp_path / "rejects.db"
    store = RejectStore(path, max_bytes=BIG)
    store.add("outlet:a", [refused(n) for n in range(50)])
    store.drop([1])
    if not running:
        store.close()
    content = bytearray(path.read_bytes())
    content[-4096 * 8 : -4096 * 7] = bytes(4096)  # a page of rejects
    path.write_bytes(content)
    if running:
        store._transact = _fails_once(store._transact)  # type: ignore[method-assign, assignment]
        store.replayed(99)
    else:
        store = RejectStore(path, max_bytes=BIG)
    gone = {reason: each.events for (_, reason), each in store.totals().dropped.items()}
    settled = [(each.fate, each.events) for each in store.settlements("outlet:a")]
    lost = gone.get("damage", 0)
    assert gone.get("hand") == 1
    assert store.counts() == {"outlet:a": 49 - lost}
    if running:
        assert lost == 0  # the WAL has every page
    else:
        assert 0 < lost < 10  # those of one page
        assert settled == [("dropped_damage", lost)]
        assert "by damage" in (store.trouble() or "")
    store.close()


@pytest.mark.parametrize("replaced_by", ["nothing", "an empty file", "another process", "a copy"])
def test_rejects_are_counted_once_when_their_file_is_removed_under_running_processes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, replaced_by: str
) -> None:
    path, metrics = tmp_path / "rejects.db", Metrics()
    server = RejectStore(path, max_bytes=BIG, metrics=metrics)
    command = RejectStore(path, max_bytes=BIG)
    server.add("outlet:a", [refused(n) for n in range(20)])
    server.add("gateway", [refused(None)] * 3)
    copy = sqlite_copy(path)
    server.drop([1, 2])
    command.add("outlet:a", [refused(100)])  # the server has not looked since
    for file in files_of(path):
        file.unlink(missing_ok=True)
    if replaced_by == "an empty file":
        path.touch()
    elif replaced_by == "another process":  # which does not know the old one
        RejectStore(path, max_bytes=BIG).close()
    elif replaced_by == "a copy":
        path.write_bytes(copy)
    kept = {"gateway": 3, "outlet:a": 20} if replaced_by == "a copy" else {}
    lost = 0 if kept else 19
    assert server.counts() == kept
    server.add("outlet:a", [refused(200)])
    assert command.counts() == {**kept, "outlet:a": kept.get("outlet:a", 0) + 1}
    for store in (server, command, RejectReader(path)):
        dropped = {key: gone.events for key, gone in store.totals().dropped.items()}
        damage = {} if kept else {("outlet:a", "damage"): lost, ("gateway", "damage"): 3}
        assert dropped == {("outlet:a", "hand"): 2} | damage
    counted = metrics.counter("rejects_dropped").values
    assert {labels: n for labels, n in counted.items() if n} == dropped
    settled = [each[1:] for each in server.settlements("outlet:a")]
    assert settled == ([("dropped_damage", lost)] if lost else [])
    if lost:
        assert f"{lost} of outlet:a by damage" in (server.trouble() or "")
        assert "it was removed" in caplog.text
    command.close()
    server.close()


def sqlite_copy(path: Path) -> bytes:
    """The content of the file now, with what is in its WAL."""
    target = path.with_name("copy.db")
    source, copy = apsw.Connection(str(path)), apsw.Connection(str(target))
    with copy.backup("main", source, "main") as backup:
        backup.step()
    copy.close()
    source.close()
    return target.read_bytes()


def _fails_once(transact: Callable[..., object]) -> Callable[..., object]:
    errors = [apsw.CorruptError("a page is not what it was")]

    def fails(change: object) -> object:
        if errors:
            raise errors.pop()
        return transact(change)

    return fails


def test_rejects_are_counted_when_the_previous_release_wrote_them(tmp_path: Path) -> None:
    path = tmp_path / "rejects.db"
    old = apsw.Connection(str(path))
    old.pragma("journal_mode", "wal")
    migrate(old, MIGRATIONS[:1], path)
    for position in (1, 2, None):
        values = ("gateway" if position is None else "outlet:a", position, b"{}")
        old.execute(
            "INSERT INTO rejects(at, stage, position, received_at, reason, details, body)"
            " VALUES (1.0, ?, ?, 5.0, 'bad', x'5b5d', ?)",
            values,
        )
    reader = RejectReader(path)  # a command, before the server of this release has run
    assert reader.counts() == {"gateway": 1, "outlet:a": 2}
    reader.close()
    store = RejectStore(path, max_bytes=BIG)
    assert store.counts() == {"gateway": 1, "outlet:a": 2}
    store.add("outlet:a", [refused(2), refused(3)])
    assert [found.position for found in store.list("outlet:a")] == [1, 2, 3]
    old.execute("DELETE FROM rejects WHERE position = 1")  # it runs still, and knows no totals
    store.close()
    assert RejectStore(path, max_bytes=BIG).counts() == {"gateway": 1, "outlet:a": 2}
    old.close()


@pytest.mark.parametrize("seed", range(20))
def test_each_reject_has_one_fate_whatever_is_done(tmp_path: Path, seed: int) -> None:
    """Any order of adding, replaying, dropping, ageing and restarting, by two processes at once."""
    chance, clock = random.Random(seed), ManualClock()
    stages = ("gateway", "outlet:a", "outlet:b")
    added: Counter[str] = Counter()
    replayed: Counter[str] = Counter()

    def opened() -> RejectStore:
        return RejectStore(
            tmp_path / "rejects.db", max_bytes=20_000, retention_bytes=30_000, retention_hours=5, clock=clock
        )

    stores = [opened(), opened()]
    for step in range(120):
        store = chance.choice(stores)
        ids = [found.id for found in store.list(limit=5, after=chance.randrange(200))]
        match chance.randrange(7):
            case 0 | 1 | 2:
                stage, count = chance.choice(stages), chance.randrange(1, 9)
                store.add(stage, [refused(1000 * step + i, chance.randrange(1500)) for i in range(count)])
                added[stage] += count
            case 3:
                replayed.update(found.stage for found in map(store.get, ids))
                store.replayed(*ids)
            case 4:
                for id in ids:
                    store.failed_again(id, "x" * chance.randrange(500))
            case 5:
                store.drop(*chance.choice([(ids, None), (None, chance.choice(stages))]))
                clock.advance(chance.random() * HOUR)
                store.expire(clock.now())
            case _:
                index = stores.index(store)
                store.close()
                stores[index] = opened()
    totals = [store.totals() for store in stores]
    assert totals[0].stored == totals[1].stored
    assert totals[0].dropped == totals[1].dropped
    for stage in stages:
        gone = sum(each.events for key, each in totals[0].dropped.items() if key[0] == stage)
        assert added[stage] == totals[0].counts().get(stage, 0) + gone + replayed[stage]
        settled = Counter[str]()
        for each in stores[0].settlements(stage):
            settled[each.fate] += each.events
        if stage != "gateway":
            assert settled["delivered"] == replayed[stage]
            for reason in ("age", "bytes"):
                dropped = totals[0].dropped.get((stage, reason))
                assert settled[f"dropped_{reason}"] == (dropped.events if dropped else 0)
    assert totals[0].bytes(acknowledged=False) <= 20_000
    for store in stores:
        store.close()


def _work(tmp_path: Path, count: int, act: Callable[[RejectStore, RejectStore, int], None]) -> int:
    """The instructions that SQLite runs for the act, in hundreds."""
    path = tmp_path / f"{count}.db"
    store, other = RejectStore(path, max_bytes=BIG), RejectStore(path, max_bytes=BIG)
    store.add("outlet:z", [refused(n, 10) for n in range(count)])
    store.add("outlet:a", [refused(n, 10) for n in range(count)])
    steps = 0

    def step() -> bool:
        nonlocal steps
        steps += 1
        return False

    for each in (store, other):
        each._connection.set_progress_handler(step, 100)
    act(store, other, count)
    store.close()
    other.close()
    return steps


def _replay(store: RejectStore, other: RejectStore, count: int) -> None:
    other.request_replay(None, "outlet:a")
    while requested := store.requested("outlet:a"):
        for reject in requested:
            store.replayed(reject.id)
            other.counts()  # as a second process would


def _replay_by_id(store: RejectStore, other: RejectStore, count: int) -> None:
    other.request_replay(list(range(count + 1, 2 * count + 1)))


def _fail_again(store: RejectStore, other: RejectStore, count: int) -> None:
    for id in range(count + 1, 2 * count + 1):
        store.failed_again(id, "still bad")
        other.failed_again(id, "bad once more")


def _drop_stage(store: RejectStore, other: RejectStore, count: int) -> None:
    assert store.drop(None, "outlet:a") == count


def _page(store: RejectStore, other: RejectStore, count: int) -> None:
    after = 0
    while page := store.list("outlet:a", limit=10, after=after):
        after = page[-1].id


@pytest.mark.parametrize("act", [_replay, _replay_by_id, _fail_again, _drop_stage, _page])
def test_work_grows_as_the_rejects_do_when_they_are_replayed_dropped_or_listed(
    tmp_path: Path, act: Callable[[RejectStore, RejectStore, int], None]
) -> None:
    few, many = _work(tmp_path, 300, act), _work(tmp_path, 1200, act)
    assert many < 5.5 * few


def test_a_scrape_asks_the_database_nothing(tmp_path: Path) -> None:
    metrics = Metrics()
    store = RejectStore(tmp_path / "rejects.db", max_bytes=BIG, metrics=metrics)
    store.add("gateway", [refused(None)])
    statements: list[str] = []

    def trace(_cursor: object, sql: str, _values: object) -> bool:
        statements.append(sql)
        return True

    store._connection.exec_trace = trace
    assert "headwater_rejects_open 1" in metrics.openmetrics()
    assert store.trouble() is None
    assert statements == []
    assert store.requested("gateway") == []
    assert statements
    store.close()

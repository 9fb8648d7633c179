"""What /readyz reports of losses: for an hour, whatever the wall clock does."""

from __future__ import annotations

from pathlib import Path

from headwater.clock import ManualClock
from headwater.log.queue.log import Log
from headwater.log.queue.partition_file import partition_paths
from headwater.log.recent_losses import RecentLosses
from headwater.log.rejects.store import NewReject, RejectStore
from tests.log.parts import fill, read_all, small

HOUR = 3600.0
DAY = 24 * HOUR


def test_a_loss_is_reported_for_an_hour_when_the_clock_jumps() -> None:
    clock = ManualClock()
    losses = RecentLosses(clock)
    losses.set("old", 7, clock.now() - 2 * HOUR)
    losses.set("before the start", 2, clock.now() - HOUR / 2)
    losses.add("now", 3)
    for jump in (DAY, -DAY, -DAY):
        clock.jump(jump)
        assert losses.recent() == {"before the start": 2, "now": 3}
    clock.advance(HOUR / 2)
    losses.set("old", 8, clock.now())
    assert losses.recent() == {"now": 3, "old": 8}
    clock.advance(HOUR / 2)
    assert losses.recent() == {"old": 8}


def test_dropped_rejects_are_reported_for_an_hour_when_the_clock_jumps(tmp_path: Path) -> None:
    clock = ManualClock()
    store = RejectStore(tmp_path / "rejects.db", max_bytes=1 << 20, retention_bytes=5_000, clock=clock)
    for position in range(1, 9):
        store.add("outlet:a", [NewReject("no", bytes(1000), position=position)])
    for jump in (DAY, -DAY, -DAY):
        clock.jump(jump)
        assert "of outlet:a by bytes" in (store.trouble() or "")
    clock.advance(HOUR)
    assert store.trouble() is None
    store.close()


def test_drops_of_the_log_are_reported_for_an_hour(tmp_path: Path) -> None:
    clock = ManualClock()
    log = Log.open(tmp_path, small(retention_bytes=1 << 19), clock=clock)
    log.reader("slow")
    fill(log, 400)
    log.collect()
    lost = log.stat().readers[0].dropped_bytes
    [reason] = log.trouble()
    assert reason == f"events were dropped: {lost} for the reader slow by bytes; see `headwater status`"
    clock.advance(HOUR)
    assert log.trouble() == []
    log.close()


def test_damage_of_the_log_is_reported_until_the_file_is_moved_away(tmp_path: Path) -> None:
    clock = ManualClock()
    log = Log.open(tmp_path, small(), clock=clock)
    reader = log.reader("r")
    fill(log, 200)
    log.close()
    partition_paths(tmp_path)[0].write_bytes(b"garbage")
    log = Log.open(tmp_path, small(), clock=clock)
    reader = log.reader("r")
    read_all(reader)
    assert any("for the reader r by damage" in reason for reason in log.trouble())
    clock.advance(HOUR)
    [reason] = log.trouble()
    assert reason.startswith("1 damaged file(s) in ")
    (tmp_path / "damaged").rename(tmp_path / "examined")
    log.collect()
    assert log.trouble() == []
    log.close()

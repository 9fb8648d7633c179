"""The lag by a steady clock: neither blind nor alarmed when the wall clock jumps."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.clock import ManualClock
from headwater.log.queue.append_times import MOST, AppendTimes
from headwater.log.queue.log import Log
from tests.log.parts import small

DAY = 86_400.0


@pytest.mark.parametrize("jump", [DAY, -DAY])
@pytest.mark.parametrize("restarted", [False, True])
def test_the_lag_of_a_slow_reader_is_right_when_the_clock_jumps(
    tmp_path: Path, jump: float, restarted: bool
) -> None:
    clock = ManualClock()
    log = Log.open(tmp_path, small(), clock=clock)
    for _ in range(60):
        log.append_wait([b"{}"])
        clock.advance(60)
    if restarted:
        log.close()
        log = Log.open(tmp_path, small(), clock=clock)
    reader = log.reader("slow")
    assert reader.lag_seconds() == pytest.approx(3600)
    clock.jump(jump)
    for finished in range(1, 31):  # it moves: an event each 90 seconds, while one arrives each 60
        clock.advance(60)
        log.append_wait([b"{}"])
        clock.advance(30)
        reader.finish([finished])
        lag = 3600 + finished * 90 - finished * 60
        assert reader.lag_seconds() == pytest.approx(lag)
        assert log.stat().readers[0].lag_seconds == pytest.approx(lag)
    log.close()


def test_times_stay_few_and_right_when_many_positions_are_appended() -> None:
    times = AppendTimes(10)
    for n in range(5 * MOST + 1):
        times.add(11 + n, float(n))
    assert len(times._times) <= MOST
    assert times.of(9) is None
    for n in range(5 * MOST + 1):
        assert n - 8 <= (times.of(10 + n) or 0.0) <= n
    assert times.of(11 + 5 * MOST) is None

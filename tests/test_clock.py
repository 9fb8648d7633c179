from __future__ import annotations

import time

from headwater.clock import ManualClock, SystemClock


def test_the_system_clock_lies_between_two_readings_when_asked() -> None:
    before, monotonic_before = time.time(), time.monotonic()
    clock = SystemClock()
    assert before <= clock.now() <= time.time()
    assert monotonic_before <= clock.monotonic() <= time.monotonic()


def test_both_times_move_when_the_manual_clock_is_advanced() -> None:
    clock = ManualClock(100.0)
    clock.advance(5)
    assert (clock.now(), clock.monotonic()) == (105.0, 5.0)


def test_only_the_wall_clock_moves_when_it_jumps_back() -> None:
    clock = ManualClock(100.0)
    clock.jump(-60)
    assert (clock.now(), clock.monotonic()) == (40.0, 0.0)

"""A wrong clock removes nothing; a right one is believed in the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.clock import ManualClock
from headwater.log.leap_safe_clock import GAP_SECONDS, LeapSafeClock, ahead_seconds

HOUR, DAY = 3600.0, 86_400.0
LIMIT = 3 * DAY


def opened(path: Path, clock: ManualClock, newest: float = 0.0) -> LeapSafeClock:
    return LeapSafeClock(path / "clock", limit_seconds=LIMIT, clock=clock, newest=newest)


def run(witnessed: LeapSafeClock, clock: ManualClock, seconds: float) -> None:
    """A process that runs for this long."""
    clock.advance(seconds)
    witnessed.save(now=True)


def test_it_is_the_wall_clock_when_no_clock_leaps(tmp_path: Path) -> None:
    clock = ManualClock()
    for _ in range(20):
        witnessed = opened(tmp_path, clock)
        assert witnessed.now() == clock.now()
        run(witnessed, clock, DAY)
        assert witnessed.now() == witnessed.latest() == clock.now()
        clock.jump(60)  # the machine is restarted
    assert ahead_seconds(tmp_path / "clock") == witnessed.ahead_seconds == 0


@pytest.mark.parametrize("running", [False, True], ids=["at a start", "while it runs"])
@pytest.mark.parametrize("days", [0.1, 10, 32, 3650])
def test_time_goes_on_as_if_nothing_was_when_the_clock_leaps(
    tmp_path: Path, days: float, running: bool
) -> None:
    clock = ManualClock()
    witnessed = opened(tmp_path, clock)
    run(witnessed, clock, DAY)
    before = clock.now()
    clock.jump(days * DAY)
    if not running:
        witnessed = opened(tmp_path, clock)
    assert witnessed.now() == pytest.approx(before)
    for passed in (1, 2):
        run(witnessed, clock, DAY)
        witnessed = opened(tmp_path, clock)
        assert witnessed.now() == pytest.approx(before + passed * DAY)
        assert witnessed.ahead_seconds == pytest.approx(days * DAY)
        assert ahead_seconds(tmp_path / "clock") == pytest.approx(days * DAY)
    run(witnessed, clock, DAY)  # what was stored before is over the limit by now, whatever the clock says
    assert witnessed.now() == pytest.approx(clock.now())


def test_all_is_as_before_when_a_clock_that_leapt_is_set_right(tmp_path: Path) -> None:
    clock = ManualClock()
    witnessed = opened(tmp_path, clock)
    run(witnessed, clock, DAY)
    clock.jump(10 * DAY)
    run(witnessed, clock, HOUR)
    clock.jump(-10 * DAY)
    assert witnessed.now() == pytest.approx(clock.now())
    assert witnessed.latest() == pytest.approx(clock.now())
    assert witnessed.ahead_seconds == 0
    witnessed.save(now=True)
    assert opened(tmp_path, clock).now() == pytest.approx(clock.now())


def test_what_came_after_several_leaps_has_its_true_age_when_they_are_believed(tmp_path: Path) -> None:
    clock = ManualClock()
    witnessed = opened(tmp_path, clock)
    clock.jump(DAY)
    witnessed.now()
    run(witnessed, clock, DAY)
    stored_at = clock.now()
    clock.jump(2 * DAY)
    witnessed.now()
    run(witnessed, clock, 2.5 * DAY)
    assert witnessed.now() - stored_at == pytest.approx(2.5 * DAY)  # the first leap is believed
    run(witnessed, clock, DAY)
    assert witnessed.now() == pytest.approx(clock.now())


def test_a_clock_that_was_set_back_is_believed_when_it_stays_there(tmp_path: Path) -> None:
    clock = ManualClock()
    witnessed = opened(tmp_path, clock)
    before = clock.now()
    clock.jump(-10 * DAY)
    assert witnessed.now() == clock.now()  # nothing ages by it
    assert witnessed.latest() == before
    run(witnessed, clock, LIMIT - 1)
    assert witnessed.latest() == witnessed.stamp(before) == before + LIMIT - 1
    run(witnessed, clock, 2)
    assert witnessed.latest() == witnessed.stamp(before) == clock.now()


def test_time_begins_at_the_newest_event_when_no_file_says_more(tmp_path: Path) -> None:
    clock = ManualClock()
    assert opened(tmp_path, clock).now() == clock.now()
    newest = clock.now() - 10 * DAY
    assert opened(tmp_path, clock, newest).now() == newest
    assert opened(tmp_path, clock, clock.now() + DAY).latest() == clock.now()
    for damaged in (b"", b"{}", b"x 00000000", b'{"at":1.0} 12345678\n'):
        (tmp_path / "clock").write_bytes(damaged)
        assert opened(tmp_path, clock, newest).now() == newest
    assert ahead_seconds(tmp_path / "clock") == 0


def test_the_file_is_written_once_a_minute_when_nothing_special_happens(tmp_path: Path) -> None:
    clock = ManualClock()
    witnessed = opened(tmp_path, clock)
    path, seen = tmp_path / "clock", set()
    for _ in range(181):
        witnessed.save()
        seen.add(path.read_bytes())
        clock.advance(1)
    assert len(seen) == 4
    clock.jump(DAY)
    witnessed.save()
    assert path.read_bytes() not in seen


def test_times_of_events_never_go_back_unless_a_leap_is_undone(tmp_path: Path) -> None:
    clock = ManualClock()
    witnessed = opened(tmp_path, clock)
    first = witnessed.stamp(0.0)
    assert first == clock.now()
    for seconds in (0.5, DAY, 9 * DAY):
        clock.jump(-seconds)
        assert witnessed.stamp(first) == first
        clock.jump(seconds)
    clock.jump(10 * DAY)
    late = witnessed.stamp(first)
    assert late == clock.now()
    witnessed.now()
    clock.jump(-10 * DAY)
    clock.advance(5)
    assert witnessed.stamp(late) == clock.now()


moves = st.lists(
    st.tuples(st.sampled_from(["run", "jump", "start"]), st.floats(-20 * DAY, 20 * DAY)), max_size=12
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(moves=moves)
def test_no_event_ages_faster_than_clocks_run_when_anything_happens(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str, float]]
) -> None:
    """Nothing that was stored reaches the age limit before it has passed by the clocks of processes."""
    folder, clock = tmp_path_factory.mktemp("clock"), ManualClock()
    witnessed = opened(folder, clock)
    stored: list[tuple[float, float]] = []  # its time, and how long processes had run
    ran = last = 0.0
    for move, amount in moves:
        last = witnessed.stamp(last)
        stored.append((last, ran))
        if move == "run":
            for _ in range(10):
                clock.advance(abs(amount) / 10)
                witnessed.now()
            ran += abs(amount)
        elif move == "jump":
            clock.jump(amount)
        else:
            witnessed.save(now=True)
            witnessed = opened(folder, clock)
        now = witnessed.now()
        for i, (_, ran_then) in enumerate(stored):
            # as for partitions: an event is at most as new as those after it
            if now - min(at for at, _ in stored[i:]) > LIMIT:
                assert ran - ran_then >= LIMIT - len(moves) * GAP_SECONDS

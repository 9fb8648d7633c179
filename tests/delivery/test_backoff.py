from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.delivery.outlets.http_client import retry_after_seconds
from headwater.delivery.sessions import Backoff
from headwater.settings import RetrySettings

NOW = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("Fri, 15 Jan 2027 08:00:30 GMT", 30.0),
        ("Friday, 15-Jan-27 08:00:30 GMT", 30.0),
        ("Fri Jan 15 08:00:30 2027", 30.0),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0.0),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("1.5", None),
        ("٣", None),
        (None, None),
        ("9" * 400, 999_999_999_999.0),
        ("Fri, 99 Jan 2027 08:00:30 GMT", None),
    ],
)
def test_a_wish_is_understood_when_it_has_one_of_both_forms(value: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(value, NOW) == seconds


@given(value=st.text(), now=st.floats(0, 4e9))
def test_a_wish_is_never_an_error_when_it_is_nonsense(value: str, now: float) -> None:
    seconds = retry_after_seconds(value, now)
    assert seconds is None or seconds >= 0


@given(
    failures=st.integers(0, 10_000_000),
    chance=st.floats(0, 1, exclude_max=True),
    initial=st.floats(0, 100),
    longest=st.floats(0, 1000),
)
def test_a_pause_stays_within_its_limits_when_failures_go_on(
    failures: int, chance: float, initial: float, longest: float
) -> None:
    settings = RetrySettings(initial_seconds=initial, max_seconds=longest)
    assert 0 <= Backoff(settings, lambda: chance, failures).failed() <= longest


def test_pauses_grow_to_the_longest_when_failures_go_on() -> None:
    backoff = Backoff(RetrySettings(initial_seconds=1, max_seconds=5), chance=lambda: 0.5)
    assert [backoff.failed() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.succeeded()
    assert backoff.failed() == 1


def test_pauses_are_spread_when_chances_differ() -> None:
    settings = RetrySettings(initial_seconds=10, max_seconds=60)
    assert Backoff(settings, lambda: 0.0).failed() == 5
    assert Backoff(settings, lambda: 0.5).failed() == 10
    assert Backoff(settings, lambda: 0.999).failed() == pytest.approx(15, abs=0.1)


def test_the_receivers_wish_counts_when_it_is_not_longer_than_allowed() -> None:
    settings = RetrySettings(initial_seconds=1, max_seconds=2, max_retry_after_seconds=100)
    backoff = Backoff(settings, chance=lambda: 0.5)
    assert backoff.failed(30.0) == 30
    assert backoff.failed(1e9) == 100
    assert backoff.failed(0.0) == 2  # nought would be a tight loop

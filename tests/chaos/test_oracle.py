"""The oracle of the crash suites finds what it must find."""

from __future__ import annotations

from decimal import Decimal

from tests.chaos.oracle import as_number, expected, have_same_rows, judge

IDS = {(0, 1), (0, 2), (1, 1)}


def test_nothing_is_found_when_every_acknowledged_event_is_a_row_once() -> None:
    rows = [expected(id) for id in sorted(IDS)]
    assert judge("duck", rows, IDS, IDS).is_good


def test_each_fault_is_counted_when_rows_are_lost_doubled_changed_or_unknown() -> None:
    rows = [expected((0, 1)), expected((0, 1)), (*expected((0, 2))[:5], "0"), expected((7, 7))]
    verdict = judge("duck", rows, IDS, IDS)
    assert (verdict.lost, verdict.doubled, verdict.changed, verdict.strange) == (1, 1, 1, 1)
    assert not verdict.is_good


def test_destinations_differ_when_one_has_other_rows() -> None:
    one = judge("duck", [expected((0, 1))], {(0, 1)}, IDS)
    other = judge("pg", [expected((0, 2))], {(0, 2)}, IDS)
    assert have_same_rows([one, one])
    assert not have_same_rows([one, other])


def test_a_drifting_value_is_the_same_when_its_column_has_another_type() -> None:
    assert {as_number(value) for value in (True, "true", 1, 1.0, "1", Decimal("1.000"))} == {"1"}
    assert {as_number(value) for value in (0.125, "0.125", Decimal("0.12500"))} == {"0.125"}
    assert as_number(10) == as_number("10") != as_number(1)

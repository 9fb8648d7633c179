"""Stretches of a queue, their names in a ledger, and what a ledger tells of a queue."""

from __future__ import annotations

from headwater.pipeline.stream.position_range import Arrived, Stretch, ids_beyond

ROW = "_headwater_row"


def stretch(first: int, end: int, queue: str = "q") -> Stretch:
    return Stretch(queue, "dwh", first, end)


def test_a_load_has_the_same_id_whenever_it_is_asked_when_its_positions_are_the_same() -> None:
    one = stretch(1, 10)
    low, high = one.halves()
    assert one.load_id("t") == stretch(1, 10).load_id("t")
    assert (low.end, high.first, high.end) == (5, 5, 10)
    others = [low.load_id("t"), high.load_id("t"), stretch(1, 10, "r").load_id("t"), one.load_id("u")]
    assert len({one.load_id("t"), *others}) == 5


def test_loads_from_a_position_on_are_between_two_texts_when_a_ledger_is_asked() -> None:
    low, high = ids_beyond("q", 100)
    for first, end in ((1, 101), (100, 101), (90, 4096), (10**12, 10**12 + 1)):
        assert low <= stretch(first, end).load_id("any table") < high
    for other in (stretch(1, 100), stretch(50, 100), stretch(100, 200, "r")):
        assert not low <= other.load_id("any table") < high


def test_rows_that_are_there_are_told_by_their_positions_when_batches_are_cut_anew() -> None:
    arrived = Arrived(stretch(*each).load_id("t") for each in ((1, 5), (5, 9), (20, 30)))
    assert arrived.condition(stretch(1, 100), "u") == ""
    assert arrived.condition(stretch(9, 20), "t") == ""
    assert arrived.condition(stretch(1, 7), "t") == f"({ROW} >= 1 AND {ROW} < 9)"
    both = f"({ROW} >= 1 AND {ROW} < 9) OR ({ROW} >= 20 AND {ROW} < 30)"
    assert arrived.condition(stretch(8, 100), "t") == both
    # the very same load is the destination's to answer
    assert arrived.condition(stretch(5, 9), "t") == ""

"""Ranges of positions, their load ids, and the ranges that a ledger has."""

from __future__ import annotations

from headwater.pipeline.stream.position_range import LoadedRanges, PositionRange, ledger_id_range

ROW = "_headwater_row"


def positions(first: int, end: int, queue: str = "q") -> PositionRange:
    return PositionRange(queue, "dwh", first, end)


def test_a_load_has_the_same_id_whenever_it_is_asked_when_its_positions_are_the_same() -> None:
    one = positions(1, 10)
    low, high = one.halves()
    assert one.load_id("t") == positions(1, 10).load_id("t")
    assert (low.end, high.first, high.end) == (5, 5, 10)
    others = [low.load_id("t"), high.load_id("t"), positions(1, 10, "r").load_id("t"), one.load_id("u")]
    assert len({one.load_id("t"), *others}) == 5


def test_loads_from_a_position_on_are_between_two_texts_when_a_ledger_is_asked() -> None:
    low, high = ledger_id_range("q", 100)
    for first, end in ((1, 101), (100, 101), (90, 4096), (10**12, 10**12 + 1)):
        assert low <= positions(first, end).load_id("any table") < high
    for other in (positions(1, 100), positions(50, 100), positions(100, 200, "r")):
        assert not low <= other.load_id("any table") < high


def test_stored_rows_are_left_out_by_position_when_batches_have_other_bounds() -> None:
    loaded_ranges = LoadedRanges(positions(*each).load_id("t") for each in ((1, 5), (5, 9), (20, 30)))
    assert loaded_ranges.already_loaded_sql(positions(1, 100), "u") == ""
    assert loaded_ranges.already_loaded_sql(positions(9, 20), "t") == ""
    assert loaded_ranges.already_loaded_sql(positions(1, 7), "t") == f"({ROW} >= 1 AND {ROW} < 9)"
    both = f"({ROW} >= 1 AND {ROW} < 9) OR ({ROW} >= 20 AND {ROW} < 30)"
    assert loaded_ranges.already_loaded_sql(positions(8, 100), "t") == both
    # the very same load is the destination's to answer
    assert loaded_ranges.already_loaded_sql(positions(5, 9), "t") == ""

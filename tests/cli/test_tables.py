from __future__ import annotations

import pytest

from headwater.cli.output import format_bytes, format_seconds, format_table, format_time


def test_numbers_stand_to_the_right_when_a_table_is_made() -> None:
    assert format_table(("name", "events"), [("a", 5), ("bcdef", 12345)]) == (
        "name   events\na           5\nbcdef  12,345"
    )
    assert format_table(("name", "events"), []) == "name  events"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (5 << 40, "5.0 TiB")],
)
def test_bytes_have_a_fitting_unit_when_formatted(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (119, "119.0 s"), (600, "10 min"), (10_800, "3.0 h"), (864_000, "10.0 days")],
)
def test_seconds_have_a_fitting_unit_when_formatted(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_a_time_is_utc_when_formatted() -> None:
    assert format_time(1_700_000_000.9) == "2023-11-14 22:13:20Z"
    assert format_time(0) == ""

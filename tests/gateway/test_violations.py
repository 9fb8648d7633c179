"""The walk that names violations, on schemas small enough to read beside the case."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.gateway.violations import LIMIT, Inspector, Violation, limited

CHOICE: dict[str, Any] = {
    "Shape": {
        "type": "object",
        "properties": {"type": {"const": "circle"}, "size": {"$ref": "#/$defs/Size"}},
    },
    "Size": {"type": "integer", "minimum": 1},
    "Few": {"type": "object", "maxProperties": 1},
}


def test_constant_is_named_when_the_value_differs() -> None:
    errors, warnings = Inspector(CHOICE).inspect("Shape", {"type": "square"})
    assert errors == [Violation("/type", 'expected "circle", got "square"', "const")]
    assert warnings == []


def test_referenced_definition_is_followed_when_its_value_is_wrong() -> None:
    inspector = Inspector(CHOICE)
    assert inspector.inspect("Shape", {"size": 0})[0] == [
        Violation("/size", "expected at least 1, got 0", "minimum")
    ]
    assert inspector.inspect("Shape", {"size": None})[0][0].rule == "type"


def test_nothing_is_named_when_the_definition_accepts() -> None:
    assert Inspector(CHOICE).inspect("Shape", {"type": "circle", "size": 1.0}) == ([], [])


def test_value_stays_refused_when_the_walk_does_not_know_the_rule() -> None:
    (error,) = Inspector(CHOICE).inspect("Few", {"a": 1, "b": 2})[0]
    assert (error.path, error.rule) == ("", "schema")


@pytest.mark.parametrize("count", [0, 1, LIMIT, LIMIT + 1, 10 * LIMIT])
def test_last_violation_says_that_there_are_more_when_some_are_left_out(count: int) -> None:
    shown = limited([Violation(f"/{index}", "wrong", "type") for index in range(count)])
    assert len(shown) == min(count, LIMIT)
    assert any(violation.rule == "limit" for violation in shown) == (count > LIMIT)

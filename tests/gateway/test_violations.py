"""The walk that names violations: on schemas small enough to read, and on events made to hurt."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from headwater.gateway.openlineage_validator import (
    CHUNK,
    ECHO,
    LIMIT,
    PATH,
    Validator,
    Violation,
    ViolationFinder,
    first_violations,
)
from tests.gateway.openlineage_corpus import BASE, events

CHOICE: dict[str, Any] = {
    "Shape": {
        "type": "object",
        "properties": {"type": {"const": "circle"}, "size": {"$ref": "#/$defs/Size"}},
    },
    "Size": {"type": "integer", "minimum": 1},
    "Few": {"type": "object", "maxProperties": 1},
}
LENIENT = Validator()
STRICT = Validator(strict=True)
RUN = events()["run"]
TABLE = RUN["inputs"][0]


def run_with(part: str, facets: dict[str, Any]) -> dict[str, Any]:
    """A run event with these facets in its run or its job."""
    return {**RUN, part: {**RUN[part], "facets": facets}}


def test_constant_is_named_when_the_value_differs() -> None:
    errors, warnings = ViolationFinder(CHOICE).inspect("Shape", {"type": "square"})
    assert errors == [Violation("/type", 'expected "circle", got "square"', "const")]
    assert warnings == []


def test_referenced_definition_is_followed_when_its_value_is_wrong() -> None:
    inspector = ViolationFinder(CHOICE)
    assert inspector.inspect("Shape", {"size": 0})[0] == [
        Violation("/size", "expected at least 1, got 0", "minimum")
    ]
    assert inspector.inspect("Shape", {"size": None})[0][0].rule == "type"


def test_nothing_is_named_when_the_definition_accepts() -> None:
    assert ViolationFinder(CHOICE).inspect("Shape", {"type": "circle", "size": 1.0}) == ([], [])


def test_value_stays_refused_when_the_walk_does_not_know_the_rule() -> None:
    (error,) = ViolationFinder(CHOICE).inspect("Few", {"a": 1, "b": 2})[0]
    assert (error.path, error.rule) == ("", "schema")


@pytest.mark.parametrize("count", [0, 1, LIMIT, LIMIT + 1, 10 * LIMIT])
def test_last_violation_says_that_there_are_more_when_some_are_left_out(count: int) -> None:
    shown = first_violations([Violation(f"/{index}", "wrong", "type") for index in range(count)])
    assert len(shown) == min(count, LIMIT)
    assert any(violation.rule == "limit" for violation in shown) == (count > LIMIT)


def test_number_of_violations_is_bounded_when_everything_is_wrong() -> None:
    wrong = [{"namespace": 1, "name": 2, "facets": {"a": {"_producer": "x", "_schemaURL": "y"}}}] * 500
    verdict = LENIENT.check({**RUN, "inputs": wrong})
    assert len(verdict.errors) == LIMIT
    assert len(verdict.warnings) <= LIMIT
    assert verdict.errors[-1].rule == "limit"
    assert len(STRICT.check({**RUN, "inputs": wrong}).errors) == LIMIT


def test_error_is_found_when_it_comes_after_more_warnings_than_are_shown() -> None:
    soft = {"namespace": "n", "name": "n", "facets": {"dataSource": {**BASE, "uri": "file"}}}
    assert LENIENT.check({**RUN, "inputs": [soft] * 100}).ok
    verdict = LENIENT.check({**RUN, "inputs": [*[soft] * 100, {**soft, "name": None}]})
    assert [error.path for error in verdict.errors] == ["/inputs/100/name"]
    assert (len(verdict.warnings), verdict.warnings[-1].rule) == (LIMIT, "limit")


@pytest.mark.parametrize(
    "value", ["x", "\x00", "😀", '"', "\\"], ids=["plain", "control", "wide", "quote", "slash"]
)
def test_reason_stays_short_when_a_value_is_huge(value: str) -> None:
    (violation,) = LENIENT.check({**RUN, "eventType": value * 1_000_000}).errors
    expected = 'expected one of "START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER", got '
    assert violation.reason.startswith(expected)
    assert len(violation.reason) - len(expected) <= ECHO


def test_path_stays_short_when_keys_are_huge() -> None:
    (violation,) = LENIENT.check(run_with("run", {"k" * 1_000_000: None})).errors
    assert violation.path.startswith("/run/facets/kkk")
    assert len(violation.path) <= len("/run/facets/") + ECHO
    closed = {
        "executionParameters": {**BASE, "parameters": [{"key": "k", **{f"u{i}": 1 for i in range(10_000)}}]}
    }
    assert len(LENIENT.check(run_with("run", closed)).errors) == LIMIT


def test_special_characters_are_escaped_when_a_key_holds_them() -> None:
    verdict = LENIENT.check(run_with("job", {"a/b~c": 1}))
    assert [error.path for error in verdict.errors] == ["/job/facets/a~1b~0c"]


def test_deepest_error_is_named_when_nesting_is_as_deep_as_json_may_be() -> None:
    depth = 450
    text = b'{"name":"x","fields":[' * depth + b"{}" + b"]}" * depth
    event = {
        **RUN,
        "inputs": [{**TABLE, "facets": {"schema": {**BASE, "fields": [orjson.loads(text)]}}}],
    }
    (violation,) = LENIENT.check(event).errors
    assert violation.reason == "`name` is missing; expected a string"
    assert len(violation.path) <= PATH


@pytest.mark.parametrize("place", [0, CHUNK - 1, CHUNK, 3 * CHUNK])
def test_one_bad_item_is_found_when_it_stands_among_very_many(place: int) -> None:
    tables = [TABLE] * (3 * CHUNK + 1)
    tables[place] = {"name": "nameless space"}
    assert [error.path for error in LENIENT.check({**RUN, "inputs": tables}).errors] == [f"/inputs/{place}"]
    quantiles: dict[str, Any] = dict.fromkeys((f"0.{index}" for index in range(3 * CHUNK + 1)), 1.5)
    quantiles[f"0.{place}"] = "many"
    metrics = {**BASE, "columnMetrics": {"column": {"quantiles": quantiles}}}
    event = {**RUN, "inputs": [{**TABLE, "inputFacets": {"dataQualityMetrics": metrics}}]}
    (violation,) = LENIENT.check(event).errors
    assert violation.path.endswith(f"/columnMetrics/column/quantiles/0.{place}")


def test_warnings_and_errors_are_both_found_when_items_are_very_many() -> None:
    soft = {**TABLE, "facets": {"dataSource": {**BASE, "uri": "file"}}}
    verdict = LENIENT.check({**RUN, "outputs": [*[soft] * (3 * CHUNK), {}]})
    assert {error.path for error in verdict.errors} == {f"/outputs/{3 * CHUNK}"}
    assert len(verdict.warnings) == LIMIT

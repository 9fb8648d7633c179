"""Events stay within their budgets and say what was cut."""

from __future__ import annotations

from typing import Any

from headwater.lineage.events.size_limit import add_extraction_errors, limit_size, size
from headwater.lineage.runs import ExtractionError
from tests.lineage.conftest import validate
from tests.lineage.made import event, schema_facet


def errors(made: dict[str, Any]) -> list[str]:
    return [each["task"] for each in made["run"]["facets"]["extractionError"]["errors"]]


def test_nothing_changes_when_an_event_is_small() -> None:
    made = event(outputs=["t"])
    before = repr(made)
    assert limit_size(made, facet_bytes=1000, event_bytes=10_000) == size(made)
    assert repr(made) == before


def test_a_large_facet_goes_when_it_is_over_its_budget() -> None:
    made = event(outputs=["t"])
    made["outputs"][0]["facets"] = {"schema": schema_facet(1000), "dataSource": schema_facet(1)}
    limit_size(made, facet_bytes=2000, event_bytes=100_000)
    assert set(made["outputs"][0]["facets"]) == {"dataSource"}
    assert errors(made) == ["outputs[t].schema"]
    validate([made])


def test_the_largest_facets_go_first_when_the_event_is_too_large() -> None:
    made = event(outputs=["t"], inputs=["s"])
    made["outputs"][0]["facets"] = {"schema": schema_facet(300)}
    made["inputs"][0]["facets"] = {"schema": schema_facet(100)}
    limit_size(made, facet_bytes=100_000, event_bytes=size(made) - 100)
    assert made["outputs"][0]["facets"] == {}
    assert made["inputs"][0]["facets"] != {}
    assert errors(made) == ["outputs[t].schema"]
    validate([made])


def test_names_of_datasets_go_when_nothing_else_is_left() -> None:
    made = event(inputs=[f"table_{number}" for number in range(1000)])
    taken = limit_size(made, facet_bytes=10_000, event_bytes=20_000)
    assert taken < 25_000
    assert 1 <= len(made["inputs"]) < 1000
    assert errors(made) == ["inputs"]
    validate([made])


def test_errors_are_added_to_those_of_the_event() -> None:
    made = event()
    add_extraction_errors(made, [ExtractionError("a", "first")])
    add_extraction_errors(made, [ExtractionError("b", "second", "stack")])
    add_extraction_errors(made, [])
    facet = made["run"]["facets"]["extractionError"]
    assert [each["task"] for each in facet["errors"]] == ["a", "b"]
    assert facet["failedTasks"] == 2
    validate([made])


def test_errors_are_bounded_when_there_are_very_many() -> None:
    made = event()
    add_extraction_errors(made, [ExtractionError("x", "y" * 10_000, "z" * 100_000)] * 500)
    assert len(made["run"]["facets"]["extractionError"]["errors"]) == 50
    assert made["run"]["facets"]["extractionError"]["failedTasks"] == 500
    assert size(made) < 600_000

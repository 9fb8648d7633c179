"""Which runs are sent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headwater.lineage.events.event_filter import EventFilter, add_registered_facets
from headwater.lineage.extend.facet_registry import FacetRegistry
from headwater.lineage.jvm.messages import SqlStart
from headwater.lineage.runs import DueEvent, Execution, Run, RunKind, State
from headwater.lineage.settings import LineageSettings
from tests.lineage.made import event, run


def sent(
    of: Run,
    end: State = State.COMPLETE,
    *,
    inputs: list[str] | None = None,
    outputs: list[str] | None = None,
    **settings: Any,
) -> list[str]:
    """The states of a run that are sent, if its events have these datasets."""
    event_filter = EventFilter(LineageSettings(**settings))
    found: list[str] = []
    for due in (DueEvent(of, State.START, 1), DueEvent(of, end, 2)):
        if event_filter.wants(of):
            made = event(str(due.state), inputs=inputs or [], outputs=outputs or [])
            found += [each["eventType"] for each, _ in event_filter.accept(due, made)]
    return found


def query(node: str) -> Run:
    """A query whose plan begins with such a node."""
    made = run(RunKind.SQL)
    plan = f'{{"v":1,"root":0,"nodes":[{{"id":0,"cls":"org.apache.spark.sql.{node}"}}]}}'
    made.executions.append(Execution(1, SqlStart(id=1, time=1, plan=msgspec.Raw(plan.encode()))))
    return made


@pytest.mark.parametrize("kind", [RunKind.APPLICATION, RunKind.STREAM, RunKind.BATCH])
def test_a_run_is_sent_when_it_is_no_query(kind: RunKind) -> None:
    assert sent(run(kind)) == ["START", "COMPLETE"]


@pytest.mark.parametrize("kind", [RunKind.SQL, RunKind.RDD_JOB])
def test_a_run_is_not_sent_when_it_has_no_dataset(kind: RunKind) -> None:
    assert sent(run(kind)) == []


def test_a_run_is_sent_when_its_plan_could_not_be_read() -> None:
    made = run(RunKind.SQL)
    made.executions.append(Execution(1, SqlStart(id=1, time=1, plan_error="too large")))
    assert sent(made) == ["START", "COMPLETE"]


@pytest.mark.parametrize("end", [State.FAIL, State.ABORT])
def test_the_start_is_sent_with_the_end_when_a_run_without_datasets_fails(end: State) -> None:
    assert sent(run(), end) == ["START", str(end)]


@pytest.mark.parametrize(
    ("reads", "node", "expected"),
    [
        ("all", "Project", 2),
        ("upstream", "Project", 0),
        ("upstream", "Filter", 2),
        ("none", "Filter", 0),
    ],
)
def test_reads_are_sent_as_the_setting_says(reads: str, node: str, expected: int) -> None:
    assert len(sent(query(node), inputs=["a"], reads=reads)) == expected


def test_writes_are_sent_when_no_read_is() -> None:
    assert len(sent(query("AppendData"), inputs=["a"], outputs=["b"], reads="none")) == 2


def test_nodes_are_left_out_or_kept_when_they_are_named() -> None:
    denied: dict[str, Any] = {"denied_nodes": ("org.apache.spark.sql.AppendData",)}
    assert sent(query("AppendData"), outputs=["b"], **denied) == []
    assert len(sent(query("AppendData"), outputs=["b"], **denied, allowed_nodes=("AppendData",))) == 2
    assert len(sent(query("Filter"), inputs=["a"], reads="none", allowed_nodes=("Filter",))) == 2


def test_rdd_jobs_are_left_out_when_the_setting_says_so() -> None:
    assert sent(run(RunKind.RDD_JOB), outputs=["a"], rdd_events_disabled=True) == []


def test_the_held_start_has_its_own_time_when_it_is_sent_with_the_end() -> None:
    of = run()
    event_filter = EventFilter(LineageSettings())
    assert event_filter.accept(DueEvent(of, State.START, 1), event("START")) == []
    ready = event_filter.accept(DueEvent(of, State.FAIL, 9), event("FAIL"))
    assert [(each["eventType"], time) for each, time in ready] == [("START", of.started), ("FAIL", 9)]


def test_a_registered_facet_is_added_to_the_first_event_that_is_sent() -> None:
    now = 1 << 60
    FacetRegistry.register_run_facet("quality", {"bad": 0})
    FacetRegistry.register_job_facet("team", {"name": "orders"})
    FacetRegistry.register_run_facet("off", {})
    first, second = event(), event()
    for each in (first, second):
        add_registered_facets(each, now, {"off"})
    assert [set(each["run"]["facets"]) for each in (first, second)] == [{"quality"}, set()]
    assert first["job"]["facets"]["team"]["name"] == "orders"


def test_a_registered_facet_becomes_an_error_when_it_is_no_facet() -> None:
    FacetRegistry.register_run_facet("odd", 7)
    made = event()
    add_registered_facets(made, 1 << 60, ())
    assert "facet odd" in str(made["run"]["facets"]["extractionError"])

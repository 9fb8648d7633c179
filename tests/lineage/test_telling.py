"""Which runs are worth an event."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headwater.lineage.events.deadline import DeadlineBuilder
from headwater.lineage.events.event_filter import Teller
from headwater.lineage.extend.facet_registry import FacetRegistry
from headwater.lineage.jvm.messages import SqlStart
from headwater.lineage.runs import Execution, Kind, Run, State, Step
from headwater.lineage.settings import LineageSettings
from tests.lineage.made import event, run


class Fixed:
    """Always the same datasets."""

    def __init__(self, inputs: list[str], outputs: list[str]) -> None:
        self._datasets = (inputs, outputs)

    def build(self, run: Run, state: str, time: int) -> dict[str, Any]:
        return event(state, inputs=self._datasets[0], outputs=self._datasets[1])

    def partial(self, run: Run, state: str, time: int) -> dict[str, Any]:
        return event(state)


def told(
    of: Run,
    end: State = State.COMPLETE,
    *,
    inputs: list[str] | None = None,
    outputs: list[str] | None = None,
    **settings: Any,
) -> list[str]:
    sent: list[dict[str, Any]] = []
    builder = DeadlineBuilder(Fixed(inputs or [], outputs or []), 30)
    teller = Teller(builder, sent.append, LineageSettings(**settings))
    teller.tell(Step(of, State.START, 1))
    teller.tell(Step(of, end, 2))
    builder.close()
    return [each["eventType"] for each in sent]


def query(node: str) -> Run:
    """A query whose plan begins with such a node."""
    made = run(Kind.SQL)
    plan = f'{{"v":1,"root":0,"nodes":[{{"id":0,"cls":"org.apache.spark.sql.{node}"}}]}}'
    made.executions.append(Execution(1, SqlStart(id=1, time=1, plan=msgspec.Raw(plan.encode()))))
    return made


@pytest.mark.parametrize("kind", [Kind.APPLICATION, Kind.STREAM, Kind.BATCH])
def test_it_is_told_when_it_is_no_query(kind: Kind) -> None:
    assert told(run(kind)) == ["START", "COMPLETE"]


@pytest.mark.parametrize("kind", [Kind.SQL, Kind.RDD_JOB])
def test_it_is_not_told_when_it_concerns_no_dataset(kind: Kind) -> None:
    assert told(run(kind)) == []


def test_it_is_told_when_its_plan_could_not_be_seen() -> None:
    made = run(Kind.SQL)
    made.executions.append(Execution(1, SqlStart(id=1, time=1, plan_error="too large")))
    assert told(made) == ["START", "COMPLETE"]


@pytest.mark.parametrize("end", [State.FAIL, State.ABORT])
def test_the_start_is_told_late_when_a_run_without_datasets_fails(end: State) -> None:
    assert told(run(), end) == ["START", str(end)]


@pytest.mark.parametrize(
    ("reads", "node", "expected"),
    [
        ("all", "Project", 2),
        ("upstream", "Project", 0),
        ("upstream", "Filter", 2),
        ("none", "Filter", 0),
    ],
)
def test_reads_are_told_as_the_setting_says(reads: str, node: str, expected: int) -> None:
    assert len(told(query(node), inputs=["a"], reads=reads)) == expected


def test_writes_are_told_when_no_read_is() -> None:
    assert len(told(query("AppendData"), inputs=["a"], outputs=["b"], reads="none")) == 2


def test_nodes_are_left_out_or_kept_when_they_are_named() -> None:
    denied: dict[str, Any] = {"denied_nodes": ("org.apache.spark.sql.AppendData",)}
    assert told(query("AppendData"), outputs=["b"], **denied) == []
    assert len(told(query("AppendData"), outputs=["b"], **denied, allowed_nodes=("AppendData",))) == 2
    assert len(told(query("Filter"), inputs=["a"], reads="none", allowed_nodes=("Filter",))) == 2


def test_rdd_jobs_are_left_out_when_the_setting_says_so() -> None:
    assert told(run(Kind.RDD_JOB), outputs=["a"], rdd_events_disabled=True) == []


def test_a_registered_facet_goes_out_with_the_first_event_that_is_sent() -> None:
    sent: list[dict[str, Any]] = []
    nothing = DeadlineBuilder(Fixed([], []), 30)
    writing = DeadlineBuilder(Fixed([], ["b"]), 30)
    unsent, of = run(), run()
    now = 1 << 60
    FacetRegistry.register_run_facet("quality", {"bad": 0})
    FacetRegistry.register_job_facet("team", {"name": "orders"})
    FacetRegistry.register_run_facet("off", {})
    settings = LineageSettings(disabled_facets=frozenset({"off"}))
    for builder, each in ((nothing, unsent), (writing, of)):
        teller = Teller(builder, sent.append, settings)
        teller.tell(Step(each, State.START, now))
        teller.tell(Step(each, State.COMPLETE, now))
        builder.close()
    assert [set(each["run"]["facets"]) for each in sent] == [{"quality"}, set()]
    assert sent[0]["job"]["facets"]["team"]["name"] == "orders"


def test_a_registered_facet_is_told_as_an_error_when_it_is_none() -> None:
    sent: list[dict[str, Any]] = []
    builder = DeadlineBuilder(Fixed([], ["b"]), 30)
    FacetRegistry.register_run_facet("odd", 7)
    Teller(builder, sent.append, LineageSettings()).tell(Step(run(), State.START, 1 << 60))
    builder.close()
    assert "facet odd" in str(sent[0]["run"]["facets"]["extractionError"])

"""RunTracker from messages, as the agent of Spark 4.3 has said them; no Spark here."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from headwater.lineage.jvm.messages import (
    AppEnd,
    AppStart,
    Dropped,
    JobEnd,
    JobStart,
    Message,
    SqlEnd,
    SqlStart,
    StageDoc,
    StageDone,
    StreamBatch,
    StreamEnd,
    StreamStart,
)
from headwater.lineage.runs import DueEvent, Failure, Run, RunKind, RunTracker

PLAN = msgspec.Raw(b'{"v":1,"root":0,"nodes":[{"id":0,"cls":"org.apache.spark.sql.Range"}]}')
QUERY = "01a1e2dd-20f3-783b-93f8-82d491afb988"
STREAM, STREAM_RUN = "bc97a111-539e-40bd-b30d-222701821f15", "04db81e7-1684-4e39-8f4b-15b1cef995f6"
OF_BATCH = f"\nid = {STREAM}\nrunId = {STREAM_RUN}\nbatch = 0"


def begun() -> RunTracker:
    """An application that has just started."""
    runs = RunTracker()
    runs.on_message(AppStart(id="local-1", name="shop", time=1))
    return runs


def play(runs: RunTracker, *messages: Message) -> list[DueEvent]:
    return [step for message in messages for step in runs.on_message(message)]


def states(steps: list[DueEvent]) -> list[tuple[RunKind, str, int]]:
    return [(step.run.kind, str(step.state), step.time) for step in steps]


def start(id: int, root: int | None = None, *, plan: bool = True, **more: object) -> SqlStart:
    fields = {"id": id, "time": 10 + id, "root": id if root is None else root, **more}
    return SqlStart(**fields, plan=PLAN if plan else msgspec.Raw(b""))  # type: ignore[arg-type]


def test_the_application_starts_once_when_its_message_comes_twice() -> None:
    runs = RunTracker(UUID(QUERY))
    steps = play(runs, AppStart(id="a", name="shop", time=5), AppStart(id="a", name="shop", time=6))
    assert states(steps) == [(RunKind.APPLICATION, "START", 5)]
    assert steps[0].run.id == UUID(QUERY)


def test_nested_executions_are_one_run_when_a_table_is_saved() -> None:
    runs = begun()
    steps = play(
        runs,
        start(1, query_id=QUERY),
        start(2, root=1),
        start(3, root=1),
        JobStart(id=7, time=20, execution=3, root=1, stages=[StageDoc(id=4)]),
        StageDone(id=4, metrics={"records_written": 9}),
        JobEnd(id=7, time=21),
        SqlEnd(id=3, time=30),
        SqlEnd(id=2, time=31),
        SqlEnd(id=1, time=32),
    )
    assert states(steps) == [(RunKind.SQL, "START", 11), (RunKind.SQL, "COMPLETE", 32)]
    run = steps[0].run
    assert run.id == UUID(QUERY)
    assert run.parent is runs.application
    assert run.root is runs.application
    assert [each.id for each in run.executions] == [1, 2, 3]
    assert [job.id for job in run.jobs] == [7]
    assert [stage.metrics for stage in run.stages] == [{"records_written": 9}]


def test_the_start_waits_for_the_end_when_the_plan_was_gone_already() -> None:
    runs = begun()
    assert play(runs, start(1, plan=False)) == []
    steps = play(runs, SqlEnd(id=1, time=12, plan=PLAN))
    assert states(steps) == [(RunKind.SQL, "START", 11), (RunKind.SQL, "COMPLETE", 12)]
    assert steps[0].run.execution is not None
    assert steps[0].run.execution.plan is not None


def test_a_query_fails_when_its_end_has_an_error() -> None:
    runs = begun()
    steps = play(runs, start(1), SqlEnd(id=1, time=12, error="no such file", error_class="X", stack="at"))
    assert states(steps)[1] == (RunKind.SQL, "FAIL", 12)
    assert steps[1].run.failure == Failure("no such file", "X", "at")


def test_a_query_completes_when_only_a_job_inside_it_failed() -> None:
    """foreachBatch code may catch the failure and try again; the execution itself knows."""
    runs = begun()
    job: list[Message] = [
        JobStart(id=1, time=12, execution=1, root=1),
        JobEnd(id=1, time=13, error="lost a task"),
    ]
    assert states(play(runs, start(1), *job, SqlEnd(id=1, time=14)))[1][1] == "COMPLETE"


def test_an_end_is_a_whole_run_when_its_start_is_missing() -> None:
    runs = begun()
    steps = play(runs, SqlEnd(id=9, time=50, plan=PLAN))
    assert states(steps) == [(RunKind.SQL, "START", 50), (RunKind.SQL, "COMPLETE", 50)]


def test_a_run_never_ends_before_it_began_when_clocks_disagree() -> None:
    runs = begun()
    steps = play(runs, start(1), SqlEnd(id=1, time=3))
    assert [step.time for step in steps] == [11, 11]


def test_a_job_outside_of_queries_is_a_run_when_it_fails() -> None:
    runs = begun()
    steps = play(
        runs,
        JobStart(id=3, time=20, properties={"callSite.short": "count at x.py:1"}, rdd_error="gone"),
        JobEnd(id=3, time=22, error="division by zero"),
    )
    assert states(steps) == [(RunKind.RDD_JOB, "START", 20), (RunKind.RDD_JOB, "FAIL", 22)]
    run = steps[0].run
    assert run.error == "division by zero"
    assert [each.text for each in run.extraction_errors] == ["gone"]


def test_a_job_of_an_unknown_query_is_no_run_when_we_came_late() -> None:
    assert play(begun(), JobStart(id=3, time=20, execution=8, root=8), JobEnd(id=3, time=21)) == []


def test_micro_batches_are_runs_of_their_stream_when_it_runs() -> None:
    runs = begun()
    steps = play(
        runs,
        StreamStart(id=STREAM, run=STREAM_RUN, name="clicks", time=5),
        start(1, stream_run=STREAM_RUN, batch=0, query_id=STREAM, description=OF_BATCH),
        start(2, root=1, description=OF_BATCH),
        SqlEnd(id=2, time=20),
        SqlEnd(id=1, time=21),
        StreamBatch(run=STREAM_RUN, batch=0, time=22, progress=msgspec.Raw(b"{}")),
        StreamEnd(id=STREAM, run=STREAM_RUN, time=30),
    )
    assert states(steps) == [
        (RunKind.STREAM, "START", 5),
        (RunKind.BATCH, "START", 11),
        (RunKind.BATCH, "COMPLETE", 21),
        (RunKind.STREAM, "COMPLETE", 30),
    ]
    stream, batch = steps[0].run, steps[1].run
    assert batch.parent is stream
    assert batch.root is runs.application
    assert batch.batch == 0
    assert batch.id != UUID(STREAM), "the id of a stream repeats with each batch"
    assert stream.executions is batch.executions
    assert stream.progress is not None


def test_executions_of_foreach_batch_belong_to_the_batch_when_there_is_no_root() -> None:
    runs = begun()
    steps = play(
        runs,
        StreamStart(id=STREAM, run=STREAM_RUN, name=None, time=5),
        start(1, stream_run=STREAM_RUN, batch=0, description=OF_BATCH),
        SqlStart(id=2, time=12, description=OF_BATCH, plan=PLAN),
        SqlEnd(id=2, time=13),
        SqlEnd(id=1, time=14),
    )
    assert [(step.run.kind, str(step.state)) for step in steps][1:] == [
        (RunKind.BATCH, "START"),
        (RunKind.BATCH, "COMPLETE"),
    ]
    assert [each.id for each in steps[1].run.executions] == [1, 2]


def test_a_stream_has_events_when_it_started_before_the_agent() -> None:
    steps = play(begun(), start(1, stream_run=STREAM_RUN, batch=7))
    assert states(steps) == [(RunKind.STREAM, "START", 11), (RunKind.BATCH, "START", 11)]


def test_a_stream_fails_when_its_end_has_an_error() -> None:
    runs = begun()
    play(runs, StreamStart(id=STREAM, run=STREAM_RUN, name=None, time=5))
    steps = play(runs, StreamEnd(id=STREAM, run=STREAM_RUN, time=9, error="boom"))
    assert states(steps) == [(RunKind.STREAM, "FAIL", 9)]


def test_whatever_runs_is_aborted_when_the_application_ends() -> None:
    runs = begun()
    play(
        runs,
        start(1),
        start(2, plan=False),
        JobStart(id=1, time=12, execution=1, root=1),
        JobStart(id=2, time=13),
        StreamStart(id=STREAM, run=STREAM_RUN, name=None, time=14),
        AppEnd(time=40),
    )
    steps = runs.finish(runs.ended or 0)
    ends = {step.run.id: str(step.state) for step in steps if step.state != "START"}
    assert sorted(ends.values()) == ["ABORT", "ABORT", "ABORT", "ABORT", "COMPLETE"]
    assert states(steps)[-1] == (RunKind.APPLICATION, "COMPLETE", 40)
    assert runs.finish(50) == []


def test_the_application_fails_when_its_script_did() -> None:
    runs = begun()
    steps = runs.finish(9, Failure("ValueError: x"))
    assert states(steps) == [(RunKind.APPLICATION, "FAIL", 9)]
    assert steps[0].run.error == "ValueError: x"


def test_open_runs_say_so_when_events_were_lost() -> None:
    runs = begun()
    steps = play(runs, start(1), Dropped(count=3))
    assert runs.dropped == 3
    assert "3 of Spark's events" in steps[0].run.extraction_errors[0].text


@pytest.mark.parametrize("query_id", [None, "x", STREAM, "00000000-0000-0000-0000-000000000000"])
def test_a_run_gets_a_new_id_when_spark_has_none_that_fits(query_id: str | None) -> None:
    run: Run = play(begun(), start(1, query_id=query_id))[0].run
    assert run.id.version == 7
    assert str(run.id) != query_id


def test_each_run_has_one_start_and_one_end_when_any_message_comes_twice() -> None:
    runs = begun()
    end = SqlEnd(id=1, time=20)
    steps = play(runs, start(1), start(1), end) + runs.finish(30)
    by_run: dict[UUID, list[str]] = {}
    for step in steps:
        by_run.setdefault(step.run.id, []).append(str(step.state))
    assert [each for each in by_run.values() if each.count("START") > 1 or len(each) > 2] == []

"""Runs and their states: what the agent says becomes applications, queries, jobs, streams and micro-batches.

    application ─┬─ SQL execution       all executions nested in it are the same run: one write, one run
                 ├─ RDD job             a Spark job outside any SQL execution
                 └─ streaming query ─── micro-batch, with whatever foreachBatch does in it

Every run gets exactly one START and one of COMPLETE, FAIL, ABORT. Pure: no Spark, no thread, no clock of its
own. Only the thread that listens calls it, so that a run does not change while its event is built.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple
from uuid import UUID

from openlineage.client.uuid import generate_new_uuid

from headwater.lineage.jvm.messages import (
    AppEnd,
    AppStart,
    Dropped,
    JobEnd,
    JobStart,
    Message,
    SqlEnd,
    SqlStart,
    StageDone,
    StreamBatch,
    StreamEnd,
    StreamStart,
)
from headwater.lineage.jvm.plan import Plan, read_plan

__all__ = ["Execution", "ExtractionError", "Failure", "Job", "Kind", "Run", "Runs", "State", "Step"]


class Failure(NamedTuple):
    """Why a run failed, as Spark or Python say it."""

    text: str
    cls: str | None = None
    stack: str | None = None


class ExtractionError(NamedTuple):
    """Something about a run that could not be found out: which part of the work, and why."""

    task: str
    text: str
    stack: str | None = None


# The description that Spark gives to everything that a micro-batch runs, foreachBatch included.
_BATCH = re.compile(r"\brunId = ([0-9a-f-]{36})\b.*?\bbatch = (\d+)", re.DOTALL)


_MOST_STAGES = 1000  # kept per run; their totals are what matters, not each of ten thousand


class Kind(StrEnum):
    """What a run is a run of."""

    APPLICATION = "application"
    SQL = "sql"
    RDD_JOB = "rdd_job"
    STREAM = "stream"
    BATCH = "batch"


class State(StrEnum):
    """The states that are told; the words are OpenLineage's."""

    START = "START"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    ABORT = "ABORT"


class Execution:
    """One SQL execution: how it began and, later, how it ended."""

    def __init__(self, id: int, start: SqlStart | None) -> None:
        self.id = id
        self.start = start
        self.end: SqlEnd | None = None

    @property
    def has_plan(self) -> bool:
        """Whether a plan was told, or the reason why there is none."""
        return bool(self._raw) or self.plan_error is not None

    @property
    def plan_error(self) -> str | None:
        """Why there is no plan."""
        if self.start is not None and self.start.plan_error:
            return self.start.plan_error
        return self.end.plan_error if self.end is not None else None

    @property
    def plan(self) -> Plan | None:
        """The analyzed plan; read when it is first asked for. May raise if it cannot be read."""
        return self._read if self._raw else None

    @cached_property
    def _read(self) -> Plan:
        return read_plan(self._raw)

    @property
    def _raw(self) -> bytes:
        told = (self.start, self.end)
        return next((bytes(each.plan) for each in told if each is not None and bytes(each.plan)), b"")

    @property
    def sql(self) -> str | None:
        """The text that was given to `spark.sql`."""
        told = (self.start, self.end)
        return next((each.sql for each in told if each is not None and each.sql), None)

    @property
    def name(self) -> str | None:
        """`collect`, `command`, `analyze`, …; known at the end."""
        return self.end.name if self.end is not None else None


class Job:
    """One Spark job of a run."""

    def __init__(self, start: JobStart) -> None:
        self.id = start.id
        self.start = start
        self.end: JobEnd | None = None


class Run:
    """One run. Builders may keep what they find in `memo`, which lives as long as the run."""

    def __init__(self, id: UUID, kind: Kind, started: int, parent: Run | None) -> None:
        self.id = id
        self.kind = kind
        self.started = started
        self.ended: int | None = None
        self.parent = parent
        self.failure: Failure | None = None
        self.app: AppStart | None = None
        self.executions: list[Execution] = []
        """Outermost first. Of a stream: those of its last micro-batch."""
        self.jobs: list[Job] = []
        self.stages: list[StageDone] = []
        self.stream: StreamStart | None = None
        self.progress: StreamBatch | None = None
        self.batch: int | None = None
        self.properties: dict[str, str] = {}
        self.extraction_errors: list[ExtractionError] = []
        self.memo: dict[str, object] = {}
        self.is_started = False  # whether START was asked for

    @property
    def root(self) -> Run:
        """The application."""
        return self if self.parent is None else self.parent.root

    @property
    def error(self) -> str | None:
        """What went wrong in the run itself."""
        return self.failure.text if self.failure else None

    @property
    def execution(self) -> Execution | None:
        """The outermost SQL execution."""
        return self.executions[0] if self.executions else None

    def __repr__(self) -> str:
        return f"<Run {self.kind} {self.id}>"


class Step(NamedTuple):
    """An event that is due."""

    run: Run
    state: State
    time: int


class Runs:
    """All runs of one application that have not ended. `handle` says which events are due, in order."""

    def __init__(self, application_id: UUID | None = None) -> None:
        self._application_id = application_id
        self.application: Run | None = None
        self.ended: int | None = None
        self.end_error: str | None = None
        self.dropped = 0
        self._executions: dict[int, Run] = {}
        self._jobs: dict[int, Run] = {}
        self._stages: dict[int, Run] = {}
        self._streams: dict[str, Run] = {}
        self._batches: dict[tuple[str, int], Run] = {}

    def handle(self, message: Message) -> list[Step]:
        """Take in one message; the events that are due because of it, in the order in which to send them."""
        match message:
            case SqlStart():
                return self._sql_start(message)
            case SqlEnd():
                return self._sql_end(message)
            case JobStart():
                return self._job_start(message)
            case JobEnd():
                return self._job_end(message)
            case StageDone():
                return self._stage_done(message)
            case StreamStart():
                return self._stream_start(message)
            case StreamBatch():
                return self._stream_batch(message)
            case StreamEnd():
                return self._stream_end(message)
            case AppStart():
                return self._app_start(message)
            case AppEnd():
                self.ended, self.end_error = message.time, message.error
                return []
            case Dropped():
                return self._lost(message)

    def finish(self, time: int, failure: Failure | None = None) -> list[Step]:
        """The application has ended: whatever still runs is aborted, and its own end is told."""
        steps: list[Step] = []
        running = {run.id: run for run in [*self._executions.values(), *self._jobs.values()]}
        for run in [*running.values(), *self._streams.values()]:
            steps += self._close(run, State.ABORT, time)
        for found in (self._executions, self._jobs, self._stages, self._streams, self._batches):
            found.clear()
        if self.application is not None:
            self.application.failure = failure
            steps += self._close(self.application, State.FAIL if failure else State.COMPLETE, time)
        return steps

    @property
    def running(self) -> int:
        """How many runs have not ended, the application apart."""
        return len(
            {id(run) for run in self._executions.values()} | {id(run) for run in self._streams.values()}
        )

    def _begin(self, run: Run) -> list[Step]:
        if run.is_started:
            return []
        run.is_started = True
        return [Step(run, State.START, run.started)]

    def _close(self, run: Run, state: State, time: int) -> list[Step]:
        """START too, if it was held back: a run never ends that did not begin."""
        if run.ended is not None:
            return []
        run.ended = max(time, run.started)
        return [*self._begin(run), Step(run, state, run.ended)]

    def _app_start(self, message: AppStart) -> list[Step]:
        if self.application is not None:
            return []
        run = Run(self._application_id or generate_new_uuid(), Kind.APPLICATION, message.time, None)
        run.app = message
        self.application = run
        return self._begin(run)

    def _sql_start(self, message: SqlStart) -> list[Step]:
        execution = Execution(message.id, message)
        outer = self._executions.get(message.root) if message.root is not None else None
        if outer is None and (found := _BATCH.search(message.description)):
            # foreachBatch of a Spark that does not tell the root, or of a Python thread of its own
            outer = self._batches.get((found[1], int(found[2])))
        if outer is not None:
            outer.executions.append(execution)
            self._executions[message.id] = outer
            return []
        steps: list[Step] = []
        if message.stream_run is not None and message.batch is not None:
            stream = self._streams.get(message.stream_run)
            if stream is None:  # it began before we listened
                steps = self._stream_start(
                    StreamStart(id=message.stream_run, run=message.stream_run, name=None, time=message.time)
                )
                stream = self._streams[message.stream_run]
            run = Run(generate_new_uuid(), Kind.BATCH, message.time, stream)
            run.stream, run.batch = stream.stream, message.batch
            self._batches[message.stream_run, message.batch] = run
            stream.executions = run.executions
            stream.memo.pop("datasets", None)
        else:
            run = Run(_run_id(message.query_id), Kind.SQL, message.time, self.application)
        run.properties = message.properties
        run.executions.append(execution)
        self._executions[message.id] = run
        # Without a plan the event would lack its datasets and its name; the end has the plan, and is near.
        return [*steps, *self._begin(run)] if execution.has_plan else steps

    def _sql_end(self, message: SqlEnd) -> list[Step]:
        run = self._executions.pop(message.id, None)
        if run is None:
            # It began before we listened, or its start was lost.
            run = Run(generate_new_uuid(), Kind.SQL, message.time, self.application)
            run.executions.append(Execution(message.id, None))
        execution = next(each for each in run.executions if each.id == message.id)
        execution.end = message
        if execution is not run.execution:
            return []
        if run.kind is Kind.BATCH and run.stream is not None and run.batch is not None:
            self._batches.pop((run.stream.run, run.batch), None)
        if message.error:
            run.failure = Failure(message.error, message.error_class, message.stack)
        for nested in run.executions:
            self._executions.pop(nested.id, None)
        return self._close(run, State.FAIL if run.failure else State.COMPLETE, message.time)

    def _job_start(self, message: JobStart) -> list[Step]:
        run = None
        if message.execution is not None:
            run = self._executions.get(message.execution) or self._executions.get(message.root or -1)
            if run is None:
                return []
            steps = self._begin(run) if run.execution and run.execution.has_plan else []
        else:
            run = Run(generate_new_uuid(), Kind.RDD_JOB, message.time, self.application)
            run.properties = message.properties
            steps = self._begin(run)
        run.jobs.append(Job(message))
        self._jobs[message.id] = run
        for stage in message.stages:
            self._stages[stage.id] = run
        if message.rdd_error:
            run.extraction_errors.append(ExtractionError("rdds", message.rdd_error))
        return steps

    def _job_end(self, message: JobEnd) -> list[Step]:
        run = self._jobs.pop(message.id, None)
        if run is None:
            return []
        job = next(each for each in run.jobs if each.id == message.id)
        job.end = message
        for stage in job.start.stages:
            self._stages.pop(stage.id, None)
        if run.kind is not Kind.RDD_JOB:
            return []
        if message.error:
            run.failure = Failure(message.error, message.error_class, message.stack)
        return self._close(run, State.FAIL if run.failure else State.COMPLETE, message.time)

    def _stage_done(self, message: StageDone) -> list[Step]:
        run = self._stages.get(message.id)
        if run is not None and len(run.stages) < _MOST_STAGES:
            run.stages.append(message)
        return []

    def _stream_start(self, message: StreamStart) -> list[Step]:
        if message.run in self._streams:
            return []
        run = Run(generate_new_uuid(), Kind.STREAM, message.time, self.application)
        run.stream = message
        self._streams[message.run] = run
        return self._begin(run)

    def _stream_batch(self, message: StreamBatch) -> list[Step]:
        if (run := self._streams.get(message.run)) is not None:
            run.progress = message
        return []

    def _stream_end(self, message: StreamEnd) -> list[Step]:
        run = self._streams.pop(message.run, None)
        if run is None:
            return []
        if message.error:
            run.failure = Failure(message.error)
        return self._close(run, State.FAIL if run.failure else State.COMPLETE, message.time)

    def _lost(self, message: Dropped) -> list[Step]:
        self.dropped += message.count
        error = ExtractionError(
            "listener", f"{message.count} events of Spark were not kept: too many at once"
        )
        for run in {id(run): run for run in self._executions.values()}.values():
            run.extraction_errors.append(error)
        return []


def _run_id(query_id: str | None) -> UUID:
    """Spark's own id of the query where it is one that OpenLineage asks for, else a new one."""
    if query_id:
        try:
            found = UUID(query_id)
        except ValueError:
            return generate_new_uuid()
        if found.version == 7:  # a stream's is not, and would repeat with each batch
            return found
    return generate_new_uuid()

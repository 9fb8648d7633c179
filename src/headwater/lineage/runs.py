"""Turns Spark's events into runs: applications, queries, RDD jobs, streams and micro-batches.

    application ─┬─ SQL execution       all executions nested in it are the same run: one write, one run
                 ├─ RDD job             a Spark job outside any SQL execution
                 └─ streaming query ─── micro-batch, with the executions of its foreachBatch

Every run has exactly one START and one of COMPLETE, FAIL, ABORT. Pure: no Spark, no thread, no clock. Only
the session's thread calls it; builders read a snapshot of a run.
"""

from __future__ import annotations

import copy
import re
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from headwater.lineage.jvm.messages import (
    AppEnd,
    AppStart,
    Dropped,
    Ended,
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

# The description that Spark gives to everything that a micro-batch runs, foreachBatch included.
_BATCH = re.compile(r"\brunId = ([0-9a-f-]{36})\b.*?\bbatch = (\d+)", re.DOTALL)
_MOST_STAGES = 1000  # per run; only their totals are used


class Failure(NamedTuple):
    """Why a run failed: Spark's or Python's message, class and stack."""

    text: str
    cls: str | None = None
    stack: str | None = None


class ExtractionError(NamedTuple):
    """A part of a run's lineage that could not be extracted, and the reason."""

    task: str
    text: str
    stack: str | None = None


class RunKind(StrEnum):
    """The kinds of runs."""

    APPLICATION = "application"
    SQL = "sql"
    RDD_JOB = "rdd_job"
    STREAM = "stream"
    BATCH = "batch"


class State(StrEnum):
    """OpenLineage's states of a run."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    ABORT = "ABORT"


class SendState(StrEnum):
    """Whether the events of a run are sent."""

    UNDECIDED = "undecided"
    SENT = "sent"
    SKIPPED = "skipped"


class Execution:
    """One SQL execution: its start and, later, its end."""

    def __init__(self, id: int, start: SqlStart | None) -> None:
        self.id = id
        self.start = start
        self.end: SqlEnd | None = None
        self._plans: list[Plan] = []  # decoded once, also for snapshots

    @property
    def has_plan(self) -> bool:
        """Whether there is a plan, or the reason why there is none."""
        return bool(self._raw) or self.plan_error is not None

    @property
    def plan_error(self) -> str | None:
        """Why there is no plan."""
        return next((each.plan_error for each in self._messages if each.plan_error), None)

    @property
    def plan(self) -> Plan | None:
        """The analyzed plan, decoded at its first use. Raises if it cannot be decoded."""
        if not self._plans and self._raw:
            self._plans.append(read_plan(self._raw))
        return self._plans[0] if self._plans else None

    @property
    def sql(self) -> str | None:
        """The argument of `spark.sql`."""
        return next((each.sql for each in self._messages if each.sql), None)

    @property
    def _raw(self) -> bytes:
        return next((bytes(each.plan) for each in self._messages if bytes(each.plan)), b"")

    @property
    def _messages(self) -> list[SqlStart | SqlEnd]:
        return [each for each in (self.start, self.end) if each is not None]


class Job:
    """One Spark job of a run."""

    def __init__(self, start: JobStart) -> None:
        self.id = start.id
        self.start = start
        self.end: JobEnd | None = None


class RunCache:
    """Results that the event builder keeps from START for the end; all snapshots of a run share them."""

    def __init__(self) -> None:
        self.job_name: str | None = None
        self.has_unknown = False
        """Whether the run reads or writes a dataset whose name is not known."""
        # values are of the modules above: DatasetBuilder, ColumnGraph, facets
        self.datasets: dict[Any, list[Any]] = {}
        self.column_graphs: dict[Any, Any] = {}
        self.column_facets: dict[Any, dict[str, Any]] = {}

    def share(self, other: RunCache) -> None:
        """Use the results of another run with the same executions."""
        self.datasets, self.column_graphs = other.datasets, other.column_graphs
        self.column_facets = other.column_facets


class Run:
    """One run."""

    def __init__(self, id: UUID, kind: RunKind, started: int, parent: Run | None) -> None:
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
        self.is_started = False  # whether START was due
        self.send_state = SendState.UNDECIDED
        self.held_start: dict[str, Any] | None = None
        """The START event, until it is certain that the run is sent."""
        self.cache = RunCache()

    def snapshot(self) -> Run:
        """A copy that later messages do not change, for a build that may outlast its deadline."""
        found = copy.copy(self)
        found.executions = [copy.copy(each) for each in self.executions]
        found.jobs = [copy.copy(each) for each in self.jobs]
        found.stages = list(self.stages)
        found.extraction_errors = list(self.extraction_errors)
        return found

    @property
    def root(self) -> Run:
        """The application."""
        return self if self.parent is None else self.parent.root

    @property
    def error(self) -> str | None:
        """The message of the run's failure."""
        return self.failure.text if self.failure else None

    @property
    def execution(self) -> Execution | None:
        """The outermost SQL execution."""
        return self.executions[0] if self.executions else None

    def __repr__(self) -> str:
        return f"<Run {self.kind} {self.id}>"


class DueEvent(NamedTuple):
    """An event that is due."""

    run: Run
    state: State
    time: int


class RunTracker:
    """The runs of one application that have not ended, and the events that are due."""

    def __init__(self, application_id: UUID | None = None, *, sends_running: bool = False) -> None:
        self._application_id = application_id
        self._sends_running = sends_running
        self.application: Run | None = None
        self.ended: int | None = None
        self.end_error: str | None = None
        self.dropped = 0
        self._executions: dict[int, Run] = {}
        self._jobs: dict[int, Run] = {}
        self._stages: dict[int, Run] = {}
        self._streams: dict[str, Run] = {}
        self._batches: dict[tuple[str, int], Run] = {}

    def on_message(self, message: Message) -> list[DueEvent]:
        """The events that are due because of a message, in the order in which they are sent."""
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
                return self._on_dropped(message)

    def finish(self, time: int, failure: Failure | None = None) -> list[DueEvent]:
        """End the application: ABORT for each run that has not ended, then its own end event."""
        steps: list[DueEvent] = []
        running = {run.id: run for run in [*self._executions.values(), *self._jobs.values()]}
        for run in [*running.values(), *self._streams.values()]:
            steps += self._close(run, State.ABORT, time)
        for found in (self._executions, self._jobs, self._stages, self._streams, self._batches):
            found.clear()
        if self.application is not None:
            self.application.failure = failure
            steps += self._close(self.application, State.FAIL if failure else State.COMPLETE, time)
        return steps

    def _begin(self, run: Run) -> list[DueEvent]:
        if run.is_started:
            return []
        run.is_started = True
        return [DueEvent(run, State.START, run.started)]

    def _close(self, run: Run, state: State, time: int) -> list[DueEvent]:
        """The end event, after START if that was not due yet."""
        if run.ended is not None:
            return []
        run.ended = max(time, run.started)
        return [*self._begin(run), DueEvent(run, state, run.ended)]

    def _end(self, run: Run, message: Ended) -> list[DueEvent]:
        if message.error:
            run.failure = Failure(message.error, message.error_class, message.stack)
        return self._close(run, State.FAIL if run.failure else State.COMPLETE, message.time)

    def _app_start(self, message: AppStart) -> list[DueEvent]:
        if self.application is not None:
            return []
        run = Run(self._application_id or _new_id(), RunKind.APPLICATION, message.time, None)
        run.app = message
        self.application = run
        return self._begin(run)

    def _sql_start(self, message: SqlStart) -> list[DueEvent]:
        execution = Execution(message.id, message)
        outer = self._executions.get(message.root) if message.root is not None else None
        if outer is None and (found := _BATCH.search(message.description)):
            # foreachBatch in a Spark without root ids, or in a thread that the program started
            outer = self._batches.get((found[1], int(found[2])))
        if outer is not None:
            outer.executions.append(execution)
            self._executions[message.id] = outer
            return []
        steps: list[DueEvent] = []
        if message.stream_run is not None and message.batch is not None:
            stream = self._streams.get(message.stream_run)
            if stream is None:  # it started before the agent was attached
                steps = self._stream_start(
                    StreamStart(id=message.stream_run, run=message.stream_run, name=None, time=message.time)
                )
                stream = self._streams[message.stream_run]
            run = Run(_new_id(), RunKind.BATCH, message.time, stream)
            run.stream, run.batch = stream.stream, message.batch
            self._batches[message.stream_run, message.batch] = run
            stream.executions = run.executions
            # the agent releases the plan with the batch; the end event of the stream needs its results
            stream.cache.share(run.cache)
        else:
            run = Run(_run_id(message.query_id), RunKind.SQL, message.time, self.application)
        run.properties = message.properties
        run.executions.append(execution)
        self._executions[message.id] = run
        # Without a plan START would lack datasets and name; the end has the plan.
        return [*steps, *self._begin(run)] if execution.has_plan else steps

    def _sql_end(self, message: SqlEnd) -> list[DueEvent]:
        run = self._executions.pop(message.id, None)
        if run is None:
            # It started before the agent was attached, or its start was dropped.
            run = Run(_new_id(), RunKind.SQL, message.time, self.application)
            run.executions.append(Execution(message.id, None))
        execution = next(each for each in run.executions if each.id == message.id)
        execution.end = message
        if execution is not run.execution:
            return []
        if run.kind is RunKind.BATCH and run.stream is not None and run.batch is not None:
            self._batches.pop((run.stream.run, run.batch), None)
        for nested in run.executions:
            self._executions.pop(nested.id, None)
        return self._end(run, message)

    def _job_start(self, message: JobStart) -> list[DueEvent]:
        run = None
        if message.execution is not None:
            run = self._executions.get(message.execution) or self._executions.get(message.root or -1)
            if run is None:
                return []
            steps = self._begin(run) if run.execution and run.execution.has_plan else []
        else:
            run = Run(_new_id(), RunKind.RDD_JOB, message.time, self.application)
            run.properties = message.properties
            steps = self._begin(run)
        if self._sends_running and message.execution is not None and not run.jobs and run.is_started:
            steps = [*steps, DueEvent(run, State.RUNNING, message.time)]
        run.jobs.append(Job(message))
        self._jobs[message.id] = run
        for stage in message.stages:
            self._stages[stage.id] = run
        if message.rdd_error:
            run.extraction_errors.append(ExtractionError("rdds", message.rdd_error))
        return steps

    def _job_end(self, message: JobEnd) -> list[DueEvent]:
        run = self._jobs.pop(message.id, None)
        if run is None:
            return []
        job = next(each for each in run.jobs if each.id == message.id)
        job.end = message
        for stage in job.start.stages:
            self._stages.pop(stage.id, None)
        if run.kind is not RunKind.RDD_JOB and self._sends_running and run.jobs[0] is job:
            return [DueEvent(run, State.RUNNING, message.time)]
        if run.kind is not RunKind.RDD_JOB:
            return []
        return self._end(run, message)

    def _stage_done(self, message: StageDone) -> list[DueEvent]:
        run = self._stages.get(message.id)
        if run is not None and len(run.stages) < _MOST_STAGES:
            run.stages.append(message)
        return []

    def _stream_start(self, message: StreamStart) -> list[DueEvent]:
        if message.run in self._streams:
            return []
        run = Run(_new_id(), RunKind.STREAM, message.time, self.application)
        run.stream = message
        self._streams[message.run] = run
        return self._begin(run)

    def _stream_batch(self, message: StreamBatch) -> list[DueEvent]:
        if (run := self._streams.get(message.run)) is not None:
            run.progress = message
        return []

    def _stream_end(self, message: StreamEnd) -> list[DueEvent]:
        run = self._streams.pop(message.run, None)
        if run is None:
            return []
        return self._end(run, message)

    def _on_dropped(self, message: Dropped) -> list[DueEvent]:
        self.dropped += message.count
        error = ExtractionError(
            "listener",
            f"{message.count} of Spark's events were dropped: a queue was full, or a message was not written",
        )
        for run in {id(run): run for run in self._executions.values()}.values():
            run.extraction_errors.append(error)
        return []


def _new_id() -> UUID:
    from openlineage.client.uuid import generate_new_uuid  # imports its whole client: not on the job's thread

    return generate_new_uuid()


def _run_id(query_id: str | None) -> UUID:
    """Spark's id of the query if it is a UUID of version 7, as OpenLineage requires, else a new one."""
    if query_id:
        try:
            found = UUID(query_id)
        except ValueError:
            return _new_id()
        if found.version == 7:  # a stream's is not, and would repeat with each batch
            return found
    return _new_id()

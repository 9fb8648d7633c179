"""Spark's objects as builders receive them: plain Python values, with the live JVM object behind `.jvm`.

The values are copied when Spark reports the event and never change. `.jvm` is fetched on access; it is None
after Spark has released the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.lineage.jvm.messages import MOST_RDDS
from headwater.lineage.runs import Execution, ExtractionError, Job, Run

if TYPE_CHECKING:
    from headwater.lineage.jvm.messages import ExecutedNode
    from headwater.lineage.jvm.plan import Plan

__all__ = [
    "JDBCRDD",
    "RDD",
    "ActiveJob",
    "CoGroupedRDD",
    "DataSourceRDD",
    "FileScanRDD",
    "HadoopRDD",
    "LocalCheckpointRDD",
    "MapPartitionsRDD",
    "NewHadoopRDD",
    "ParallelCollectionRDD",
    "PythonRDD",
    "QueryExecution",
    "ReliableCheckpointRDD",
    "SQLExecutionRDD",
    "ShuffledRDD",
    "Stage",
    "StageInfo",
    "TaskMetrics",
    "UnionRDD",
]

Fetch = Callable[[], Any]


@dataclass(kw_only=True, eq=False)
class _SparkObject:
    """A copy of a JVM object, and the call that returns the object itself."""

    fetch: Fetch | None = field(default=None, repr=False)

    @property
    def jvm(self) -> Any:
        """The py4j object; None after Spark has released it."""
        try:
            return self.fetch() if self.fetch is not None else None
        except Exception:  # the JVM may be shutting down
            return None


@dataclass(eq=False)
class RDD(_SparkObject):
    """One RDD of a chain. Builders receive the subclass of its kind, if there is one."""

    id: int
    cls: str
    name: str = ""
    parents: Sequence[int] = ()
    paths: Sequence[str] = ()
    """The paths that it reads, if it reads files."""
    details: Mapping[str, Any] = field(default_factory=dict)
    is_of_query: bool = field(default=False, kw_only=True)
    """Whether it belongs to a SQL query; the query's plan names its datasets."""


class HadoopRDD(RDD):
    """Files by Hadoop's old API: `textFile`, `hadoopFile`, `sequenceFile`."""


class NewHadoopRDD(RDD):
    """Files by Hadoop's new API: `newAPIHadoopFile`, `wholeTextFiles`, `binaryFiles`."""


class FileScanRDD(RDD):
    """Files of a DataFrame; `paths` are their folders."""


class MapPartitionsRDD(RDD):
    """A transformation in JVM code."""


class PythonRDD(RDD):
    """A transformation in Python code."""


class UnionRDD(RDD):
    """The union of several RDDs."""


class ParallelCollectionRDD(RDD):
    """Values of the driver."""


class ShuffledRDD(RDD):
    """The result of a shuffle."""


class CoGroupedRDD(RDD):
    """Several RDDs grouped by key."""


class DataSourceRDD(RDD):
    """A scan of the DataSource V2 API."""


class SQLExecutionRDD(RDD):
    """The result of `DataFrame.rdd`."""


class JDBCRDD(RDD):
    """Rows of a database; `details` has `url` and `table`."""


class LocalCheckpointRDD(RDD):
    """A checkpoint in the executors' storage."""


class ReliableCheckpointRDD(RDD):
    """A checkpoint in files; `details` has `checkpoint`."""


_KINDS: dict[str, type[RDD]] = {kind.__name__: kind for kind in RDD.__subclasses__()}
_KINDS |= {
    "PartitionerAwareUnionRDD": UnionRDD,
    "WholeTextFileRDD": NewHadoopRDD,
    "BinaryFileRDD": NewHadoopRDD,
}


@dataclass(frozen=True, kw_only=True)
class TaskMetrics:
    """The sums of a stage's tasks."""

    records_read: int = 0
    bytes_read: int = 0
    records_written: int = 0
    bytes_written: int = 0
    run_millis: int = 0
    cpu_nanos: int = 0


@dataclass(eq=False)
class StageInfo(_SparkObject):
    """A stage that has ended, with the metrics of its tasks."""

    id: int
    attempt: int
    name: str
    tasks: int
    task_metrics: TaskMetrics
    error: str | None = None


@dataclass(eq=False)
class Stage(_SparkObject):
    """A stage of a job that has started."""

    id: int
    name: str
    tasks: int


@dataclass(eq=False)
class ActiveJob(_SparkObject):
    """A Spark job; `outputs` are the datasets that it writes through Hadoop's API."""

    id: int
    stages: Sequence[Stage]
    rdds: Sequence[RDD]
    outputs: Sequence[Mapping[str, Any]]
    properties: Mapping[str, str]
    execution_id: int | None = None


@dataclass(eq=False)
class QueryExecution(_SparkObject):
    """A SQL execution: its analyzed plan and, after its end, the metrics of the executed plan."""

    id: int
    plan: Plan | None
    description: str = ""
    sql: str | None = None
    physical: str = ""
    database: str = ""
    """The current database of the session, in which unqualified table names are resolved."""
    executed: Sequence[ExecutedNode] = ()
    error: str | None = None
    session_conf: Mapping[str, str] = field(default_factory=dict)
    """The settings of Spark SQL that the query's session has changed."""
    lake: Sequence[Mapping[str, Any]] = ()
    """The scans and commits of Iceberg and Delta, after the end."""


def run_objects(run: Run, agent: Any, errors: list[ExtractionError]) -> list[object]:
    """The run, then its queries outermost first, its jobs with their stages and RDDs, its ended stages."""
    found: list[object] = [run]
    found += [_query(execution, agent, errors) for execution in run.executions]
    for job in run.jobs:
        active = _job(job, agent)
        errors += _omissions(active.rdds)
        found += [active, *active.stages, *active.rdds]
    found += [
        StageInfo(each.id, each.attempt, each.name, each.tasks, _task_metrics(each.metrics), each.error)
        for each in run.stages
    ]
    return found


def _sql_settings(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key.startswith("spark.sql.")}


_METRICS = {each.name for each in fields(TaskMetrics)}


def _task_metrics(found: Mapping[str, int]) -> TaskMetrics:
    return TaskMetrics(**{name: value for name, value in found.items() if name in _METRICS})


def _query(execution: Execution, agent: Any, errors: list[ExtractionError]) -> QueryExecution:
    plan = None
    try:
        plan = execution.plan
    except Exception as error:
        errors.append(ExtractionError("plan", f"the plan cannot be read: {error}"))
    # Spark's own analysis errors, which begin with a bracket, are the query's failure and not lineage's.
    if plan is None and execution.plan_error and not execution.plan_error.startswith("["):
        errors.append(ExtractionError("plan", execution.plan_error))
    if plan is not None and plan.cut:
        errors.append(ExtractionError("plan", plan.cut))
    for node in plan.nodes if plan is not None else ():
        if node.cut_f:
            errors.append(ExtractionError("plan", f"{node.cls.rpartition('.')[2]}: {node.cut_f}"))
    start, end = execution.start, execution.end
    if end is not None and end.cut:
        errors.append(ExtractionError("metrics", f"left out: {end.cut}"))
    number = execution.id
    return QueryExecution(
        number,
        plan,
        description=start.description if start is not None else "",
        sql=execution.sql,
        physical=start.physical if start is not None else "",
        database=start.database if start is not None else "",
        executed=end.executed if end is not None else (),
        error=end.error if end is not None else None,
        session_conf=_sql_settings(start.properties) if start is not None else {},
        lake=end.lake if end is not None else (),
        fetch=(lambda: agent.query(number)) if agent is not None else None,
    )


def _omissions(rdds: Sequence[RDD]) -> list[ExtractionError]:
    """The parts of a chain that the agent could not read, or left out because of a limit (G11)."""
    found = []
    for rdd in rdds:
        if error := rdd.details.get("error"):
            found.append(ExtractionError("rdds", f"the source of RDD {rdd.id} cannot be read: {error}"))
        if rdd.details.get("more"):
            text = f"only the first {len(rdd.paths)} folders of RDD {rdd.id} are known"
            found.append(ExtractionError("rdds", text))
    if len(rdds) >= MOST_RDDS:
        found.append(ExtractionError("rdds", f"only the first {MOST_RDDS} RDDs of the chain are known"))
    return found


def _job(job: Job, agent: Any) -> ActiveJob:
    start, number = job.start, job.id
    return ActiveJob(
        number,
        [Stage(each.id, each.name, each.tasks) for each in start.stages],
        _rdds(start.rdds or (), agent, number, is_of_query=start.execution is not None),
        start.outputs,
        start.properties,
        start.execution,
        fetch=(lambda: agent.job(number)) if agent is not None else None,
    )


def _rdds(
    documents: Iterable[Mapping[str, Any]], agent: Any, job: int, *, is_of_query: bool
) -> Sequence[RDD]:
    """A chain as the agent writes it, flattened: each RDD once, the result first."""
    found = []
    for each in documents:
        rest = dict(each)
        number, cls = int(rest.pop("id")), str(rest.pop("cls", ""))
        kind = _KINDS.get(cls.rpartition(".")[2], RDD)
        found.append(
            kind(
                number,
                cls,
                str(rest.pop("name", "")),
                tuple(rest.pop("parents", ())),
                tuple(rest.pop("paths", ())),
                rest,
                is_of_query=is_of_query,
                fetch=partial(agent.rdd, job, number) if agent is not None else None,
            )
        )
    return found

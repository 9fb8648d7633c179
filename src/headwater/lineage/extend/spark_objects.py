"""What builders are handed: Spark's objects as plain Python values, with the live JVM object behind `.jvm`.

The values were copied when Spark told of them and never change; `.jvm` is fetched when it is asked for and is
None once Spark has let go of the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
    "UnionRDD",
    "rdd_views",
]

Fetch = Callable[[], Any]


class _View:
    """A copy of something in the JVM, and the way back to it."""

    def __init__(self, fetch: Fetch | None = None) -> None:
        self._fetch = fetch

    @property
    def jvm(self) -> Any:
        """The py4j object, or None if Spark has it no more."""
        try:
            return self._fetch() if self._fetch is not None else None
        except Exception:  # the JVM may be on its way out
            return None


class RDD(_View):
    """One RDD of a chain. Builders get the kinds below where there is one for the class."""

    def __init__(
        self,
        id: int,
        cls: str,
        name: str = "",
        parents: Sequence[int] = (),
        paths: Sequence[str] = (),
        details: Mapping[str, Any] | None = None,
        *,
        is_of_query: bool = False,
        fetch: Fetch | None = None,
    ) -> None:
        super().__init__(fetch)
        self.id = id
        self.cls = cls
        self.name = name
        self.parents = tuple(parents)
        self.paths = tuple(paths)
        """Paths that it reads, where it reads files."""
        self.details = dict(details or {})
        self.is_of_query = is_of_query
        """Whether it belongs to a SQL query, whose plan tells its datasets better."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.id}]"


class HadoopRDD(RDD):
    """Files by Hadoop's old API: `textFile`, `hadoopFile`, `sequenceFile`."""


class NewHadoopRDD(RDD):
    """Files by Hadoop's new API: `newAPIHadoopFile`, `wholeTextFiles`, `binaryFiles`."""


class FileScanRDD(RDD):
    """Files of a DataFrame; `paths` are their folders."""


class MapPartitionsRDD(RDD):
    """A step of the driver's or Spark's own code."""


class PythonRDD(RDD):
    """A step of Python code."""


class UnionRDD(RDD):
    """Several RDDs one after the other."""


class ParallelCollectionRDD(RDD):
    """Values of the driver."""


class ShuffledRDD(RDD):
    """The far side of a shuffle."""


class CoGroupedRDD(RDD):
    """Several RDDs by key."""


class DataSourceRDD(RDD):
    """A scan of the second data source API."""


class SQLExecutionRDD(RDD):
    """Where `DataFrame.rdd` leaves SQL."""


class JDBCRDD(RDD):
    """Rows of a database; `details` has `url` and `table`."""


class LocalCheckpointRDD(RDD):
    """What an RDD was, kept by the executors."""


class ReliableCheckpointRDD(RDD):
    """What an RDD was, kept in files; `details` has `checkpoint`."""


_KINDS: dict[str, type[RDD]] = {
    kind.__name__: kind
    for kind in (
        HadoopRDD,
        NewHadoopRDD,
        FileScanRDD,
        MapPartitionsRDD,
        PythonRDD,
        UnionRDD,
        ParallelCollectionRDD,
        ShuffledRDD,
        CoGroupedRDD,
        DataSourceRDD,
        SQLExecutionRDD,
        JDBCRDD,
        LocalCheckpointRDD,
        ReliableCheckpointRDD,
    )
}
_KINDS |= {
    "PartitionerAwareUnionRDD": UnionRDD,
    "WholeTextFileRDD": NewHadoopRDD,
    "BinaryFileRDD": NewHadoopRDD,
}


def rdd_views(
    documents: Iterable[Mapping[str, Any]],
    *,
    is_of_query: bool = False,
    fetch: Callable[[int], Any] | None = None,
) -> list[RDD]:
    """A chain as Rdds.java tells it, flattened: each RDD once, the result first."""
    views = []
    for each in documents:
        if "id" not in each:
            continue  # the chain's own error
        cls = str(each.get("cls", ""))
        kind = _KINDS.get(cls.rpartition(".")[2], RDD)
        details = {
            name: value
            for name, value in each.items()
            if name not in {"id", "cls", "name", "parents", "paths"}
        }
        number = int(each["id"])
        views.append(
            kind(
                number,
                cls,
                str(each.get("name", "")),
                each.get("parents", ()),
                each.get("paths", ()),
                details,
                is_of_query=is_of_query,
                fetch=_bound(fetch, number) if fetch is not None else None,
            )
        )
    return views


def _bound(fetch: Callable[[int], Any], number: int) -> Fetch:
    return lambda: fetch(number)


class StageInfo(_View):
    """A stage that has ended, with its numbers: `records_read`, `bytes_read`, `records_written`, …"""

    def __init__(
        self,
        id: int,
        attempt: int,
        name: str,
        tasks: int,
        metrics: Mapping[str, int],
        error: str | None = None,
        fetch: Fetch | None = None,
    ) -> None:
        super().__init__(fetch)
        self.id = id
        self.attempt = attempt
        self.name = name
        self.tasks = tasks
        self.metrics = dict(metrics)
        self.error = error


class Stage(_View):
    """A stage of a job that has begun, with its RDDs."""

    def __init__(
        self, id: int, name: str, tasks: int, rdds: Sequence[RDD] = (), fetch: Fetch | None = None
    ) -> None:
        super().__init__(fetch)
        self.id = id
        self.name = name
        self.tasks = tasks
        self.rdds = tuple(rdds)


class ActiveJob(_View):
    """A Spark job; `outputs` are what it writes through Hadoop's API."""

    def __init__(
        self,
        id: int,
        stages: Sequence[Stage],
        rdds: Sequence[RDD],
        outputs: Sequence[Mapping[str, Any]],
        properties: Mapping[str, str],
        execution_id: int | None = None,
        fetch: Fetch | None = None,
    ) -> None:
        super().__init__(fetch)
        self.id = id
        self.stages = tuple(stages)
        self.rdds = tuple(rdds)
        self.outputs = tuple(outputs)
        self.properties = dict(properties)
        self.execution_id = execution_id


class QueryExecution(_View):
    """A SQL execution: its analyzed plan and, once it has ended, what was measured."""

    def __init__(
        self,
        id: int,
        plan: Plan | None,
        *,
        description: str = "",
        sql: str | None = None,
        physical: str = "",
        database: str = "",
        executed: Sequence[ExecutedNode] = (),
        error: str | None = None,
        fetch: Fetch | None = None,
    ) -> None:
        super().__init__(fetch)
        self.id = id
        self.plan = plan
        self.description = description
        self.sql = sql
        self.physical = physical
        self.database = database
        """What an unqualified name of a table means."""
        self.executed = tuple(executed)
        self.error = error

"""A log as a Spark data source: `spark.read` and `spark.readStream` with `.format("headwater")`.

    headwater.pipeline.register(spark)
    spark.readStream.format("headwater").option("path", "…/events/queue.dst=dwh").load()

| option | meaning | default |
|---|---|---|
| `path` | folder of a log: a stream's queue, or `<data_dir>/log` | |
| `start` | stream: `earliest`, `latest`, or a position | `earliest` |
| `first`, `end` | batch: positions from `first` up to and without `end` | all there are |
| `max_events` | stream: most events of a micro-batch | 100000 |
| `partition_events` | events of one partition | 20000 |
| `fail_on_loss` | whether positions that are not there any more are an error | true |

Columns: `position` (long), `time` (timestamp: when it was received), `body` (string). A schema of your own
may leave some out, or ask for the body as binary. Spark's offsets are positions, so a batch that is repeated
has the same events. The folder is read beside the process that writes it, without its lock and without a
write; only what was acknowledged is seen.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headwater.errors import LogUnavailable, SettingsError
from headwater.log.queue.commit_format import Commit
from headwater.log.queue.offline import commits, tail_of
from headwater.log.queue.partition_file import partition_paths
from headwater.pipeline.spark.arrow_lines import arrow_positions, arrow_texts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME = "headwater"
MAX_EVENTS = 100_000
PARTITION_EVENTS = 20_000
BATCH_EVENTS = 8_192
BATCH_BYTES = 4 * 1024 * 1024
_COLUMNS = {
    "position": ("bigint",),
    "time": ("timestamp",),
    "body": ("string", "binary"),
}


def register(spark: SparkSession) -> None:
    """Lets the session read logs by `.format("headwater")`."""
    spark.dataSource.register(LogSource)


class LogSource(DataSource):
    """The log behind a `path`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "position bigint, time timestamp, body string"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(_Log(self.options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _StreamReader(_Log(self.options, schema))


class _Log:
    """The options and the reading that both readers share; sent to executors with them."""

    def __init__(self, options: Any, schema: StructType) -> None:
        given = {str(name).lower(): str(value) for name, value in dict(options).items()}
        if "path" not in given:
            raise SettingsError(['the option `path` is missing; add .option("path", "<folder of a log>")'])
        self.folder = Path(given["path"])
        self.start = given.get("start", "earliest")
        self.first = _number(given, "first", 0)
        self.end = _number(given, "end", 0)
        self.max_events = max(1, _number(given, "max_events", MAX_EVENTS))
        self.partition_events = max(1, _number(given, "partition_events", PARTITION_EVENTS))
        self.fail_on_loss = given.get("fail_on_loss", "true").lower() != "false"
        self.columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        for name, kind in self.columns:
            if kind not in _COLUMNS.get(name, ()):
                raise SettingsError([f"a log has no column `{name}` of the type {kind}"], source="the schema")

    def oldest(self) -> int:
        """The first position that is kept, or the next to come."""
        paths = partition_paths(self.folder)
        return int(paths[0].stem) if paths else max(1, tail_of(self.folder))

    def newest(self) -> int:
        """The position after the last event that was acknowledged."""
        return max(tail_of(self.folder), 1)

    def partitions(self, first: int, end: int) -> list[InputPartition]:
        """The positions that each task reads."""
        step = self.partition_events
        return [InputPartition(range(at, min(at + step, end))) for at in range(first, end, step)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a partition as Arrow batches of bounded size (G8)."""
        positions: range = partition.value
        gathered: list[Commit] = []
        events = size = 0
        expected = positions.start
        for commit in commits(self.folder, positions.start, positions.stop):
            self._miss(expected, commit.first)
            expected = commit.end
            gathered.append(commit)
            events += len(commit.bodies)
            size += sum(map(len, commit.bodies))
            if events >= BATCH_EVENTS or size >= BATCH_BYTES:
                yield self._batch(gathered)
                gathered, events, size = [], 0, 0
        if gathered:
            yield self._batch(gathered)
        self._miss(expected, positions.stop)

    def _miss(self, expected: int, found: int) -> None:
        if expected < found and self.fail_on_loss:
            raise LogUnavailable(
                f"{self.folder} does not have the positions {expected} to {found - 1} any more.",
                hint="They were collected, or damaged; set `fail_on_loss` to false to read what is there.",
            )

    def _batch(self, gathered: Sequence[Commit]) -> pa.RecordBatch:
        import pyarrow as pa  # late: the process that only computes offsets must start within 10 s

        arrays = []
        for name, kind in self.columns:
            if name == "position":
                arrays.append(arrow_positions(gathered))
            elif name == "time":
                arrays.append(_times(gathered))
            else:
                bodies = [body for commit in gathered for body in commit.bodies]
                arrays.append(arrow_texts(bodies, binary=kind == "binary"))
        return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in self.columns])


def _times(gathered: Sequence[Commit]) -> pa.Array:
    import pyarrow as pa

    numbers = array("q")
    for commit in gathered:
        numbers.extend([round(commit.received_at * 1_000_000)] * len(commit.bodies))
    return pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), len(numbers), [None, pa.py_buffer(numbers)])


class _BatchReader(DataSourceReader):
    def __init__(self, log: _Log) -> None:
        self._log = log

    def partitions(self) -> Sequence[InputPartition]:
        log = self._log
        return log.partitions(log.first or log.oldest(), log.end or log.newest())

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._log.read(partition)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are positions: `{"position": 17}` means that all positions before 17 were read."""

    def __init__(self, log: _Log) -> None:
        self._log = log
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        start = self._log.start
        if start in ("earliest", "latest"):
            position = self._log.oldest() if start == "earliest" else self._log.newest()
        else:
            position = _number({"start": start}, "start", 0)
        return {"position": position}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._log.max_events)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        first = int(start["position"])
        end = self._log.newest() if self._target is None else self._target
        if isinstance(limit, ReadMaxRows):
            end = min(end, first + limit.max_rows)
        elif not isinstance(limit, ReadAllAvailable):
            end = min(end, first + self._log.max_events)
        return {"position": max(first, end)}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return {"position": self._log.newest()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._log.newest()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._log.partitions(int(start["position"]), int(end["position"]))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._log.read(partition)


def _number(options: dict[str, str], name: str, default: int) -> int:
    text = options.get(name, "")
    if text and not text.isdecimal():
        raise SettingsError([f"the option `{name}` must be a number of 0 or more, not {text!r}"])
    return int(text or default)

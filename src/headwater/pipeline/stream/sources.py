"""Where a stream's events come from: a queue of the gateway on this machine, or a partition of a topic.

Both give events a position and keep them until they are done. What the stream knows of them is kept in a
folder of its own, `<folder>/stream/`.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headwater.destinations.table import ROW
from headwater.errors import LogUnavailable
from headwater.log.files.layout import EventFolder
from headwater.log.kafka.client import client_config
from headwater.log.kafka.reader import TopicReader
from headwater.log.queue.commit_format import Commit
from headwater.log.queue.offline import commits, tail_line, tail_of
from headwater.log.queue.partition_file import partition_paths
from headwater.log.streams.queues import identity_of
from headwater.log.streams.stream_cursor import StreamCursor, stream_folder
from headwater.pipeline.steps.read_lines import LINE
from headwater.pipeline.stream.archive import StreamArchive
from headwater.settings import DestinationSettings, KafkaSettings, Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Archive", "Feed", "QueueFeed", "TopicFeed", "near_lines", "take", "topic_feeds"]


SMALL_EVENTS = 2_000


"""Up to here Spark evaluates what is done to the lines while it plans, in one thread and without a job."""


def take(events: Iterable[Commit], end: int, most_bytes: int) -> tuple[list[Commit], int]:
    """Events of so many bytes at most (G8), but one at least; and where they end: `end`, if that was all."""
    taken, size = list[Commit](), 0
    for commit in events:
        for place, body in enumerate(commit.bodies):
            size += len(body)
            if size > most_bytes and (taken or place):
                if place:
                    taken.append(Commit(commit.first, commit.received_at, commit.bodies[:place]))
                return taken, commit.first + place
        taken.append(commit)
    return taken, end


def near_lines(spark: SparkSession, events: Iterable[Commit]) -> DataFrame:
    """Events as lines, with their positions as numbers. `unpersist` it in the end."""
    import pyarrow as pa

    positions, bodies = array("q"), list[bytes]()
    for commit in events:
        positions.extend(range(commit.first, commit.end))
        bodies.extend(commit.bodies)
    # Not by pa.array(): it would look whether events are UTF-8, which Spark's own text source does not do.
    ends = array("i", accumulate(map(len, bodies), initial=0))
    texts = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(bodies))]
    table = pa.table(
        {
            LINE: pa.Array.from_buffers(pa.string(), len(bodies), texts),
            ROW: pa.Array.from_buffers(pa.int64(), len(bodies), [None, pa.py_buffer(positions)]),
        }
    )
    lines = spark.createDataFrame(table, f"{LINE} string, {ROW} bigint")
    return lines if len(bodies) <= SMALL_EVENTS else lines.persist()


ASK_SECONDS = 10.0


class Archive(Protocol):
    """Keeps what is done."""

    def is_due(self, now: float) -> bool: ...

    def run(self, now: float) -> None: ...


class Feed(Protocol):
    """The events of one stream."""

    name: str
    folder: Path
    leads: bool
    """Whether this stream of a destination also sees to what the destination has only one of."""

    def dataset(self) -> tuple[str, str]:
        """Namespace and name of what is read, as OpenLineage has them."""

    def identity(self) -> str:
        """A text that no other feed has had; empty while there is none."""

    def oldest(self) -> int:
        """The first position that is kept."""

    def newest(self) -> int:
        """The position after the last event."""

    def read(self, first: int, end: int) -> Iterable[Commit]:
        """The events from one position up to another; those that are not there any more are left out."""

    def note_end(self) -> None:
        """Write down for others where the events end, if nobody else does."""

    def archive(self, cursor: StreamCursor, guard: threading.Lock) -> Archive:
        """What keeps the events that are done."""

    def close(self) -> None:
        """Give back what reading has opened."""


class QueueFeed:
    """The queue of a destination."""

    leads = True

    def __init__(self, settings: Settings, destination: DestinationSettings) -> None:
        self._settings = settings
        self.name = destination.id
        self.folder = EventFolder(settings.events_dir).queue(destination.id).absolute()

    def dataset(self) -> tuple[str, str]:
        return "file", str(self.folder)

    def identity(self) -> str:
        return identity_of(self.folder)

    def oldest(self) -> int:
        paths = partition_paths(self.folder)
        return int(paths[0].stem) if paths else 1

    def newest(self) -> int:
        return tail_of(self.folder)

    def read(self, first: int, end: int) -> Iterable[Commit]:
        return commits(self.folder, first, end)

    def note_end(self) -> None:
        """The gateway does."""

    def archive(self, cursor: StreamCursor, guard: threading.Lock) -> Archive:
        return StreamArchive(self._settings, self.name, self.folder, cursor, guard)

    def close(self) -> None:
        """Each read has closed what it opened."""


class TopicFeed:
    """A partition of a token's topic. What is done stays in the topic, as long as that keeps it."""

    def __init__(
        self, settings: Settings, destination: DestinationSettings, token_id: str, partition: int, leads: bool
    ) -> None:
        assert settings.events.kafka is not None
        self._kafka = settings.events.kafka
        self._topic = self._kafka.topic(token_id)
        self._partition = partition
        self._reader = TopicReader(self._kafka, self._topic, partition)
        self.leads = leads
        self.name = f"{destination.id}-{token_id}-{partition}"
        queue = EventFolder(settings.events_dir).queue(destination.id).absolute()
        self.folder = queue / f"topic.{token_id}.{partition}"

    def dataset(self) -> tuple[str, str]:
        server = self._kafka.servers.split(",")[0].strip().rpartition("://")[2]
        return f"kafka://{server if ':' in server else f'{server}:9092'}", self._topic

    def identity(self) -> str:
        from confluent_kafka import KafkaException, TopicCollection
        from confluent_kafka.admin import AdminClient

        try:
            admin = AdminClient(client_config(self._kafka))
            asked = admin.describe_topics(TopicCollection([self._topic]), request_timeout=ASK_SECONDS)
            topic_id = str(asked[self._topic].result(2 * ASK_SECONDS).topic_id)
        except (KafkaException, TimeoutError) as error:
            raise _away(self._kafka, error) from error
        stream_folder(self.folder).mkdir(parents=True, exist_ok=True)
        return f"{topic_id}/{self._partition}"

    def oldest(self) -> int:
        return self._reader.oldest()

    def newest(self) -> int:
        return self._reader.newest()

    def read(self, first: int, end: int) -> Iterable[Commit]:
        return self._reader.read(first, end)

    def note_end(self) -> None:
        (self.folder / "tail").write_bytes(tail_line(self._reader.known_end))

    def archive(self, cursor: StreamCursor, guard: threading.Lock) -> Archive:
        return _NoArchive()

    def close(self) -> None:
        self._reader.close()


class _NoArchive:
    def is_due(self, now: float) -> bool:
        return False

    def run(self, now: float) -> None:
        return


def topic_feeds(settings: Settings, destination: DestinationSettings) -> list[TopicFeed]:
    """A feed for each partition of the topics that a destination wants and that are there; asks a broker."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    kafka = settings.events.kafka
    assert kafka is not None
    try:
        known: dict[str, Any] = AdminClient(client_config(kafka)).list_topics(timeout=ASK_SECONDS).topics
    except KafkaException as error:
        raise _away(kafka, error) from error
    found: list[TopicFeed] = []
    for token in settings.tokens:
        if destination.wants(token.id) and kafka.topic(token.id) in known:
            for partition in sorted(known[kafka.topic(token.id)].partitions):
                found.append(TopicFeed(settings, destination, token.id, partition, leads=not found))
    return found


def _away(kafka: KafkaSettings, error: Exception) -> LogUnavailable:
    first = error.args[0] if error.args else error
    return LogUnavailable(f"Kafka at {kafka.servers} cannot be asked: {first}.")

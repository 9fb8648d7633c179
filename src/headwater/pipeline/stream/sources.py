"""The sources of a stream: a queue of the gateway on this machine, or a partition of a Kafka topic.

Both give events a position and keep them until they are loaded. The stream keeps its own files in
`<folder>/stream/`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
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
from headwater.log.streams import StreamCursor, agreed_position, identity_of, stream_folder
from headwater.pipeline.spark.arrow_lines import arrow_positions, arrow_texts
from headwater.pipeline.steps.read_lines import LINE
from headwater.pipeline.stream.archive import StreamArchive
from headwater.settings import DestinationSettings, KafkaSettings, Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL_EVENTS = 2_000
"""Up to this many events Spark evaluates expressions while it plans, in one thread and without a job."""
REQUEST_SECONDS = 10.0


def lines_in_driver(spark: SparkSession, events: Sequence[Commit]) -> DataFrame:
    """Events as lines, numbered by their positions. The caller must `unpersist` it."""
    import pyarrow as pa

    bodies = [body for commit in events for body in commit.bodies]
    table = pa.table({LINE: arrow_texts(bodies), ROW: arrow_positions(events)})
    lines = spark.createDataFrame(table, f"{LINE} string, {ROW} bigint")
    return lines if len(bodies) <= SMALL_EVENTS else lines.persist()


class EventSource(Protocol):
    """The events of one stream, by position."""

    name: str
    folder: Path
    runs_replays: bool
    """Whether this stream also replays the rejects of its destination."""

    def dataset(self) -> tuple[str, str]:
        """OpenLineage namespace and name."""

    def identity(self) -> str:
        """A unique text of this source; empty while the source does not exist."""

    def oldest(self) -> int:
        """The first position that is stored."""

    def newest(self) -> int:
        """The position after the last event."""

    def read(self, first: int, end: int) -> Iterable[Commit]:
        """The events from one position up to another, without those that were removed."""

    def agreed(self, cursor: StreamCursor) -> int:
        """The position up to which the source has the events that the cursor is about."""
        return cursor.position

    def write_tail(self) -> None:
        """Writes the end position for `headwater status`; the gateway does so for a queue."""
        return

    def archive(self, cursor: StreamCursor, cursor_lock: threading.Lock) -> StreamArchive | None:
        """The archive of loaded events; None where the source itself keeps them."""
        return None

    def close(self) -> None:
        """Closes what reading has opened."""
        return


class QueueSource(EventSource):
    """The queue of a destination."""

    runs_replays = True

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

    def agreed(self, cursor: StreamCursor) -> int:
        return agreed_position(self.folder, cursor, min(cursor.position, self.newest()))

    def archive(self, cursor: StreamCursor, cursor_lock: threading.Lock) -> StreamArchive | None:
        return StreamArchive(self._settings, self.name, self.folder, cursor, cursor_lock)


class KafkaSource(EventSource):
    """A partition of a token's topic. Loaded events stay in the topic for its retention time."""

    def __init__(
        self,
        settings: Settings,
        destination: DestinationSettings,
        token_id: str,
        partition: int,
        runs_replays: bool,
    ) -> None:
        assert settings.events.kafka is not None
        self._kafka = settings.events.kafka
        self._topic = self._kafka.topic(token_id)
        self._partition = partition
        self._reader = TopicReader(self._kafka, self._topic, partition)
        self.runs_replays = runs_replays
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
            asked = admin.describe_topics(TopicCollection([self._topic]), request_timeout=REQUEST_SECONDS)
            topic_id = str(asked[self._topic].result(2 * REQUEST_SECONDS).topic_id)
        except (KafkaException, TimeoutError) as error:
            raise _unavailable(self._kafka, error) from error
        stream_folder(self.folder).mkdir(parents=True, exist_ok=True)
        return f"{topic_id}/{self._partition}"

    def oldest(self) -> int:
        return self._reader.oldest()

    def newest(self) -> int:
        return self._reader.newest()

    def read(self, first: int, end: int) -> Iterable[Commit]:
        return self._reader.read(first, end)

    def write_tail(self) -> None:
        (self.folder / "tail").write_bytes(tail_line(self._reader.known_end))

    def close(self) -> None:
        self._reader.close()


def kafka_sources(settings: Settings, destination: DestinationSettings) -> list[KafkaSource]:
    """A source for each partition of the existing topics that a destination wants; asks a broker."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    kafka = settings.events.kafka
    assert kafka is not None
    try:
        known: dict[str, Any] = AdminClient(client_config(kafka)).list_topics(timeout=REQUEST_SECONDS).topics
    except KafkaException as error:
        raise _unavailable(kafka, error) from error
    found: list[KafkaSource] = []
    for token in settings.tokens:
        if destination.wants(token.id) and kafka.topic(token.id) in known:
            for partition in sorted(known[kafka.topic(token.id)].partitions):
                found.append(KafkaSource(settings, destination, token.id, partition, runs_replays=not found))
    return found


def _unavailable(kafka: KafkaSettings, error: Exception) -> LogUnavailable:
    first = error.args[0] if error.args else error
    return LogUnavailable(f"Kafka at {kafka.servers} cannot be reached: {first}.")

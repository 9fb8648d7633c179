"""All stream destinations of one process."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from headwater.clock import Clock
from headwater.destinations.locks import load_locks
from headwater.errors import LogUnavailable
from headwater.log.files.archive import clean_archive
from headwater.log.files.incoming import finish_interrupted
from headwater.pipeline.modes import stream_destinations
from headwater.pipeline.spark import compiled_classes as jvm
from headwater.pipeline.spark.log_source import register
from headwater.pipeline.spark.session import require_running
from headwater.pipeline.steps.stage import Staging
from headwater.pipeline.stream.sources import Feed, QueueFeed, topic_feeds
from headwater.pipeline.stream.stream import Stream
from headwater.settings import DestinationSettings, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Streams"]

log = logging.getLogger(__name__)

CLEAN_SECONDS = 3600.0
LOOK_SECONDS = 30.0
FIRST_LOOK_SECONDS = 2.0


class Streams:
    """Starts a stream for each destination; each lives and fails by itself (G7)."""

    def __init__(self, settings: Settings, spark: SparkSession, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._spark = spark
        finish_interrupted(settings.events_dir)
        register(spark)
        jvm.prepare(spark)  # before a query begins: it takes the session's functions along
        self._staging = Staging(settings.staging_dir, settings.pipeline.staging_url)
        self._locks = load_locks(settings.pipeline.lock, settings.locks_dir)
        self._clock = clock
        self._turns = {each.id: threading.Lock() for each in stream_destinations(settings)}
        self._look_at = self._cleaned_at = 0.0
        self.streams: dict[str, Stream] = {}
        if settings.events.kafka is None:
            for each in stream_destinations(settings):
                self._add(each, QueueFeed(settings, each))

    def _add(self, destination: DestinationSettings, feed: Feed) -> Stream:
        made = self.streams[feed.name] = Stream(
            self._settings,
            destination,
            self._spark,
            self._staging,
            self._locks,
            feed=feed,
            busy=self._turns[destination.id],
            clock=self._clock,
        )
        return made

    def start(self) -> None:
        for stream in self.streams.values():
            stream.start()
        self._look()

    def _look(self) -> None:
        """Start streams of partitions that are new, where Kafka is the log."""
        if self._settings.events.kafka is None or time.monotonic() < self._look_at:
            return
        try:
            for destination in stream_destinations(self._settings):
                for feed in topic_feeds(self._settings, destination):
                    if feed.name not in self.streams:
                        self._add(destination, feed).start()
        except LogUnavailable as error:
            log.error("%s It is asked again.", error.text)
        self._look_at = time.monotonic() + (LOOK_SECONDS if self.streams else FIRST_LOOK_SECONDS)

    def tend(self) -> None:
        """Now and then: remove what is too old from the archive. SparkGone if the JVM is gone."""
        require_running(self._spark)
        self._look()
        if time.monotonic() - self._cleaned_at >= CLEAN_SECONDS or not self._cleaned_at:
            self._cleaned_at = time.monotonic()
            clean_archive(self._settings.events_dir, self._settings.events.archive_days, time.time())

    def close(self) -> None:
        """End all after their micro-batches under way."""
        for stream in self.streams.values():
            stream.stop()
        for stream in self.streams.values():
            if stream.is_alive:
                stream.join()
        self._staging.close()

    def __enter__(self) -> Streams:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

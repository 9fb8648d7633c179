"""All stream destinations of one process."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from headwater.clock import Clock
from headwater.destinations.locks import load_locks
from headwater.errors import LogUnavailable
from headwater.log.files.archive import clean_archive
from headwater.log.files.incoming import finish_interrupted
from headwater.pipeline.spark import compiled_classes
from headwater.pipeline.spark.session import require_running
from headwater.pipeline.spark.storage import Staging
from headwater.pipeline.stream.sources import EventSource, QueueSource, kafka_sources
from headwater.pipeline.stream.stream import Stream
from headwater.settings import DestinationSettings, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

CLEAN_SECONDS = 3600.0
FIND_SECONDS = 30.0
FIRST_FIND_SECONDS = 2.0


class Streams:
    """Starts a stream for each destination; a failure of one does not affect the others (G7)."""

    def __init__(self, settings: Settings, spark: SparkSession, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._destinations = [each for each in settings.destinations if each.is_stream]
        self._spark = spark
        finish_interrupted(settings.events_dir)
        compiled_classes.prepare(spark)
        self._staging = Staging(settings.staging_dir, settings.pipeline.staging_url)
        self._locks = load_locks(settings.pipeline.lock, settings.locks_dir)
        self._clock = clock
        self._load_locks = {each.id: threading.Lock() for each in self._destinations}
        self._find_at = self._cleaned_at = 0.0
        self.streams: dict[str, Stream] = {}
        if settings.events.kafka is None:
            for each in self._destinations:
                self._add(each, QueueSource(settings, each))

    def _add(self, destination: DestinationSettings, source: EventSource) -> Stream:
        made = self.streams[source.name] = Stream(
            self._settings,
            destination,
            self._spark,
            self._staging,
            self._locks,
            source=source,
            load_lock=self._load_locks[destination.id],
            clock=self._clock,
        )
        return made

    def start(self) -> None:
        for stream in self.streams.values():
            stream.start()
        self._find_sources()

    def _find_sources(self) -> None:
        """Starts streams for new partitions, where Kafka is the log."""
        if self._settings.events.kafka is None or time.monotonic() < self._find_at:
            return
        try:
            for destination in self._destinations:
                for source in kafka_sources(self._settings, destination):
                    if source.name not in self.streams:
                        self._add(destination, source).start()
        except LogUnavailable as error:
            logger.error("%s The request is repeated.", error.text)
        self._find_at = time.monotonic() + (FIND_SECONDS if self.streams else FIRST_FIND_SECONDS)

    def tend(self) -> None:
        """Finds new sources and cleans the archive when due; raises SparkGone if the JVM has ended."""
        require_running(self._spark)
        self._find_sources()
        if time.monotonic() - self._cleaned_at >= CLEAN_SECONDS or not self._cleaned_at:
            self._cleaned_at = time.monotonic()
            clean_archive(self._settings.events_dir, self._settings.events.archive_days)

    def close(self) -> None:
        """Ends all streams after their loads under way."""
        for stream in self.streams.values():
            stream.stop()
        for stream in self.streams.values():
            if stream.is_alive:
                stream.join()
        self._staging.close()

    def __enter__(self) -> Streams:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""All stream destinations of one process."""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import TYPE_CHECKING

from headwater.clock import Clock
from headwater.log.incoming import clean_archive, settle
from headwater.pipeline import jvm
from headwater.pipeline.java import SparkUnavailable
from headwater.pipeline.modes import stream_destinations
from headwater.pipeline.queue_source import register
from headwater.pipeline.stage import Staging
from headwater.pipeline.stream import Stream
from headwater.settings import Settings
from headwater.warehouse.locks import load_locks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Streams"]

log = logging.getLogger(__name__)

CLEAN_SECONDS = 3600.0


class Streams:
    """Starts a stream for each destination; each lives and fails by itself (G7)."""

    def __init__(self, settings: Settings, spark: SparkSession, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._spark = spark
        settle(settings.events_dir)
        register(spark)
        jvm.prepare(spark)  # before a query begins: it takes the session's functions along
        self._staging = Staging(settings.staging_dir, settings.pipeline.staging_url)
        locks = load_locks(settings.pipeline.lock, settings.locks_dir)
        self.streams = {
            each.id: Stream(settings, each, spark, self._staging, locks, clock=clock)
            for each in stream_destinations(settings)
        }
        self._cleaned_at = 0.0

    def start(self) -> None:
        for stream in self.streams.values():
            stream.start()

    def tend(self) -> None:
        """Now and then: remove what is too old from the archive. SparkUnavailable if the JVM is gone."""
        try:
            is_gone = bool(self._spark.sparkContext._jsc.sc().isStopped())
        except Exception as error:
            raise SparkUnavailable(f"Spark's JVM is gone: {error}.", hint="Start it again.") from error
        if is_gone:
            raise SparkUnavailable("Spark has stopped.", hint="Start it again.")
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

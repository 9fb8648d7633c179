"""Loads events that wait where the settings put no new ones: a destination has another mode, or Kafka is new.

Files of a destination that is in stream mode now are loaded as in batch mode; the queue of one that left
stream mode is loaded as in stream mode. So no event is passed over (G3), and none is stored twice (G5).
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import LogError
from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import unprocessed
from headwater.log.orphans import has_left_over_files, left_over_queues, waits_for
from headwater.log.streams import Queues
from headwater.pipeline.batch.cycle import run_cycle
from headwater.pipeline.stream.streams import Streams
from headwater.settings import DestinationSettings, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

RETRY_SECONDS = 60.0
POLL_SECONDS = 0.05


def load_left_over_queues(settings: Settings, spark: SparkSession, stopping: threading.Event) -> None:
    """Load what waits in queues that no stream follows, before newer events of their destinations.

    Ends when they are empty, or a destination cannot be reached: the next call continues.
    """
    if not (left := left_over_queues(settings)):
        return
    ids = ", ".join(each.id for each in left)
    logger.info("Loading what waits in the queues of %s, which no stream follows any more.", ids)
    wanted = [msgspec.structs.replace(each, mode="stream") for each in left]
    try:
        # as the gateway does at its start: it finds the end of each queue, and removes what is loaded
        queues = Queues(settings.events_dir, wanted, settings.log)
    except LogError as error:
        logger.error("The queues of %s cannot be loaded: %s Restart the server.", ids, error.text)
        return
    try:
        _stream(settings, spark, wanted, stopping)
        queues.collect_loaded()
    finally:
        queues.close()


def _stream(
    settings: Settings, spark: SparkSession, wanted: list[DestinationSettings], stopping: threading.Event
) -> None:
    events = msgspec.structs.replace(settings.events, kafka=None)
    here = msgspec.structs.replace(settings, events=events, destinations=tuple(wanted))
    with Streams(here, spark) as streams:
        while not stopping.wait(POLL_SECONDS):
            if all(each.is_done or each.failed or not each.is_alive for each in streams.streams.values()):
                return


class LeftOvers:
    """What `pipeline stream` loads beside its streams. Used by one thread."""

    def __init__(self, settings: Settings, spark: SparkSession, stopping: threading.Event) -> None:
        self._settings = settings
        self._spark = spark
        self._stopping = stopping
        self._next_at = 0.0

    def load(self) -> None:
        """Load what waits; after a failure again a minute later."""
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + RETRY_SECONDS
        if has_left_over_files(self._settings):
            ids = {each.id for each in self._settings.destinations if not each.is_batch}
            files = [
                file
                for file in unprocessed(self._settings.events_dir)
                if file.token_id and ids & waits_for(FileStatus.load(file))
            ]
            logger.info("Loading %d event file(s) of destinations that were in batch mode.", len(files))
            run_cycle(self._settings, self._spark, files=files)
        if self._settings.events.kafka is not None:
            load_left_over_queues(self._settings, self._spark, self._stopping)

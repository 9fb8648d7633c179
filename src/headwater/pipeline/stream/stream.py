"""Stream mode (seed 003): each destination is served from its queue, as soon as events are there.

For each destination a thread takes what has come to its queue since it last looked, a micro-batch, through
the steps of batch mode. A destination that is away holds back its own events and nothing else (G7).

Positions are kept in one place, the cursor beside the queue, which is fsynced. A micro-batch is written down
before it is loaded; one that a crash interrupted is loaded first, with the same positions and so under the
same name (G5). Where Kafka is the log, each partition of a topic is such a queue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from headwater.clock import Clock, SystemClock
from headwater.crash_points import crash_point
from headwater.destinations.base import load_destination
from headwater.destinations.locks import Locks
from headwater.durable_files import FolderLock
from headwater.errors import DestinationUnavailable, HeadwaterError, LockTaken
from headwater.log.streams.stream_cursor import Planned, StreamCursor, stream_folder
from headwater.pipeline.batch.cycle import run_cycle
from headwater.pipeline.lineage_hints import reading
from headwater.pipeline.modes import replays
from headwater.pipeline.steps.read_lines import LINE
from headwater.pipeline.steps.stage import Staging
from headwater.pipeline.stream.micro_batch import MicroBatch, SparkInterrupted, StreamLoader
from headwater.pipeline.stream.position_range import Arrived, Stretch, ids_beyond
from headwater.pipeline.stream.sources import Archive, Feed, QueueFeed, near_lines, take
from headwater.settings import DestinationSettings, Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Stream"]

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.5
LOOK_SECONDS = 0.2
DUTY_SECONDS = 2.0
IDLE_SECONDS = 3.0
COMPLAIN_SECONDS = 60.0
ANY_BYTES = 1 << 62


class _Stopping(Exception):
    """Raised through a micro-batch that waits, when the stream is to end."""


class Stream:
    """One destination. `start`, then `stop` and `join`: a micro-batch under way is finished first."""

    def __init__(
        self,
        settings: Settings,
        destination: DestinationSettings,
        spark: SparkSession,
        staging: Staging,
        locks: Locks,
        *,
        feed: Feed | None = None,
        busy: threading.Lock | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`busy` is one for all streams of a destination, which then take turns."""
        self.id = destination.id
        self._feed: Feed = feed or QueueFeed(settings, destination)
        self._settings = settings
        self._spark = spark
        self._staging = staging
        self._clock = clock or SystemClock()
        self._queue = self._feed.folder
        self._destination = load_destination(destination)
        keys = [token.client_secret for token in settings.tokens if destination.wants(token.id)]
        self._loader = StreamLoader(
            destination,
            settings.pipeline,
            self._destination,
            locks,
            staging,
            browser_key="\n".join(key for key in keys if key),
        )
        self._is_connected = False
        self._arrived: Arrived | None = None
        self._cursor = StreamCursor(queue="", position=0, archived=0)
        self._guard = threading.Lock()  # the cursor: the query's thread and ours change it
        self._busy = busy or threading.Lock()  # held while a micro-batch is worked on
        self._stopping = threading.Event()
        self._active_at = self._duty_at = self._complained_at = 0.0
        self._thread = threading.Thread(target=self._run, name=f"stream-{self._feed.name}", daemon=True)

    @property
    def position(self) -> int:
        """Everything before it is loaded."""
        return self._cursor.position

    @property
    def batches(self) -> int:
        """Micro-batches since the queue was made."""
        return self._cursor.batches

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the micro-batch under way; one that waits for its destination ends at once."""
        self._stopping.set()

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def _run(self) -> None:
        """Go on whatever happens, after a pause that grows."""
        pause = FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._serve()
            except _Stopping:
                return
            except Exception as error:
                if self._stopping.is_set():
                    return
                log.error("destination %s: %s", self.id, _reason(error))
                self._note(_reason(error))
            if time.monotonic() - began > COMPLAIN_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            self._stopping.wait(pause)
            pause = min(2 * pause, self._settings.pipeline.stream.max_retry_seconds)

    def _serve(self) -> None:
        """Take the queue, finish what a crash interrupted, and follow the queue until told to stop."""
        identity = self._identity()
        lock = FolderLock(stream_folder(self._queue))
        try:
            self._cursor = StreamCursor.load(self._queue, identity, self._feed.oldest())
            self._arrived = None
            archive = self._feed.archive(self._cursor, self._guard)
            self._follow(archive)
            archive.run(self._clock.now())
        finally:
            self._disconnect()
            self._feed.close()
            lock.release()

    def _identity(self) -> str:
        while not (identity := self._feed.identity()):
            if self._stopping.wait(LOOK_SECONDS):  # the gateway makes the queue
                raise _Stopping
        return identity

    def _follow(self, archive: Archive) -> None:
        """Micro-batches in one thread, and what is not urgent in this one, until told to stop."""
        loading = _Loading(target=self._micro_batches, name=f"load-{self._feed.name}", daemon=True)
        loading.start()
        while loading.is_alive() and not self._stopping.wait(LOOK_SECONDS):
            self._tend(archive)
        loading.join()
        if loading.error is not None and not isinstance(loading.error, _Stopping):
            raise loading.error

    def _tend(self, archive: Archive) -> None:
        """What is not urgent, now and then. Nothing of it may end the query."""
        now = time.monotonic()
        if now - self._duty_at < DUTY_SECONDS:
            return
        self._duty_at = now
        try:
            self._duties(archive, now)
        except Exception as error:
            log.error("destination %s: %s", self.id, _reason(error))

    def _duties(self, archive: Archive, now: float) -> None:
        """The archive, replays, letting go of a destination that has nothing to do."""
        self._feed.note_end()
        if archive.is_due(self._clock.now()):
            archive.run(self._clock.now())
        if self._feed.leads and (files := replays(self._settings, self.id)):
            run_cycle(self._settings, self._spark, clock=self._clock, files=files)
        # An embedded database is one process's at a time; between events others may have it.
        if now - self._active_at > IDLE_SECONDS and self._busy.acquire(blocking=False):
            try:
                self._disconnect()
            finally:
                self._busy.release()

    # --- micro-batches, in the thread that loads -------------------------------------------------------

    def _micro_batches(self) -> None:
        stream = self._settings.pipeline.stream
        while not self._stopping.is_set():
            began = time.monotonic()
            first, planned = self._cursor.position, self._cursor.planned
            if planned is not None:
                log.info("%s: positions %d to %d again.", self.id, first, planned.end - 1)
            end = planned.end if planned else min(self._feed.newest(), first + stream.max_batch_events)
            if end > first:
                with self._busy:
                    # the bytes of a planned one are those that it was planned with, whatever is set now
                    most = ANY_BYTES if planned else stream.max_batch_bytes
                    events, end = take(self._feed.read(first, end), end, most)
                    with reading(self._spark, self._feed.dataset(), LINE):
                        self._load(near_lines(self._spark, events), end)
                    self._active_at = time.monotonic()
            self._stopping.wait(began + stream.trigger_seconds - time.monotonic())

    def _load(self, lines: DataFrame, end: int) -> None:
        cursor = self._cursor
        if end <= cursor.position:
            return
        if cursor.planned is None:
            cursor.planned = Planned(end)
            self._save()
            crash_point("stream.after_plan")
        if self._arrived is None:
            beyond = ids_beyond(cursor.queue, cursor.position)
            self._arrived = Arrived(self._patiently(lambda: self._destination.loaded_between(*beyond)))
        stretch = Stretch(cursor.queue, self.id, cursor.position, end)
        batch = MicroBatch(
            self._loader,
            stretch,
            cursor.planned,
            events_dir=self._settings.events_dir,
            now=self._clock.now(),
            persist=self._save,
            patiently=self._patiently,
            arrived=self._arrived,
        )
        try:
            result = batch.run(lines)
        finally:
            lines.unpersist()
        crash_point("stream.before_commit")
        counted = result.rows + result.skipped + result.rejected
        if missing := end - stretch.first - counted:
            log.error("%s: %d event(s) could not be read from the queue.", stretch.name, missing)
        with self._guard:
            cursor.position, cursor.planned, cursor.error = end, None, ""
            cursor.at = self._clock.now()
            cursor.batches += 1
            cursor.rows += result.rows
            cursor.skipped += result.skipped
            cursor.rejected += result.rejected
            cursor.unmapped += result.unmapped
            cursor.missing += missing
            cursor.save(self._queue)
        crash_point("stream.after_commit")

    def _save(self) -> None:
        with self._guard:
            self._cursor.save(self._queue)

    def _patiently(self, function: Callable[[], T]) -> T:
        """Try until the destination is there, and Spark's workers are, with pauses that grow."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                if not self._is_connected:
                    self._destination.connect()
                    self._is_connected = True
                return function()
            except (DestinationUnavailable, LockTaken, SparkInterrupted) as error:
                self._complain(error)
                self._note(_reason(error))
                self._disconnect()
                if self._stopping.wait(pause):
                    raise _Stopping from error
                pause = min(2 * pause, self._settings.pipeline.stream.max_retry_seconds)

    def _disconnect(self) -> None:
        self._is_connected = False
        self._destination.close()

    def _complain(self, error: HeadwaterError) -> None:
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_SECONDS:
            self._complained_at = now
            log.error("%s; it is tried again, and its events wait in %s.", error.text, self._queue)

    def _note(self, reason: str) -> None:
        """For `headwater status`: why it does not move."""
        if self._cursor.queue and self._cursor.error != reason:
            try:
                with self._guard:
                    self._cursor.error = reason
                    self._cursor.save(self._queue)
            except OSError as error:
                log.error("destination %s: its state cannot be written: %s", self.id, error)


class _Loading(threading.Thread):
    """A thread that keeps the error that ended it."""

    error: Exception | None = None

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            self.error = error


def _reason(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text if isinstance(error, HeadwaterError) else text.splitlines()[0]

"""Stream mode: the events of a queue are loaded into one destination as soon as they are there.

A thread plans a range of positions, loads it, and commits the cursor beside the queue. The plan is fsynced
before the load; after a crash the same range is loaded first, with the same load ids (G5). A destination that
is unreachable holds back its own events only (G7). Where Kafka is the log, each partition of a topic is a
queue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from headwater.clock import Clock, SystemClock
from headwater.destinations.base import load_destination
from headwater.destinations.locks import Locks
from headwater.errors import DestinationUnavailable, HeadwaterError, LockTaken, TableBusy, WarehouseError
from headwater.log.files.layout import IncomingFile, unprocessed
from headwater.log.streams import StreamCursor, stream_folder
from headwater.pipeline.batch.cycle import run_cycle
from headwater.pipeline.lineage_hints import job_group, reading_from
from headwater.pipeline.load import Loader
from headwater.pipeline.load_report import reason_of
from headwater.pipeline.rejects import RejectWriter
from headwater.pipeline.spark.storage import Staging
from headwater.pipeline.steps.enrich.lookup_join import Lookups
from headwater.pipeline.steps.fit_table import TablePatcher
from headwater.pipeline.steps.read_lines import LINE
from headwater.pipeline.steps.route import Router
from headwater.pipeline.steps.stage import DriverStager
from headwater.pipeline.steps.table_rules import TableRules
from headwater.pipeline.steps.template import Template
from headwater.pipeline.stream.archive import StreamArchive
from headwater.pipeline.stream.next_range import KnownLoads, NextRange, next_range, plan, step_back
from headwater.pipeline.stream.range_load import RangeLoad
from headwater.pipeline.stream.sources import EventSource, lines_in_driver
from headwater.settings import DestinationSettings, Settings
from headwater.system.crash_points import crash_point
from headwater.system.durable_files import FolderLock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.5
LOOK_SECONDS = 0.2
HOUSEKEEPING_SECONDS = 2.0
IDLE_SECONDS = 3.0
FOLDING_SECONDS, FOLDED_DAYS = 86_400.0, 7
OUTAGE_LOG_SECONDS = 60.0


class _Stopping(Exception):
    """Ends a load that waits for its destination, when the stream stops."""


class Stream:
    """One destination and one source. `start`, then `stop` and `join`: a load under way is finished first.

    `load_lock` is shared by all streams of a destination, which load in turns.
    """

    def __init__(
        self,
        settings: Settings,
        destination: DestinationSettings,
        spark: SparkSession,
        staging: Staging,
        locks: Locks,
        *,
        source: EventSource,
        load_lock: threading.Lock,
        clock: Clock | None = None,
    ) -> None:
        self.id = destination.id
        self._source = source
        self._settings = settings
        self._spark = spark
        self._clock = clock or SystemClock()
        self._queue = source.folder
        self._destination = load_destination(destination)
        keys = [token.client_secret for token in settings.tokens if destination.wants(token.id)]
        browser_keys = "\n".join(key for key in keys if key)
        self._template = destination.table_name_template

        def router(template: str) -> Router:
            return Router(
                Template(template),
                max_identifier_length=self._destination.capabilities.max_identifier_length,
                browser_keys=browser_keys,
                rules=TableRules.of(destination),
            )

        self._router = router(self._template)
        self._router_of = router
        self._loader = Loader(
            destination,
            self._destination,
            lookups=Lookups(destination.enrichment, settings.pipeline, browser_keys=browser_keys),
            tables=TablePatcher(destination, self._destination, locks),
            stager=DriverStager(),
            staging=staging,
            rejects=RejectWriter(settings.events_dir, destination.id, self._clock),
        )
        self.failed = False  # ever since it was started
        self._is_connected = False
        self._known_loads = KnownLoads(self._destination.loaded_between)
        self._cursor = StreamCursor(queue="", position=0, archived=0)
        self._cursor_lock = threading.Lock()  # the loading thread and the archive change the cursor
        self._load_lock = load_lock
        self._stopping = threading.Event()
        self._active_at = self._housekeeping_at = self._outage_logged_at = 0.0
        self._folded_at = -FOLDING_SECONDS
        self._thread = threading.Thread(target=self._run, name=f"stream-{source.name}", daemon=True)

    @property
    def batches(self) -> int:
        """The number of loaded ranges since the queue was created."""
        return self._cursor.batches

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_done(self) -> bool:
        """Whether the source has no event that is not loaded."""
        return bool(self._cursor.queue) and self._cursor.position >= self._source.newest()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends after the load under way; a load that waits for its destination ends at once."""
        self._stopping.set()

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def _run(self) -> None:
        """Serves the queue until stopped; after an error, again after a pause that grows."""
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
                logger.error("destination %s: %s", self.id, reason_of(error))
                self._record_error(reason_of(error))
            if time.monotonic() - began > OUTAGE_LOG_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            self._stopping.wait(pause)
            pause = min(2 * pause, self._settings.pipeline.stream.max_retry_seconds)

    def _serve(self) -> None:
        """Locks the queue and loads its events until stopped; an interrupted range comes first."""
        identity = self._identity()
        lock = FolderLock(stream_folder(self._queue))
        try:
            self._cursor = StreamCursor.load(self._queue, identity, self._source.oldest())
            self._known_loads.forget()
            if step_back(self._source, self._cursor):
                self._save()
            archive = self._source.archive(self._cursor, self._cursor_lock)
            self._follow(archive)
            if archive is not None:
                archive.run(self._clock.now())
        finally:
            self._disconnect()
            self._source.close()
            lock.release()

    def _identity(self) -> str:
        while not (identity := self._source.identity()):
            if self._stopping.wait(LOOK_SECONDS):  # the gateway creates the queue
                raise _Stopping
        return identity

    def _follow(self, archive: StreamArchive | None) -> None:
        """Loads in one thread, and runs housekeeping in this one, until stopped."""
        loading = _LoadingThread(target=self._load_ranges, name=f"load-{self._source.name}", daemon=True)
        loading.start()
        while loading.is_alive() and not self._stopping.wait(LOOK_SECONDS):
            self._housekeeping(archive)
        loading.join()
        if loading.error is not None and not isinstance(loading.error, _Stopping):
            raise loading.error

    def _housekeeping(self, archive: StreamArchive | None) -> None:
        """Runs every two seconds. Errors are logged and do not stop the stream."""
        now = time.monotonic()
        if now - self._housekeeping_at < HOUSEKEEPING_SECONDS:
            return
        self._housekeeping_at = now
        try:
            self._source.write_tail()
            if archive is not None and archive.is_due(self._clock.now()):
                archive.run(self._clock.now())
            if self._source.runs_replays and (files := self._replays()):
                run_cycle(self._settings, self._spark, clock=self._clock, files=files)
            # One process at a time may open an embedded database: release it while there are no events.
            if now - self._active_at > IDLE_SECONDS and self._load_lock.acquire(blocking=False):
                try:
                    self._disconnect()
                finally:
                    self._load_lock.release()
        except Exception as error:
            logger.error("destination %s: %s", self.id, reason_of(error))

    def _replays(self) -> list[IncomingFile]:
        """The rejects of the destination that are to be loaded again."""
        return [file for file in unprocessed(self._settings.events_dir) if file.destination_id == self.id]

    def _load_ranges(self) -> None:
        stream = self._settings.pipeline.stream
        while not self._stopping.is_set():
            began = time.monotonic()
            if self._cursor.planned is not None or self._source.newest() > self._cursor.position:
                with self._load_lock:
                    found = next_range(
                        self._source, self._cursor, stream.max_batch_events, stream.max_batch_bytes
                    )
                    if found is not None:
                        with reading_from(self._spark, self._source.dataset(), LINE):
                            self._load(lines_in_driver(self._spark, found.events), found)
                        self._fold_ledger()
                        self._active_at = time.monotonic()
            self._stopping.wait(began + stream.trigger_seconds - time.monotonic())

    def _load(self, lines: DataFrame, found: NextRange) -> None:
        cursor, end = self._cursor, found.end
        if cursor.planned is None:
            plan(cursor, found, self._template)
            self._save()
            crash_point("stream.after_plan")
        positions = found.positions(cursor, self.id)
        planned = plan(cursor, found)
        is_same = planned.template in ("", self._template)
        range_load = RangeLoad(
            self._loader,
            # some of its tables may be loaded: under another template an event could get a second one
            self._router if is_same else self._router_of(planned.template),
            positions=positions,
            plan=planned,
            loaded=self._retry_until_available(lambda: self._known_loads.of(positions)),
            save_plan=self._save,
            retry=self._retry_until_available,
        )
        try:
            with job_group(self._spark, f"{positions.name} {positions.first} to {end - 1}"):
                result = range_load.run(lines)
        finally:
            lines.unpersist()
        crash_point("stream.before_commit")
        counted = result.rows + result.skipped + result.rejected
        if missing := end - positions.first - counted:
            logger.error("%s: %d event(s) could not be read from the queue.", positions.name, missing)
        with self._cursor_lock:
            cursor.advance(end, found.epoch)
            cursor.error = ""
            cursor.at = self._clock.now()
            cursor.batches += 1
            cursor.rows += result.rows
            cursor.skipped += result.skipped
            cursor.rejected += result.rejected
            cursor.unmapped += result.unmapped
            if missing:
                cursor.missing += missing
                cursor.missing_at = cursor.at
            cursor.save(self._queue)
        crash_point("stream.after_commit")

    def _fold_ledger(self) -> None:
        """Once a day. An error does not stop the stream: the ledger is only larger than it need be."""
        if time.monotonic() - self._folded_at < FOLDING_SECONDS:
            return
        self._folded_at = time.monotonic()
        try:
            fewer = self._destination.fold_ledger(FOLDED_DAYS)
        except WarehouseError as error:
            logger.warning("destination %s: its ledger is not folded: %s", self.id, error.text)
        else:
            if fewer:
                self._known_loads.forget()
                logger.info("destination %s: its ledger has %d entries fewer.", self.id, fewer)

    def _save(self) -> None:
        with self._cursor_lock:
            self._cursor.save(self._queue)

    def _retry_until_available(self, function: Callable[[], T]) -> T:
        """Repeats the function until the destination is reachable, with pauses that grow."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                if not self._is_connected:
                    self._destination.connect()
                    self._is_connected = True
                return function()
            except (DestinationUnavailable, LockTaken, TableBusy) as error:
                self._log_outage(error)
                self._record_error(reason_of(error))
                self._disconnect()
                if self._stopping.wait(pause):
                    raise _Stopping from error
                pause = min(2 * pause, self._settings.pipeline.stream.max_retry_seconds)

    def _disconnect(self) -> None:
        self._is_connected = False
        self._known_loads.forget()
        self._destination.close()

    def _log_outage(self, error: HeadwaterError) -> None:
        now = time.monotonic()
        if now - self._outage_logged_at >= OUTAGE_LOG_SECONDS:
            self._outage_logged_at = now
            logger.error("%s; the load is repeated, and the events stay in %s.", error.text, self._queue)

    def _record_error(self, reason: str) -> None:
        """Records the error in the cursor, for `headwater status`."""
        self.failed = True
        if self._cursor.queue and self._cursor.error != reason:
            try:
                with self._cursor_lock:
                    self._cursor.error = reason
                    self._cursor.save(self._queue)
            except OSError as error:
                logger.error("destination %s: its state cannot be written: %s", self.id, error)


class _LoadingThread(threading.Thread):
    """A thread that keeps the error that ended it."""

    error: Exception | None = None

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            self.error = error

"""Users' own streaming queries write through us: `df.writeStream.foreachBatch(into(…))`.

A micro-batch takes the same steps as a range of a queue: route, parse, enrich, map, type, patch, stage, load.
Its load id is made of the query's id and the batch's id, both of which Spark keeps in the checkpoint: the ids
of a queue, with batches as positions. So a batch that Spark repeats after a crash is stored once (G5).

Rows that a destination refuses are searched by halves. Spark promises the same rows in a repeated batch, not
their order; so a half is a range of the sorted hashes of the lines.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headwater.clock import SystemClock
from headwater.destinations.base import Load, load_destination
from headwater.destinations.locks import load_locks
from headwater.destinations.table import ROW
from headwater.errors import DestinationUnavailable, LockTaken, SettingsError, TableBusy
from headwater.pipeline.find_bad_rows import (
    BadRowSearch,
    PieceOrigin,
    is_about_rows,
    load_piece,
    reject_piece,
)
from headwater.pipeline.load import Loader
from headwater.pipeline.load_report import Outcome
from headwater.pipeline.rejects import RejectWriter
from headwater.pipeline.spark import compiled_classes
from headwater.pipeline.spark.cluster_packages import is_cluster
from headwater.pipeline.spark.java_runtime import SparkUnavailable
from headwater.pipeline.spark.session import own_sql_settings
from headwater.pipeline.spark.storage import Staging
from headwater.pipeline.steps.enrich.lookup_join import Lookups
from headwater.pipeline.steps.field_tree import BatchFields
from headwater.pipeline.steps.fit_table import TablePatcher
from headwater.pipeline.steps.read_lines import LINE
from headwater.pipeline.steps.route import Router
from headwater.pipeline.steps.stage import DriverStager, SparkStager
from headwater.pipeline.steps.table_rules import TableRules
from headwater.pipeline.steps.template import Template
from headwater.pipeline.stream.position_range import LoadedRanges, PositionRange, ledger_id_range
from headwater.pipeline.stream.sources import SMALL_EVENTS
from headwater.settings import Settings, load
from headwater.system.crash_points import crash_point

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_SECONDS = 600.0
"""A destination that is unreachable for longer fails the query, which Spark's user restarts."""
FIRST_PAUSE_SECONDS = 0.5
QUERY_ID = "sql.streaming.queryId"
_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_HASH = f"xxhash64({LINE})"


@dataclass(frozen=True)
class _BatchRange(PositionRange):
    """Batches of a query, or parts of one batch, as positions."""

    label: str = ""

    @property
    def name(self) -> str:
        return self.label


_ALL_ROWS = PositionRange("", "", 0, 2**63 - 1)


class MicroBatchLoader:
    """What `foreachBatch` calls: loads a micro-batch into all its tables, once."""

    def __init__(self, destination: str, settings: Settings, column: str | None) -> None:
        chosen = next((each for each in settings.destinations if each.id == destination), None)
        if chosen is None:
            known = ", ".join(each.id for each in settings.destinations) or "none"
            raise SettingsError([f"no destination has the id {destination}; known: {known}"])
        self._settings, self._chosen, self._column = settings, chosen, column
        self._destination = load_destination(chosen)
        keys = [token.client_secret for token in settings.tokens if chosen.wants(token.id)]
        self._browser_keys = "\n".join(key for key in keys if key)
        self._router = Router(
            Template(chosen.table_name_template),
            max_identifier_length=self._destination.capabilities.max_identifier_length,
            browser_keys=self._browser_keys,
            rules=TableRules.of(chosen),
        )
        self._lock = threading.Lock()
        self._staging: Staging | None = None
        self._is_connected = False
        self._is_fresh = False  # the batch before is done, so nothing of this one can be stored
        self._done = ("", -1)  # the query and the batch of the last call that did not fail

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Loads a micro-batch; `foreachBatch` passes both. Returns when all its tables have it."""
        query = _query_of(frame)
        with self._lock, own_sql_settings(frame.sparkSession, self._settings.pipeline):
            self._is_fresh, self._done = self._done == (query, batch_id - 1), ("", -1)
            lines = self._lines(frame).persist()
            try:
                count = lines.count()  # the source is read once: all that follows reads the copy
                if count:
                    self._load(lines, count, query, batch_id)
            finally:
                lines.unpersist()
            self._done = (query, batch_id)

    def close(self) -> None:
        """Releases connection and staging folder; the next call opens them again."""
        with self._lock:
            self._disconnect()
            if self._staging is not None:
                self._staging.close()
                self._staging = None

    def _lines(self, frame: DataFrame) -> DataFrame:
        """The rows as JSON texts, each with a number."""
        from pyspark.sql import functions

        if self._column is not None:
            text = functions.col(f"`{self._column}`").cast("string")
        else:
            # PySpark's annotations know no options with the columns of a struct
            text = functions.to_json(functions.struct("*"), _TIMES)
        rows = frame.select(text.alias(LINE)).where(f"{LINE} IS NOT NULL")
        return rows.select(LINE, functions.monotonically_increasing_id().alias(ROW))

    def _load(self, lines: DataFrame, count: int, query: str, batch_id: int) -> None:
        spark = lines.sparkSession
        if is_cluster(spark.sparkContext.master or "") and not self._settings.pipeline.staging_url:
            raise SettingsError(["on a cluster `pipeline.staging_url` is needed: executors stage rows there"])
        compiled_classes.prepare(spark)
        if self._staging is None:
            self._staging = Staging(self._settings.staging_dir, self._settings.pipeline.staging_url)
        loader = Loader(
            self._chosen,
            self._destination,
            lookups=Lookups(
                self._chosen.enrichment, self._settings.pipeline, browser_keys=self._browser_keys
            ),
            tables=TablePatcher(
                self._chosen,
                self._destination,
                load_locks(self._settings.pipeline.lock, self._settings.locks_dir),
            ),
            stager=DriverStager() if count <= SMALL_EVENTS else SparkStager(self._staging),
            staging=self._staging,
            rejects=RejectWriter(self._settings.events_dir, self._chosen.id, SystemClock()),
        )
        label = f"query.dst={self._chosen.id}/{query[:8]}/{batch_id}"
        whole = _BatchRange(query, self._chosen.id, batch_id, batch_id + 1, label=label)
        parts = replace(whole, queue=f"{query}/{batch_id}", first=0, end=0)
        result = Outcome()
        stored = self._retry_until_available(lambda: self._stored_parts(parts))
        routed = self._router.route(lines)
        for table in routed.tables:
            load = _TableLoad(loader, table, routed.lines_for(table), whole, parts, stored, result)
            load.run(routed.fields.get(table), self._retry_until_available)
        if routed.rejected:
            loader.rejects.write(routed.rejects(), label)
            result.rejected += routed.rejected
        result.skipped += routed.skipped
        crash_point("foreach_batch.loaded")
        logger.info(
            "%s: %d rows, %d rejects, %d skipped.", label, result.rows, result.rejected, result.skipped
        )

    def _stored_parts(self, parts: PositionRange) -> LoadedRanges:
        """The parts of this batch that a search had stored when its process died."""
        if self._is_fresh:
            return LoadedRanges()
        return LoadedRanges(self._destination.loaded_between(*ledger_id_range(parts.key, -1)))

    def _retry_until_available(self, function: Callable[[], T]) -> T:
        """Repeats the function until the destination is reachable, within the patience."""
        pause, until = FIRST_PAUSE_SECONDS, time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                if not self._is_connected:
                    self._destination.connect()
                    self._is_connected = True
                return function()
            except (DestinationUnavailable, LockTaken, TableBusy) as error:
                self._disconnect()
                if time.monotonic() > until:
                    raise
                logger.error("%s; the micro-batch waits.", error.text)
                time.sleep(pause)
                pause = min(2 * pause, self._settings.pipeline.stream.max_retry_seconds)

    def _disconnect(self) -> None:
        self._is_connected = False
        self._destination.close()


@dataclass
class _TableLoad:
    """The lines of one table of a micro-batch."""

    loader: Loader
    table: str
    lines: DataFrame
    whole: PositionRange
    parts: PositionRange
    stored: LoadedRanges
    result: Outcome

    def run(self, fields: BatchFields | None, retry: Callable[[Callable[[], None]], None]) -> None:
        everything = replace(self.parts, end=_ALL_ROWS.end)
        if not self.stored.already_loaded(everything, self.table):
            known = [fields] if fields is not None else []
            try:
                retry(lambda: self._attempt(self.whole, self.lines, known.pop() if known else None))
                return
            except Exception as error:
                if not is_about_rows(error):
                    raise
                failure = error
        else:
            failure = None
        self._search(retry, failure)
        # the batch as a whole is in the ledger too: repeated, it stores nothing
        retry(self._enter_whole)

    def _attempt(self, piece: PositionRange, lines: DataFrame, fields: BatchFields | None) -> None:
        origin = PieceOrigin(piece.name, piece.load_id(self.table), self.result)
        load_piece(self.loader, self.table, origin, lines, fields)

    def _search(self, retry: Callable[[Callable[[], None]], None], failure: Exception | None) -> None:
        hashed = self.lines.selectExpr(f"{_HASH} AS hash").distinct().orderBy("hash")
        hashes = [row["hash"] for row in hashed.toLocalIterator()]
        every = replace(self.parts, end=len(hashes))

        def own(piece: PositionRange) -> DataFrame:
            return self.lines.where(f"{_HASH} BETWEEN {hashes[piece.first]}L AND {hashes[piece.end - 1]}L")

        def reject(piece: PositionRange, error: Exception) -> None:
            name, lines = self.whole.name, own(piece)
            self.result.rejected += reject_piece(self.loader, self.table, name, lines, _ALL_ROWS, error)

        def is_cut(piece: PositionRange) -> bool:
            if piece == every and failure is not None:
                return True  # refused as a whole
            found = self.stored.already_loaded(piece, self.table)
            is_whole = any(first <= piece.first and piece.end <= end for first, end in found)
            return bool(found) and not is_whole  # parts of it are stored, and the others are missing

        if len(hashes) == 1 and failure is not None:
            reject(every, failure)
            return
        search: BadRowSearch[PositionRange] = BadRowSearch(
            lambda piece: retry(lambda: self._attempt(piece, own(piece), None)),
            is_cut=is_cut,
            save_cut=lambda piece: crash_point("foreach_batch.after_cut"),
        )
        for piece, error in search.run(every):
            reject(piece, error)

    def _enter_whole(self) -> None:
        table = self.loader.destination.table(self.table)
        if table is not None:
            self.loader.destination.load(
                Load(id=self.whole.load_id(self.table), table=table, files=[], rows=0)
            )


def into(
    destination: str, settings: Settings | str | Path | None = None, *, column: str | None = None
) -> MicroBatchLoader:
    """A function for `foreachBatch` that loads micro-batches into the destination with this id.

    `settings` are the settings or the path of their file; the default is that of the command line. `column`
    names the column of JSON texts, such as Kafka's `value`; without it a row is an event with its columns as
    fields. Each batch is stored exactly once for as long as the query keeps its checkpoint (G5).
    """
    found = settings if isinstance(settings, Settings) else load(settings)
    return MicroBatchLoader(destination, found, column)


def _query_of(frame: DataFrame) -> str:
    """The id of the streaming query that calls; Spark keeps it in the checkpoint."""
    if not hasattr(frame, "_jdf"):
        raise SparkUnavailable(
            "foreachBatch of Spark Connect runs without a Spark context, which the pipeline needs.",
            hint="Run the query in a classic session: `SparkSession.builder.master(…)`, not `remote(…)`.",
        )
    query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if not query:
        raise SparkUnavailable(
            "this thread runs no streaming query, so the micro-batch has no id.",
            hint="Pass the function to `df.writeStream.foreachBatch(…)`; do not call it.",
        )
    return query

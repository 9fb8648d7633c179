"""Loads a part of an archived file, or all of it, by the numbers of its events, as streams load positions.

The ledger then knows which events of the file a destination has (G5), whatever times and tokens selected
them; they are left out when the file is loaded again. An event of the destination's own queue has the
position in the ledger that it had in the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from headwater.clock import SystemClock
from headwater.destinations.base import Destination, load_destination
from headwater.destinations.locks import load_locks
from headwater.log.files.file_status import FileStatus
from headwater.log.queue.commit_format import Commit
from headwater.log.streams import Planned
from headwater.pipeline.load import Loader, load_id
from headwater.pipeline.load_report import DestinationReport, FileReport, TableReport
from headwater.pipeline.rejects import RejectWriter
from headwater.pipeline.spark.storage import Staging
from headwater.pipeline.steps.enrich.lookup_join import Lookups
from headwater.pipeline.steps.fit_table import TablePatcher
from headwater.pipeline.steps.route import Router
from headwater.pipeline.steps.stage import DriverStager
from headwater.pipeline.steps.table_rules import TableRules
from headwater.pipeline.steps.template import Template
from headwater.pipeline.stream.position_range import LoadedRanges, PositionRange, ledger_id_range
from headwater.pipeline.stream.range_load import RangeLoad
from headwater.pipeline.stream.sources import lines_in_driver
from headwater.settings import DestinationSettings, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Place(NamedTuple):
    """Where an event is, as for no other event: the key of its source, and its number there."""

    key: str
    number: int
    epoch: int = 0


class Places:
    """Gives the events of an archived file their places, in the order of the lines."""

    def __init__(self, identity: str, status: FileStatus, *, is_own: bool, by_sender: bool) -> None:
        self._identity = identity
        self._queue, self._positions = status.positions if is_own else ("", [])
        self._by_sender = by_sender
        self._counts: dict[str, int] = {}
        self._line = 0

    def next(self, sender: str) -> Place:
        """The place of the next line, an event of this sender."""
        line, self._line = self._line, self._line + 1
        for first_line, position, epoch in reversed(self._positions):
            if first_line <= line:
                return Place(self._queue, position + line - first_line, epoch)
        # by sender, so that the events of some senders have no gaps between them
        key = f"{self._identity}/{sender}" if self._by_sender else self._identity
        number = self._counts.get(key, 0)
        self._counts[key] = number + 1
        return Place(key, number)


class ArchivedRanges:
    """Loads ranges of archived files into one destination; connect it first, and close it."""

    def __init__(
        self, settings: Settings, spark: SparkSession, destination: DestinationSettings, staging: Staging
    ) -> None:
        self._settings, self._spark, self._own, self._staging = settings, spark, destination, staging
        self.destination: Destination = load_destination(destination)
        self.destination.connect()

    def close(self) -> None:
        self.destination.close()

    def has_any(self, keys: Iterable[str]) -> bool:
        """Whether the ledger has ranges of these sources."""
        return any(self.destination.loaded_between(*ledger_id_range(key, 0)) for key in keys)

    def load(
        self, name: str, identity: str, events: Iterable[tuple[Place, bytes]], browser_keys: str
    ) -> FileReport:
        """Load the events, except those that the ledger has; `identity` is that of the whole file."""
        report = DestinationReport(self._own.id)
        stream = self._settings.pipeline.stream
        loader, router = self._loader(browser_keys)
        for key, commit in ranges(events, stream.max_batch_events, stream.max_batch_bytes):
            positions = PositionRange(key, self._own.id, commit.first, commit.end, commit.epoch)
            ids = self.destination.loaded_between(*ledger_id_range(positions.key, positions.first))
            lines = lines_in_driver(self._spark, [commit])
            try:
                result = RangeLoad(
                    loader,
                    router,
                    positions=positions,
                    plan=Planned(commit.end),
                    loaded=_Loaded(ids, lambda table: self._has_whole(identity, table)),
                    save_plan=lambda: None,  # positions that are loaded are left out, however a load is cut
                    retry=lambda attempt: attempt(),
                ).run(lines)
            finally:
                lines.unpersist()
            report.events += len(commit.bodies)
            report.skipped += result.skipped
            report.rejected += result.rejected
            report.pairs.append(TableReport("", result.rows, unmapped=result.unmapped))
        return FileReport(name, [report], archived=True)

    def _has_whole(self, identity: str, table: str) -> bool:
        id = load_id(identity, self._own.id, table)
        return bool(self.destination.loaded_in(table, [id]))

    def _loader(self, browser_keys: str) -> tuple[Loader, Router]:
        own, settings = self._own, self._settings
        router = Router(
            Template(own.table_name_template),
            max_identifier_length=self.destination.capabilities.max_identifier_length,
            browser_keys=browser_keys,
            rules=TableRules.of(own),
        )
        loader = Loader(
            own,
            self.destination,
            lookups=Lookups(own.enrichment, settings.pipeline, browser_keys=browser_keys),
            tables=TablePatcher(
                own, self.destination, load_locks(settings.pipeline.lock, settings.locks_dir)
            ),
            stager=DriverStager(),
            staging=self._staging,
            rejects=RejectWriter(settings.events_dir, own.id, SystemClock()),
        )
        return loader, router


class _Loaded(LoadedRanges):
    """The ranges that the ledger has, and the tables that have the whole file by a load of batch mode."""

    def __init__(self, ids: Iterable[str], has_whole: Callable[[str], bool]) -> None:
        super().__init__(ids)
        self._has_whole = has_whole

    def already_loaded(self, wanted: PositionRange, table: str) -> list[tuple[int, int]]:
        if self._has_whole(table):
            return [(wanted.first, wanted.end)]
        return super().already_loaded(wanted, table)


def ranges(
    events: Iterable[tuple[Place, bytes]], max_events: int, max_bytes: int
) -> Iterator[tuple[str, Commit]]:
    """Neighbouring events of a source, at most so many and so large together."""
    open_ranges: dict[tuple[str, int], tuple[int, list[bytes]]] = {}
    size = 0
    for place, body in events:
        source = place.key, place.epoch
        first, bodies = open_ranges.get(source, (place.number, []))
        if first + len(bodies) != place.number:
            yield place.key, Commit(first, 0.0, bodies, place.epoch)
            first, bodies = place.number, []
        bodies.append(body)
        open_ranges[source] = first, bodies
        size += len(body)
        if len(bodies) >= max_events or size >= max_bytes:
            for (key, epoch), (start, gathered) in open_ranges.items():
                yield key, Commit(start, 0.0, gathered, epoch)
            open_ranges, size = {}, 0
    for (key, epoch), (start, gathered) in open_ranges.items():
        yield key, Commit(start, 0.0, gathered, epoch)

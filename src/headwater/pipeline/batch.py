"""Batch mode (seed 003): a cycle takes all complete files to all destinations that want them.

Each destination and table of a file is a pair. A pair is loaded once (G5), its status is kept beside the
file, and the file goes to the archive when all its pairs are done. What fails is tried again by the next
cycle, and holds back nothing else (G6, G7).
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.clock import Clock, SystemClock
from headwater.errors import DestinationUnavailable, HeadwaterError
from headwater.faults import crash_point
from headwater.log.incoming import IncomingFile, Status, archive, settle, write_failed
from headwater.pipeline.header import Scanned
from headwater.pipeline.load import Loader, Outcome
from headwater.pipeline.modes import batch_files
from headwater.pipeline.names import sanitise
from headwater.pipeline.report import DestinationReport, FileReport, PairReport, Report, Times
from headwater.pipeline.route import Template
from headwater.pipeline.source import LINE, read_lines, rejects_of
from headwater.pipeline.split import SMALL_BYTES, Split, scan_tables, split_lines
from headwater.pipeline.stage import Staging
from headwater.settings import DestinationSettings, Settings
from headwater.warehouse.base import Destination, destination_class, load_destination
from headwater.warehouse.locks import load_locks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Report", "run_cycle"]

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]


def run_cycle(
    settings: Settings,
    spark: SparkSession,
    progress: Progress | None = None,
    *,
    clock: Clock | None = None,
    files: Sequence[IncomingFile] | None = None,
) -> Report:
    """Load all complete files, or these. `progress` is called with bytes done and bytes in all.

    Errors of one file, destination or table are in the report and in the file's status, and end nothing else.
    """
    if files is None:
        settle(settings.events_dir)
        files = batch_files(settings)
    report = Report()
    total = sum(_size(file.path) for file in files)
    done = 0
    with ExitStack() as stack:
        staging = stack.enter_context(Staging(settings.staging_dir))
        cycle = _Cycle(settings, spark, staging, clock or SystemClock())
        report.times = cycle.times
        stack.callback(cycle.close)
        for file in files:
            if progress is not None:
                progress(done, total)
            done += _size(file.path)
            report.files.append(cycle.file(file))
        if progress is not None:
            progress(total, total)
    return report


class _Cycle:
    """The parts that live as long as a cycle. Destinations are opened when they are needed, and once."""

    def __init__(self, settings: Settings, spark: SparkSession, staging: Staging, clock: Clock) -> None:
        self._settings = settings
        self._spark = spark
        self._staging = staging
        self._clock = clock
        self.times = Times()
        self._locks = load_locks(settings.pipeline.lock, settings.locks_dir)
        self._open: dict[str, Destination] = {}
        self._away: dict[str, DestinationUnavailable] = {}
        self._browser_keys = {token.id: token.client_secret for token in settings.tokens}

    def close(self) -> None:
        for destination in self._open.values():
            destination.close()

    def file(self, file: IncomingFile) -> FileReport:
        """One file, for all destinations that want it."""
        report = FileReport(file.name)
        try:
            with _claimed(file.path) as is_ours:
                if not is_ours:
                    report.busy = True
                    return report
                wanted = list(self._wanting(file))
                if file.destination_id and not wanted:
                    raise _orphaned(file)
                status = Status.load(file)
                for wanting in wanted:
                    report.destinations.append(self._destination(file, status, wanting))
                if all(each.is_done for each in report.destinations) and status.is_complete:
                    crash_point("pipeline.after_status")
                    with self.times.of("archive"):
                        archive(file)
                    crash_point("pipeline.after_archive")
                    report.archived = True
        except FileNotFoundError:
            report.error = f"{file.path} is not there any more; another pipeline may have done it."
        except (HeadwaterError, OSError) as error:
            report.error = _reason(error)
        if report.error:
            log.error("%s: %s", file.name, report.error)
        return report

    def _wanting(self, file: IncomingFile) -> Iterator[DestinationSettings]:
        """Multiplexing: rejects go to their destination, events to all whose `only_keys` has the token."""
        for destination in self._settings.destinations:
            if file.destination_id:
                if destination.id == file.destination_id:
                    yield destination
            elif destination.is_batch and destination.wants(file.token_id):
                yield destination

    def _destination(
        self, file: IncomingFile, status: Status, settings: DestinationSettings
    ) -> DestinationReport:
        report = DestinationReport(settings.id)
        if settings.id in status.counts:
            counts = status.counts[settings.id]
            report.events, report.skipped, report.rejected = counts.events, counts.skipped, counts.rejected
            report.pairs = [
                PairReport(table, pair.rows, skipped=True)
                for (id, table), pair in status.pairs.items()
                if id == settings.id
            ]
            return report
        try:
            self._load(file, status, settings, report)
        except FileNotFoundError:
            raise
        except Exception as error:  # whatever it is, the other destinations have their turn
            report.error = _reason(error)
            log.error("%s, destination %s: %s", file.name, settings.id, report.error)
        return report

    def _load(
        self, file: IncomingFile, status: Status, settings: DestinationSettings, report: DestinationReport
    ) -> None:
        """Route the lines and load each table that is not loaded yet; then count what became of them."""
        template = Template(settings.table_name_template)
        limit = destination_class(settings.type).capabilities.max_identifier_length
        known = [table for id, table in status.pairs if id == settings.id]
        lines = read_lines(self._spark, file.path)
        with ExitStack() as stack:
            routed: Split | None = None
            if template.constant is not None:
                tables = [sanitise(template.constant, limit)] if template.constant else []
            elif known and settings.id in self._away:
                tables = known
            else:
                with self.times.of("route"):
                    routed = self._routed(file, lines, template, limit, stack)
                tables = list(routed.tables)
            for table in tables:
                own = routed.table(table) if routed else lines
                scanned = routed.scanned.get(table) if routed else None
                pair = self._pair(file, status, settings, table, own, scanned)
                report.pairs.append(pair)
                if pair.skipped:
                    # the rows are known; what is missing to the lines was rejected then
                    count = routed.tables[table] if routed else own.where(f"trim({LINE}) != ''").count()
                    pair.rejected = count - pair.rows
                report.events += pair.rows + pair.rejected
                report.rejected += pair.rejected
            if not report.is_done:
                return
            if routed and routed.rejected:
                rejects = rejects_of(
                    routed.rejects(), destination_id=settings.id, file=file.name, now=self._clock.now()
                )
                write_failed(self._settings.events_dir, settings.id, rejects)
            if not tables and routed is None:
                report.skipped = lines.where(f"trim({LINE}) != ''").count()
            elif routed:
                report.skipped = routed.skipped
                report.rejected += routed.rejected
                report.events += routed.rejected
            report.events += report.skipped
        status.count(settings.id, events=report.events, skipped=report.skipped, rejected=report.rejected)
        status.save()

    def _routed(
        self, file: IncomingFile, lines: DataFrame, template: Template, limit: int, stack: ExitStack
    ) -> Split:
        if _size(file.path) <= SMALL_BYTES:
            key = self._browser_keys.get(file.token_id, "")
            return scan_tables(lines, template, max_identifier_length=limit, browser_key=key)
        folder = stack.enter_context(self._staging.folder())
        return split_lines(lines, template, folder / "lines", max_identifier_length=limit)

    def _pair(
        self,
        file: IncomingFile,
        status: Status,
        settings: DestinationSettings,
        table: str,
        lines: DataFrame,
        scanned: Scanned | None,
    ) -> PairReport:
        """One destination and table, unless its status says that it is done."""
        if status.is_done(settings.id, table):
            return PairReport(table, status.pairs[settings.id, table].rows, skipped=True)
        report = PairReport(table)
        try:
            loader = Loader(
                settings,
                self._settings.pipeline,
                self._connected(settings),
                self._locks,
                self._staging,
                browser_key=self._browser_keys.get(file.token_id, ""),
            )
            loader.times = self.times
            loader.is_small = _size(file.path) <= SMALL_BYTES
            outcome: Outcome = loader.load(lines, table, file, self._clock.now(), scanned)
            for rejects in outcome.rejects:
                write_failed(self._settings.events_dir, settings.id, rejects)
        except Exception as error:
            if isinstance(error, DestinationUnavailable):
                self._away[settings.id] = error
            report.error = _reason(error)
            log.error("%s, %s/%s: %s", file.name, settings.id, table, report.error)
            status.mark(settings.id, table, False, error=report.error)
        else:
            report.rows = outcome.rows
            report.rejected = outcome.rejected
            report.unmapped = outcome.unmapped
            status.mark(settings.id, table, True, rows=outcome.rows)
        status.save()
        return report

    def _connected(self, settings: DestinationSettings) -> Destination:
        """The destination; one that was away in this cycle is not waited for again (G7)."""
        if settings.id in self._away:
            raise self._away[settings.id]
        if settings.id not in self._open:
            destination = load_destination(settings)
            destination.connect()
            self._open[settings.id] = destination
        return self._open[settings.id]


def _orphaned(file: IncomingFile) -> DestinationUnavailable:
    """Rejects are never archived unseen: they are kept until somebody decides."""
    return DestinationUnavailable(
        f"these rejects are for {file.destination_id}, a destination that is not configured; they are kept.",
        hint=f"Configure {file.destination_id} again, or remove {file.path}.",
    )


@contextmanager
def _claimed(path: Path) -> Iterator[bool]:
    """Whether the file is ours now: no other pipeline on this machine works on it until we end."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        if not path.exists():  # archived between our two steps
            raise FileNotFoundError(path)
        yield True
    finally:
        os.close(fd)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _reason(error: BaseException) -> str:
    """An error in one line: Spark's come with the whole stack of the JVM."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, HeadwaterError):
        return text
    causes = [line.strip() for line in text.splitlines() if line.strip().startswith("Caused by:")]
    first = text.splitlines()[0].strip()
    return f"{first} ({causes[-1]})" if causes else first

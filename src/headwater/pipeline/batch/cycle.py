"""Batch mode: a cycle loads all complete files into all destinations that want them.

Each table of a destination is loaded once per file (G5). The status is kept beside the file, and the file
goes to the archive when all its tables are loaded. A failed load is repeated by the next cycle and holds back
nothing else (G6, G7). Small files share the passes over their lines; each keeps its own transaction and its
own entry in the ledger.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headwater.clock import Clock, SystemClock
from headwater.destinations.base import Destination, destination_class, load_destination
from headwater.destinations.locks import load_locks
from headwater.destinations.table import ROW
from headwater.errors import DestinationUnavailable, HeadwaterError, LockTaken, TableBusy, TableRefused
from headwater.log.files.archive import archive
from headwater.log.files.file_status import FileStatus, is_checked
from headwater.log.files.incoming import finish_interrupted
from headwater.log.files.layout import IncomingFile, status_path, unprocessed
from headwater.pipeline.batch.file_in_cycle import FileInCycle, fail
from headwater.pipeline.batch.file_pieces import load_by_pieces
from headwater.pipeline.find_bad_rows import is_about_rows
from headwater.pipeline.lineage_hints import job_description, job_group, reading_from
from headwater.pipeline.load import Batch, BatchPart, Loader
from headwater.pipeline.load_report import FileReport, Outcome, Report, Times, reason_of
from headwater.pipeline.rejects import RejectWriter
from headwater.pipeline.spark.storage import Staging
from headwater.pipeline.steps.enrich.lookup_join import Lookups
from headwater.pipeline.steps.fit_table import TablePatcher
from headwater.pipeline.steps.read_lines import LINE, read_lines
from headwater.pipeline.steps.route import SMALL_BYTES, RoutedFiles, Router
from headwater.pipeline.steps.stage import DriverStager, SharedStager, SparkStager, Stager
from headwater.pipeline.steps.table_rules import TableRules
from headwater.pipeline.steps.template import Template
from headwater.settings import DestinationSettings, Settings
from headwater.system.crash_points import crash_point
from headwater.system.durable_files import try_lock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]

NAMED_FILES = 3
"""Names in Spark's UI, where files share jobs."""
MAX_FILES = 100
"""Maximum files of a group: each is held open, and is a task of each Spark job."""


def batch_files(settings: Settings) -> list[IncomingFile]:
    """The files of a cycle, oldest first, without the replays of destinations that only stream."""
    only_stream = {each.id for each in settings.destinations if not each.is_batch}
    return [file for file in unprocessed(settings.events_dir) if file.destination_id not in only_stream]


def run_cycle(
    settings: Settings,
    spark: SparkSession,
    progress: Progress | None = None,
    *,
    clock: Clock | None = None,
    files: Sequence[IncomingFile] | None = None,
    stopping: threading.Event | None = None,
) -> Report:
    """Loads all complete files, or `files`. `progress` is called with bytes done and bytes in all.

    Once `stopping` is set, no further files are begun.

    Errors of one file, destination or table are in the report and in the file's status; the others go on.
    """
    if files is None:
        finish_interrupted(settings.events_dir)
        files = batch_files(settings)
    report = Report()
    sizes = {file: _size(file.path) for file in files}
    total, done = sum(sizes.values()), 0
    with ExitStack() as stack:
        staging = stack.enter_context(Staging(settings.staging_dir, settings.pipeline.staging_url))
        cycle = _Cycle(settings, spark, staging, clock or SystemClock())
        report.times = cycle.times
        stack.callback(cycle.close)
        for group in groups(list(sizes.items())):
            if stopping is not None and stopping.is_set():
                break
            if progress is not None:
                progress(done, total)
            done += sum(sizes[file] for file in group)
            report.files.extend(cycle.load_files(group))
        if progress is not None:
            progress(total, total)
    return report


class _Cycle:
    """The parts that live as long as a cycle. A destination is connected when it is first needed."""

    def __init__(self, settings: Settings, spark: SparkSession, staging: Staging, clock: Clock) -> None:
        self._settings = settings
        self._spark = spark
        self._staging = staging
        self._clock = clock
        self.times = Times()
        self._locks = load_locks(settings.pipeline.lock, settings.locks_dir)
        self._connected: dict[str, Destination] = {}
        self._unavailable: dict[str, DestinationUnavailable] = {}
        self._busy: dict[tuple[str, str], HeadwaterError] = {}  # tables that are locked
        self._browser_keys = {token.id: token.client_secret for token in settings.tokens}

    def close(self) -> None:
        for destination in self._connected.values():
            destination.close()

    def load_files(self, files: Sequence[IncomingFile]) -> list[FileReport]:
        """Loads files of one origin into all destinations that want them."""
        reports = {file: FileReport(file.name) for file in files}
        with ExitStack() as claims:
            claimed = []
            for file, report in reports.items():
                try:
                    report.busy = not _claim(file.path, claims)
                    if not report.busy:
                        claimed.append(FileInCycle(file, report))
                except OSError as error:
                    fail(report, file, error)
            wanted_by = claimed[0].status.wanted_by if claimed else None  # a group has one answer
            destinations = list(self._destinations_for(files[0], wanted_by or ()))
            if files[0].destination_id and not destinations:
                for each in claimed:
                    each.fail(_orphaned(each.file))
            for settings in destinations:
                claimed = [each for each in claimed if not each.report.error]
                self._load_destination(settings, claimed)
                for each in claimed:
                    each.report.destinations.append(each.current)
            configured = {each.id for each in self._settings.destinations}
            missing = [id for id in wanted_by or () if id not in configured]
            for each in claimed:
                if not each.report.error and each.is_done:
                    if missing:
                        each.fail(_not_configured(each.file, missing))
                    else:
                        self._archive(each)
        return list(reports.values())

    def _destinations_for(
        self, file: IncomingFile, wanted_by: Sequence[str]
    ) -> Iterator[DestinationSettings]:
        """Rejects go to their destination.

        Events go to all destinations in batch mode whose `only_keys` has the token, and to those that wanted
        them when they were acknowledged, whatever the settings say now (G3).
        """
        for destination in self._settings.destinations:
            if file.destination_id:
                if destination.id == file.destination_id:
                    yield destination
            elif destination.id in wanted_by or (destination.is_batch and destination.wants(file.token_id)):
                yield destination

    def _archive(self, file: FileInCycle) -> None:
        crash_point("pipeline.after_status")
        try:
            with self.times.of("archive"):
                place = archive(file.file)
        except (HeadwaterError, OSError) as error:
            file.fail(error)
        else:
            crash_point("pipeline.after_archive")
            file.report.archived = True
            file.report.damage = FileStatus.read(status_path(place)).damage

    def _load_destination(self, settings: DestinationSettings, claimed: Sequence[FileInCycle]) -> None:
        """Loads the files that the destination lacks; if they fail together, each alone (G6)."""
        lacking = [each for each in claimed if each.begin(settings.id)]
        by_template: dict[str, list[FileInCycle]] = {}
        for each in lacking:
            by_template.setdefault(each.template(settings), []).append(each)
        for template, files in by_template.items():
            self._load_files(msgspec.structs.replace(settings, table_name_template=template), files)

    def _load_files(self, settings: DestinationSettings, files: Sequence[FileInCycle]) -> None:
        try:
            self._load(settings, files)
        except Exception as error:  # the other files and destinations must go on
            if len(files) == 1:
                files[0].fail_destination(error)
                return
            logger.warning(
                "%d files, destination %s: %s; each is loaded alone.",
                len(files),
                settings.id,
                reason_of(error),
            )
            for each in files:
                each.begin(settings.id)
                self._load_files(settings, [each])

    def _load(self, settings: DestinationSettings, files: Sequence[FileInCycle]) -> None:
        """Routes the lines, loads each table that lacks them, and counts them."""
        browser_keys = self._browser_keys.get(files[0].file.token_id, "")
        router = Router(
            Template(settings.table_name_template),
            max_identifier_length=destination_class(settings.type).capabilities.max_identifier_length,
            browser_keys=browser_keys,
            rules=TableRules.of(settings),
        )
        if self._is_unavailable(settings, files, router.constant):
            return
        with ExitStack() as stack:
            stack.enter_context(self._lineage_of(files))
            stack.enter_context(job_group(self._spark, _names(files)))
            with job_description(self._spark, f"find the tables of events for {settings.id}"):
                routed = self._route(files, router, stack)
            for table in routed.tables:
                self._load_table(settings, table, routed, files, browser_keys)
            done = [number for number, each in enumerate(files) if each.current.is_done]
            if having := [number for number in done if routed.files[number].rejected]:
                self._rejects(settings).write(routed.rejects(having), *(each.name for each in files))
            for number in done:
                files[number].count(routed.files[number])

    def _lineage_of(self, files: Sequence[FileInCycle]) -> AbstractContextManager[None]:
        """Names the files for lineage where functions read copies of them; else Spark itself reads them."""
        if not self._settings.pipeline.staging_url:
            return nullcontext()
        dataset = "file", str(files[0].file.path.parent.resolve())
        return reading_from(self._spark, dataset, LINE, beside=[ROW])

    def _is_unavailable(
        self, settings: DestinationSettings, files: Sequence[FileInCycle], constant: str
    ) -> bool:
        """Whether the destination is unreachable; known tables are then marked failed without reading."""
        tables = {each: [constant] if constant else each.tables for each in files}
        if not all(tables.values()) or not any(each.is_open(t) for each in files for t in tables[each]):
            return False
        try:
            self._connect(settings)
        except DestinationUnavailable as error:
            for each in files:
                for table in filter(each.is_open, tables[each]):
                    each.record_failure(table, error)
            return True
        return False

    def _route(self, files: Sequence[FileInCycle], router: Router, stack: ExitStack) -> RoutedFiles:
        """The lines by file and table; small files are routed and parsed in one pass."""
        paths = [each.file.path for each in files]
        lines = read_lines(self._spark, *paths, staging=self._staging)
        with self.times.of("parse" if router.constant else "route"):
            if len(files) > 1:
                return router.route_files(lines, len(files))
            if _size(paths[0]) <= SMALL_BYTES:
                routed = router.route(lines)
            else:
                folder = self._staging.executor_folder(stack.enter_context(self._staging.folder()))
                routed = router.route_large(lines, folder / "lines")
            return RoutedFiles(routed, [routed])

    def _load_table(
        self,
        settings: DestinationSettings,
        table: str,
        routed: RoutedFiles,
        files: Sequence[FileInCycle],
        browser_keys: str,
    ) -> None:
        """Loads the lines of one table from all files whose status does not have it."""
        having = [number for number, each in enumerate(routed.files) if table in each.tables]
        todo = [number for number in having if files[number].begin_table(table, routed.files[number])]
        if not todo:
            return
        if busy := self._busy.get((settings.id, table)):
            self._record_failure(table, busy, [files[number] for number in todo])
            return
        whole = routed.all_files
        for number in todo:
            files[number].status.record_template(settings.id, settings.table_name_template)
        attempts = {number: _Attempt(files[number]) for number in todo}
        parts = {
            number: BatchPart(
                attempts[number],
                routed.files[number].lines_for(table),
                routed.files[number].fields.get(table),
            )
            for number in todo
            if not files[number].has_cuts(table)
        }
        try:
            if parts:
                loader = self._loader(settings, files, browser_keys)
                try:
                    loader.load(Batch(table, whole.lines_for(table), parts, whole.fields.get(table)))
                except Exception as error:
                    if len(files) > 1 or not _is_of_its_lines(error):
                        raise
                    attempts[0].record_failure(table, error)
            for number in todo:
                if number not in parts or attempts[number].is_refused:
                    loader = self._loader(settings, [files[number]], browser_keys)
                    load_by_pieces(loader, table, routed.files[number].lines_for(table), files[number])
        except DestinationUnavailable as error:
            self._unavailable[settings.id] = error
            self._record_failure(table, error, [files[number] for number in todo])
        except (
            TableBusy,
            LockTaken,
        ) as error:  # the next cycle tries again; other files need not wait as long
            self._busy[settings.id, table] = error
            self._record_failure(table, error, [files[number] for number in todo])
        except Exception as error:
            if len(files) > 1:
                raise
            files[0].record_failure(table, error)

    @staticmethod
    def _record_failure(table: str, error: Exception, files: Sequence[FileInCycle]) -> None:
        for each in files:
            if each.is_open(table):
                each.record_failure(table, error)

    def _rejects(self, settings: DestinationSettings) -> RejectWriter:
        return RejectWriter(self._settings.events_dir, settings.id, self._clock)

    def _loader(
        self, settings: DestinationSettings, files: Sequence[FileInCycle], browser_keys: str
    ) -> Loader:
        destination = self._connect(settings)
        stager: Stager = SparkStager(self._staging)
        if len(files) > 1:
            stager = SharedStager()
        elif _size(files[0].file.path) <= SMALL_BYTES:
            stager = DriverStager()
        return Loader(
            settings,
            destination,
            lookups=Lookups(
                settings.enrichment,
                self._settings.pipeline,
                browser_keys=browser_keys,
                staging=self._staging,
            ),
            tables=TablePatcher(settings, destination, self._locks),
            stager=stager,
            staging=self._staging,
            rejects=self._rejects(settings),
            times=self.times,
        )

    def _connect(self, settings: DestinationSettings) -> Destination:
        """The connected destination; one that was unreachable in this cycle is not tried again (G7)."""
        if settings.id in self._unavailable:
            raise self._unavailable[settings.id]
        if settings.id not in self._connected:
            destination = load_destination(settings)
            try:
                destination.connect()
            except DestinationUnavailable as error:
                self._unavailable[settings.id] = error
                raise
            self._connected[settings.id] = destination
        return self._connected[settings.id]


@dataclass
class _Attempt:
    """A file as the origin of its lines; lines that are refused are then searched."""

    file: FileInCycle
    is_refused: bool = False

    @property
    def name(self) -> str:
        return self.file.name

    def load_id(self, table: str) -> str:
        return self.file.load_id(table)

    def record(self, table: str, outcome: Outcome) -> None:
        self.file.record(table, outcome)

    def record_failure(self, table: str, error: Exception) -> None:
        if not _is_of_its_lines(error):
            self.file.record_failure(table, error)
            return
        logger.warning(
            "%s, table %s: %s; the refused lines are searched.", self.name, table, reason_of(error)
        )
        self.is_refused = True


def _is_of_its_lines(error: Exception) -> bool:
    """Whether to search the lines at fault; a table that is refused holds back its own files only."""
    return is_about_rows(error) and not isinstance(error, TableRefused)


def _names(files: Sequence[FileInCycle]) -> str:
    """The names of files that are loaded together, for Spark's UI."""
    more = len(files) - NAMED_FILES
    return ", ".join(each.name for each in files[:NAMED_FILES]) + (f" and {more} more" if more > 0 else "")


def groups(files: Sequence[tuple[IncomingFile, int]]) -> Iterator[list[IncomingFile]]:
    """Groups neighbouring files, given with their sizes, that are of one kind and are small in all.

    The order of the files stays, so earlier events are stored first.
    """
    group: list[IncomingFile] = []
    total = 0
    kind_of_group = None
    for file, size in files:
        kind = (file.kind, file.id, _is_checked(file.path), FileStatus.load(file).wanted_by)
        if group and not (kind == kind_of_group and total + size <= SMALL_BYTES and len(group) < MAX_FILES):
            yield group
            group, total = [], 0
        kind_of_group = kind
        group.append(file)
        total += size
    if group:
        yield group


def _orphaned(file: IncomingFile) -> DestinationUnavailable:
    """Rejects of a removed destination are kept until it is configured again or the file is removed."""
    return DestinationUnavailable(
        f"these rejects are for {file.destination_id}, a destination that is not configured; they are kept.",
        hint=f"Configure {file.destination_id} again, or remove {file.path}.",
    )


def _not_configured(file: IncomingFile, destinations: Sequence[str]) -> DestinationUnavailable:
    ids = ", ".join(destinations)
    return DestinationUnavailable(
        f"its events were acknowledged for {ids}, which the settings do not have; the file is kept.",
        hint=f"Configure {ids} again, or give the events up: headwater pipeline forget {destinations[0]}",
    )


def _claim(path: Path, claims: ExitStack) -> bool:
    """Locks the file until the claims end; returns False if another pipeline on this machine has it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    claims.callback(os.close, fd)
    if not try_lock(fd):
        return False
    if not path.exists():  # archived between our two steps
        raise FileNotFoundError(path)
    return True


def _is_checked(path: Path) -> bool:
    try:
        return is_checked(path)
    except FileNotFoundError:
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0

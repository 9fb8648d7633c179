"""Batch mode (seed 003): a cycle takes all complete files to all destinations that want them.

Each destination and table of a file is a pair. A pair is loaded once (G5), its status is kept beside the
file, and the file goes to the archive when all its pairs are done. What fails is tried again by the next
cycle, and holds back nothing else (G6, G7). Small files that wait together share the passes over their lines
(see together.py); all else is each file's own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.clock import Clock, SystemClock
from headwater.crash_points import crash_point
from headwater.destinations.base import Destination, destination_class, load_destination
from headwater.destinations.locks import load_locks
from headwater.durable_files import try_lock
from headwater.errors import DestinationUnavailable, HeadwaterError
from headwater.log.files.archive import archive
from headwater.log.files.incoming import finish_interrupted
from headwater.log.files.layout import IncomingFile
from headwater.log.rejects.destination_file import DestinationRejects
from headwater.pipeline.batch.file_in_cycle import Taken, fail, reason_of
from headwater.pipeline.batch.shared_staging import FilesLoader, groups
from headwater.pipeline.load_report import FileReport, Report, Times
from headwater.pipeline.modes import batch_files
from headwater.pipeline.steps.names import sanitise
from headwater.pipeline.steps.read_lines import read_lines, rejects_of, rejects_of_files
from headwater.pipeline.steps.route import (
    SMALL_BYTES,
    Split,
    Splits,
    scan_files,
    scan_table,
    scan_tables,
    split_lines,
)
from headwater.pipeline.steps.stage import Staging
from headwater.pipeline.steps.template import Template
from headwater.settings import DestinationSettings, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
            if progress is not None:
                progress(done, total)
            done += sum(sizes[file] for file in group)
            report.files.extend(cycle.files(group))
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

    def files(self, files: Sequence[IncomingFile]) -> list[FileReport]:
        """Files of one origin, for all destinations that want them."""
        reports = {file: FileReport(file.name) for file in files}
        with ExitStack() as claims:
            taken = []
            for file, report in reports.items():
                try:
                    report.busy = not _claim(file.path, claims)
                    if not report.busy:
                        taken.append(Taken(file, report))
                except OSError as error:
                    fail(report, file, error)
            wanted = list(self._wanting(files[0]))
            if files[0].destination_id and not wanted:
                for each in taken:
                    each.fail(_orphaned(each.file))
            for settings in wanted:
                taken = [each for each in taken if not each.report.error]
                self._destination(settings, taken)
                for each in taken:
                    each.report.destinations.append(each.current)
            for each in taken:
                if not each.report.error and each.is_done:
                    self._archive(each)
        return list(reports.values())

    def _wanting(self, file: IncomingFile) -> Iterator[DestinationSettings]:
        """Multiplexing: rejects go to their destination, events to all whose `only_keys` has the token."""
        for destination in self._settings.destinations:
            if file.destination_id:
                if destination.id == file.destination_id:
                    yield destination
            elif destination.is_batch and destination.wants(file.token_id):
                yield destination

    def _archive(self, taken: Taken) -> None:
        crash_point("pipeline.after_status")
        try:
            with self.times.of("archive"):
                archive(taken.file)
        except (HeadwaterError, OSError) as error:
            taken.fail(error)
        else:
            crash_point("pipeline.after_archive")
            taken.report.archived = True

    def _destination(self, settings: DestinationSettings, taken: Sequence[Taken]) -> None:
        """Those of the files that it does not have; if they fail together, each alone (G6)."""
        taken = [each for each in taken if each.begin(settings.id)]
        if not taken:
            return
        try:
            self._load(settings, taken)
        except Exception as error:  # whatever it is, the other files and destinations have their turn
            if len(taken) == 1:
                taken[0].fail_destination(error)
                return
            log.warning(
                "%d files, destination %s: %s; each is tried alone.",
                len(taken),
                settings.id,
                reason_of(error),
            )
            for each in taken:
                self._destination(settings, [each])

    def _load(self, settings: DestinationSettings, taken: Sequence[Taken]) -> None:
        """Route the lines and load each table that is not loaded yet; then count what became of them."""
        template = Template(settings.table_name_template)
        limit = destination_class(settings.type).capabilities.max_identifier_length
        constant = sanitise(template.constant, limit) if template.constant else ""
        if self._is_away(settings, taken, constant):
            return
        with ExitStack() as stack:
            splits = self._split(taken, template, constant, limit, stack)
            for table in splits.tables:
                self._table(settings, table, splits, taken)
            done = [number for number, each in enumerate(taken) if each.current.is_done]
            self._reject(settings, splits, taken, done)
            for number in done:
                taken[number].count(splits.files[number])

    def _is_away(self, settings: DestinationSettings, taken: Sequence[Taken], constant: str) -> bool:
        """Whether it cannot be had now: then pairs are marked so, unread, unless they are yet to be told."""
        tables = {each: [constant] if constant else each.tables for each in taken}
        if not all(tables.values()) or not any(each.is_open(t) for each in taken for t in tables[each]):
            return False
        try:
            self._connected(settings)
        except DestinationUnavailable as error:
            for each in taken:
                for table in filter(each.is_open, tables[each]):
                    each.fail_pair(table, error)
            return True
        return False

    def _split(
        self, taken: Sequence[Taken], template: Template, constant: str, limit: int, stack: ExitStack
    ) -> Splits:
        """The lines by file and table, with what can be told of their fields in the same pass."""
        paths = [each.file.path for each in taken]
        key = self._browser_keys.get(taken[0].file.token_id, "")
        lines = read_lines(self._spark, *paths, staging=self._staging)
        if len(taken) > 1:
            with self.times.of("scan" if constant else "route"):
                return scan_files(lines, template, len(taken), max_identifier_length=limit, browser_key=key)
        if constant:
            with self.times.of("scan"):
                split = scan_table(lines, constant, key)
        elif template.constant is not None or _size(paths[0]) <= SMALL_BYTES:
            with self.times.of("route"):
                split = scan_tables(lines, template, max_identifier_length=limit, browser_key=key)
        else:
            with self.times.of("route"):
                folder = self._staging.shared(stack.enter_context(self._staging.folder()))
                split = split_lines(lines, template, folder / "lines", max_identifier_length=limit)
        return Splits(split, [split])

    def _table(
        self, settings: DestinationSettings, table: str, splits: Splits, taken: Sequence[Taken]
    ) -> None:
        """One table of a destination: a pair for each file that has lines for it and is not done with it."""
        having = [number for number, split in enumerate(splits.files) if table in split.tables]
        todo = [number for number in having if taken[number].begin_pair(table, splits.files[number])]
        if not todo:
            return
        with ExitStack() as stack:
            try:
                loader = self._loader(settings, taken)
                if len(todo) > 1:
                    folder = stack.enter_context(self._staging.folder())
                    files = {number: taken[number].file for number in todo}
                    whole = splits.whole
                    loader.prepare(whole.table(table), table, whole.scanned[table], files, folder)
            except Exception as error:
                if len(todo) > 1 and not isinstance(error, DestinationUnavailable):
                    raise
                for number in todo:
                    self._fail_pair(settings, table, taken[number], error)
                return
            for number in todo:
                self._pair(settings, table, splits.files[number], taken[number], loader)

    def _pair(
        self, settings: DestinationSettings, table: str, split: Split, taken: Taken, loader: FilesLoader
    ) -> None:
        """One file, into one table of one destination."""
        try:
            self._connected(settings)
            now = self._clock.now()
            outcome = loader.load(split.table(table), table, taken.file, now, split.scanned.get(table))
            for rejects in outcome.rejects:
                DestinationRejects(self._settings.events_dir).append(settings.id, rejects)
        except Exception as error:
            self._fail_pair(settings, table, taken, error)
        else:
            taken.end_pair(table, outcome)

    def _fail_pair(self, settings: DestinationSettings, table: str, taken: Taken, error: Exception) -> None:
        if isinstance(error, DestinationUnavailable):
            self._away[settings.id] = error
        taken.fail_pair(table, error)

    def _reject(
        self, settings: DestinationSettings, splits: Splits, taken: Sequence[Taken], done: Sequence[int]
    ) -> None:
        """Keep the lines that have no table because of an error."""
        having = [number for number in done if splits.files[number].rejected]
        if not having:
            return
        lines, now = splits.rejects(having), self._clock.now()
        if len(taken) == 1:
            rejects = rejects_of(lines, destination_id=settings.id, file=taken[0].file.name, now=now)
        else:
            names = [each.file.name for each in taken]
            rejects = rejects_of_files(lines, destination_id=settings.id, files=names, now=now)
        DestinationRejects(self._settings.events_dir).append(settings.id, rejects)

    def _loader(self, settings: DestinationSettings, taken: Sequence[Taken]) -> FilesLoader:
        loader = FilesLoader(
            settings,
            self._settings.pipeline,
            self._connected(settings),
            self._locks,
            self._staging,
            browser_key=self._browser_keys.get(taken[0].file.token_id, ""),
        )
        loader.times = self.times
        loader.is_small = sum(_size(each.file.path) for each in taken) <= SMALL_BYTES
        return loader

    def _connected(self, settings: DestinationSettings) -> Destination:
        """The destination; one that was away in this cycle is not waited for again (G7)."""
        if settings.id in self._away:
            raise self._away[settings.id]
        if settings.id not in self._open:
            destination = load_destination(settings)
            try:
                destination.connect()
            except DestinationUnavailable as error:
                self._away[settings.id] = error
                raise
            self._open[settings.id] = destination
        return self._open[settings.id]


def _orphaned(file: IncomingFile) -> DestinationUnavailable:
    """Rejects are never archived unseen: they are kept until somebody decides."""
    return DestinationUnavailable(
        f"these rejects are for {file.destination_id}, a destination that is not configured; they are kept.",
        hint=f"Configure {file.destination_id} again, or remove {file.path}.",
    )


def _claim(path: Path, claims: ExitStack) -> bool:
    """Whether the file is ours until the claims end: no other pipeline on this machine works on it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    claims.callback(os.close, fd)
    if not try_lock(fd):
        return False
    if not path.exists():  # archived between our two steps
        raise FileNotFoundError(path)
    return True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0

"""Tracks one event file during a cycle: earlier status, and results so far."""

from __future__ import annotations

import logging

from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import IncomingFile
from headwater.pipeline.load import load_id
from headwater.pipeline.load_report import DestinationReport, FileReport, Outcome, TableReport, reason_of
from headwater.pipeline.steps.route import RoutedLines
from headwater.settings import DestinationSettings

logger = logging.getLogger(__name__)


class FileInCycle:
    """One file: the `LoadOrigin` of its lines.

    The cycle loads it into one destination after the other (`begin`), table by table.
    """

    def __init__(self, file: IncomingFile, report: FileReport) -> None:
        self.file = file
        self.report = report
        self.status = FileStatus.load(file)
        self.current = DestinationReport("")

    @property
    def name(self) -> str:
        return self.file.name

    def load_id(self, table: str, piece: str = "") -> str:
        """The id of the load of all lines of a table, or of a piece of them."""
        identity = f"{self.file.identity()}\0{piece}" if piece else self.file.identity()
        return load_id(identity, self.current.destination, table)

    @property
    def is_done(self) -> bool:
        """Whether every destination has its events."""
        return self.status.is_complete and all(each.is_done for each in self.report.destinations)

    def template(self, settings: DestinationSettings) -> str:
        """The template for the tables that are left.

        It is the one by which the others were loaded: under another one an event could get a second table.
        """
        return self.status.template(settings.id) or settings.table_name_template

    @property
    def tables(self) -> list[str]:
        """The tables of the current destination that its status lists."""
        return [table for id, table in self.status.pairs if id == self.current.destination]

    def is_open(self, table: str) -> bool:
        """Whether the table of the current destination still lacks the file's events."""
        return not self.status.is_done(self.current.destination, table)

    def has_cuts(self, table: str) -> bool:
        """Whether the lines of a table are loaded by pieces."""
        return bool(self.status.cuts(self.current.destination, table))

    def is_cut(self, table: str, first: int, end: int) -> bool:
        """Whether a piece was refused whole."""
        return (first, end) in self.status.cuts(self.current.destination, table)

    def save_cut(self, table: str, first: int, end: int) -> None:
        """Records on disk that a piece was refused whole."""
        self.status.cut(self.current.destination, table, first, end)
        self.status.save()

    def begin(self, destination_id: str) -> bool:
        """Starts with a destination; returns whether it lacks events of the file."""
        self.current = report = DestinationReport(destination_id)
        counts = self.status.counts.get(destination_id)
        if counts is None:
            return True
        report.events, report.skipped, report.rejected = counts.events, counts.skipped, counts.rejected
        report.pairs = [self._loaded_earlier(table) for table in self.tables]
        return False

    def begin_table(self, table: str, routed: RoutedLines) -> bool:
        """Returns whether a table is to be loaded; reports one that was loaded earlier."""
        if self.is_open(table):
            return True
        report = self._loaded_earlier(table)
        # the status has the rows; the remaining lines were rejected
        report.rejected = routed.count(table) - report.rows
        self.current.pairs.append(report)
        return False

    def record(self, table: str, outcome: Outcome) -> None:
        self.current.pairs.append(
            TableReport(
                table, outcome.rows, outcome.rejected, outcome.unmapped, without_room=outcome.without_room
            )
        )
        self.status.mark(self.current.destination, table, True, rows=outcome.rows, unmapped=outcome.unmapped)
        self.status.save()

    def record_failure(self, table: str, error: Exception) -> None:
        if not self.file.path.exists():
            raise FileNotFoundError(self.file.path) from error
        reason = reason_of(error)
        logger.error("%s, %s/%s: %s", self.file.name, self.current.destination, table, reason)
        self.current.pairs.append(TableReport(table, error=reason))
        self.status.mark(self.current.destination, table, False, error=reason)
        self.status.save()

    def count(self, routed: RoutedLines) -> None:
        """Records the counts of all events at the current destination (G3)."""
        report = self.current
        report.skipped = routed.skipped
        report.rejected = routed.rejected + sum(table.rejected for table in report.pairs)
        report.events = report.rows + report.skipped + report.rejected
        self.status.keep_tables(report.destination, routed.tables)
        self.status.count(
            report.destination, events=report.events, skipped=report.skipped, rejected=report.rejected
        )
        self.status.save()

    def fail_destination(self, error: Exception) -> None:
        """Reports an error that ends the current destination for this file in this cycle."""
        if not self.file.path.exists():
            self.fail(FileNotFoundError(self.file.path))
            return
        self.current.error = reason_of(error)
        logger.error("%s, destination %s: %s", self.file.name, self.current.destination, self.current.error)

    def fail(self, error: Exception) -> None:
        """Reports an error that ends the file in this cycle."""
        fail(self.report, self.file, error)

    def _loaded_earlier(self, table: str) -> TableReport:
        return TableReport(table, self.status.pairs[self.current.destination, table].rows, skipped=True)


def fail(report: FileReport, file: IncomingFile, error: Exception) -> None:
    """Reports why a file is not loaded."""
    if isinstance(error, FileNotFoundError):
        report.error = f"{file.path} is not there any more; another pipeline may have loaded it."
    else:
        report.error = reason_of(error)
    logger.error("%s: %s", file.name, report.error)

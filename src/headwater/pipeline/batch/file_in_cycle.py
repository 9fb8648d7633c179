"""A file in the hands of a cycle: its status of before, and what becomes of it now."""

from __future__ import annotations

import logging

from headwater.errors import HeadwaterError
from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import IncomingFile
from headwater.pipeline.load import Outcome
from headwater.pipeline.load_report import DestinationReport, FileReport, PairReport
from headwater.pipeline.steps.route import Split

__all__ = ["Taken", "fail", "reason_of"]

log = logging.getLogger(__name__)


class Taken:
    """One file. It turns to one destination after the other (`begin`), and there to its tables."""

    def __init__(self, file: IncomingFile, report: FileReport) -> None:
        self.file = file
        self.report = report
        self.status = FileStatus.load(file)
        self.current = DestinationReport("")

    @property
    def is_done(self) -> bool:
        """Whether every pair of it is done."""
        return self.status.is_complete and all(each.is_done for each in self.report.destinations)

    @property
    def tables(self) -> list[str]:
        """The tables of the current destination that its status knows of."""
        return [table for id, table in self.status.pairs if id == self.current.destination]

    def is_open(self, table: str) -> bool:
        """Whether the current destination does not have the file's lines for the table."""
        return not self.status.is_done(self.current.destination, table)

    def begin(self, destination_id: str) -> bool:
        """Turn to a destination; whether anything is to be done there."""
        self.current = report = DestinationReport(destination_id)
        counts = self.status.counts.get(destination_id)
        if counts is None:
            return True
        report.events, report.skipped, report.rejected = counts.events, counts.skipped, counts.rejected
        report.pairs = [self._done_before(table) for table in self.tables]
        return False

    def begin_pair(self, table: str, split: Split) -> bool:
        """Turn to a table; whether it is to be loaded."""
        if self.is_open(table):
            return True
        pair = self._done_before(table)
        # the rows are known; what is missing to the lines was rejected then
        pair.rejected = split.tables[table] - pair.rows
        self.current.pairs.append(pair)
        return False

    def end_pair(self, table: str, outcome: Outcome) -> None:
        """The table has the lines."""
        self.current.pairs.append(PairReport(table, outcome.rows, outcome.rejected, outcome.unmapped))
        self.status.mark(self.current.destination, table, True, rows=outcome.rows, unmapped=outcome.unmapped)
        self.status.save()

    def fail_pair(self, table: str, error: Exception) -> None:
        """It has not, and why; the next cycle tries again."""
        if not self.file.path.exists():
            raise FileNotFoundError(self.file.path) from error
        reason = reason_of(error)
        log.error("%s, %s/%s: %s", self.file.name, self.current.destination, table, reason)
        self.current.pairs.append(PairReport(table, error=reason))
        self.status.mark(self.current.destination, table, False, error=reason)
        self.status.save()

    def count(self, split: Split) -> None:
        """Note what became of all events at the current destination (G3)."""
        report = self.current
        report.skipped = split.skipped
        report.rejected = split.rejected + sum(pair.rejected for pair in report.pairs)
        report.events = report.rows + report.skipped + report.rejected
        self.status.count(
            report.destination, events=report.events, skipped=report.skipped, rejected=report.rejected
        )
        self.status.save()

    def fail_destination(self, error: Exception) -> None:
        """Nothing more can be done for the current destination in this cycle."""
        if not self.file.path.exists():
            self.fail(FileNotFoundError(self.file.path))
            return
        self.current.error = reason_of(error)
        log.error("%s, destination %s: %s", self.file.name, self.current.destination, self.current.error)

    def fail(self, error: Exception) -> None:
        """Nothing more can be done for the file in this cycle."""
        fail(self.report, self.file, error)

    def _done_before(self, table: str) -> PairReport:
        return PairReport(table, self.status.pairs[self.current.destination, table].rows, skipped=True)


def fail(report: FileReport, file: IncomingFile, error: Exception) -> None:
    """Note why nothing can be done for a file."""
    if isinstance(error, FileNotFoundError):
        report.error = f"{file.path} is not there any more; another pipeline may have done it."
    else:
        report.error = reason_of(error)
    log.error("%s: %s", file.name, report.error)


def reason_of(error: BaseException) -> str:
    """An error in one line: Spark's come with the whole stack of the JVM."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, HeadwaterError):
        return text
    causes = [line.strip() for line in text.splitlines() if line.strip().startswith("Caused by:")]
    first = text.splitlines()[0].strip()
    return f"{first} ({causes[-1]})" if causes else first

"""Every error that Headwater raises on purpose, as one tree.

    HeadwaterError                 .hint says what to do, .retryable whether a retry may succeed
    ├── SettingsError              the configuration cannot be used
    ├── ExtensionError             an entry point is missing or breaks its contract
    ├── LogError                   the folder of the log
    │   ├── LogLocked              another process has it open
    │   ├── LogFull                no space left on the disk                      (retryable)
    │   ├── LogUnavailable         the disk failed                                (retryable)
    │   ├── LogClosed              it was closed, or is being closed
    │   └── LogTooNew              written by a newer release
    ├── RejectNotFound             no reject has this id
    ├── WarehouseError             a destination
    │   ├── DestinationUnavailable the destination failed, not the rows           (retryable)
    │   ├── TableRefused           a table cannot be created or changed as needed
    │   │   └── TableNotAllowed    it is not Headwater's, or a limit is reached
    │   ├── TableBusy              a table is locked, or a statement took too long (retryable)
    │   ├── LoadRefused            the destination refuses these rows
    │   │   └── RowsRefused        destinations: a row broke a rule of the destination
    │   ├── StagedFilesUnusable    the staged rows of a load cannot be read       (retryable)
    │   ├── MoveInterrupted        clickhouse: a load is stored in part, or may be (retryable)
    │   └── LockTaken              another pipeline holds the table's lock        (retryable)
    ├── DeliveryError              an outlet
    │   ├── BatchRejected          the client has no room for this batch now      (retryable, mostly)
    │   ├── OutletUnavailable      the receiver failed, not the event             (retryable)
    │   │   └── NotConnected       delivery: the outlet must connect again
    │   └── EventRefused           the receiver will never accept this event
    │
    │   defined by the stage that alone raises them:
    ├── Problem                    http: a request that is answered with an error
    │   └── UnreadableBody         gateway: a body that is not JSON
    ├── NotFound                   graph: no dataset, job, run or column has this name
    ├── QueryTimeout               graph: a query took too long                   (retryable)
    ├── QueryTooLarge              graph: a query needs too many rows, bytes or steps
    ├── ClientGone                 graph: the client left before the answer
    ├── SparkUnavailable           pipeline: Spark cannot be started
    │   └── SparkGone              pipeline: the session ended; start the process again
    ├── StagingUnavailable         pipeline: the staging folder or object store failed
    ├── RowsMissing                pipeline: staged rows are not as many as events (retryable)
    └── TemplateRefused            pipeline: a table name template cannot be compiled

An error is shown once, at the edge: in an HTTP response, by the command line, or in the process's log.
"""

from __future__ import annotations


class HeadwaterError(Exception):
    """A failure in one sentence, with names and ids; `.hint` says what to do."""

    retryable = False

    def __init__(self, text: str, *, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} {self.hint}" if self.hint else text

    @property
    def text(self) -> str:
        """The sentence without the hint."""
        return super().__str__()


class SettingsError(HeadwaterError):
    """The configuration cannot be used; `.problems` has one line for each problem."""

    def __init__(self, problems: list[str], *, source: str = "settings") -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{source} has {len(problems)} problem(s):\n{lines}")
        self.problems = problems
        self.source = source


class ExtensionError(HeadwaterError):
    """An entry point was not found, could not be imported, or breaks its contract."""


class LogError(HeadwaterError):
    """The folder of the log cannot be used."""


class LogLocked(LogError):
    """Another process has the folder open; two writers would break the order (G2)."""


class LogFull(LogError):
    """The disk is full. Nothing was acknowledged; the log recovers when there is space (G9)."""

    retryable = True


class LogUnavailable(LogError):
    """The disk failed, but is not full. Nothing was acknowledged."""

    retryable = True


class LogClosed(LogError):
    """The log is closed or being closed."""


class LogTooNew(LogError):
    """The folder was written by a newer release than this one."""


class RejectNotFound(HeadwaterError):
    """No reject has this id."""


class WarehouseError(HeadwaterError):
    """A destination failed."""


class DestinationUnavailable(WarehouseError):
    """The destination is unreachable, busy, or refuses the credentials: the load is retried."""

    retryable = True


class TableRefused(WarehouseError):
    """A table cannot be created or changed as needed; nothing was changed."""


class TableNotAllowed(TableRefused):
    """Headwater must not write the table: not its own, or a limit is reached. Its events are rejects."""


class TableBusy(WarehouseError):
    """Another session locks the table, or a statement took too long: its load is retried, others go on."""

    retryable = True


class LoadRefused(WarehouseError):
    """The destination refuses the load; it was rolled back if the destination has transactions."""


class StagedFilesUnusable(WarehouseError):
    """The staged files of a load cannot be read; its next attempt stages them again. No row is at fault."""

    retryable = True


class LockTaken(WarehouseError):
    """Another pipeline has held the lock of the table for too long."""

    retryable = True


class DeliveryError(HeadwaterError):
    """An outlet failed."""


class BatchRejected(DeliveryError):
    """The delivery client accepted no event of this batch: a session is in error, or a budget is exhausted.

    A retry may succeed after `retry_after_seconds`; a batch that can never fit is not retryable.
    """

    def __init__(
        self, text: str, *, hint: str = "", retryable: bool = True, retry_after_seconds: float = 0.0
    ) -> None:
        super().__init__(text, hint=hint)
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds


class OutletUnavailable(DeliveryError):
    """The receiver is unreachable, busy, or misconfigured: the event is kept and sent again.

    `retry_after_seconds` is the receiver's Retry-After, if it sent one; with `pauses_all` it holds for all
    sessions of the outlet.
    """

    retryable = True

    def __init__(
        self,
        text: str,
        *,
        hint: str = "",
        retry_after_seconds: float | None = None,
        pauses_all: bool = False,
    ) -> None:
        super().__init__(text, hint=hint)
        self.retry_after_seconds = retry_after_seconds
        self.pauses_all = pauses_all


class EventRefused(DeliveryError):
    """The receiver will never accept this event."""

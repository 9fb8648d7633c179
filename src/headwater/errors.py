"""Every error that Headwater raises on purpose.

    HeadwaterError                 .hint says what to type next, .retryable whether trying again may help
    ├── SettingsError              the configuration cannot be used
    ├── ExtensionError             an entry point is missing or does not hold its contract
    ├── LogError                   the folder of the log
    │   ├── LogLocked              another process has it open
    │   ├── LogFull                no space left on the disk                      (retryable)
    │   ├── LogUnavailable         the disk answered with an error                (retryable)
    │   ├── LogClosed              it was closed, or is being closed
    │   └── LogTooNew              written by a newer release
    ├── RejectNotFound             no reject has this id
    ├── WarehouseError             a destination
    │   ├── DestinationUnavailable nothing wrong with the rows; the destination   (retryable)
    │   ├── TableRefused           a table cannot be made to fit
    │   ├── LoadRefused            the destination does not take these rows
    │   └── LockTaken              another pipeline works on the table            (retryable)
    └── DeliveryError              an outlet
        ├── BatchRejected          the client has no room for this batch now       (retryable, mostly)
        ├── OutletUnavailable      nothing wrong with the event; the receiver      (retryable)
        └── EventRefused           the receiver will never take this event

An error is raised where it is found and shown once, at the edge: an HTTP answer, a line of the command
line, a line of the log.
"""

from __future__ import annotations

__all__ = [
    "BatchRejected",
    "DeliveryError",
    "DestinationUnavailable",
    "EventRefused",
    "ExtensionError",
    "HeadwaterError",
    "LoadRefused",
    "LockTaken",
    "LogClosed",
    "LogError",
    "LogFull",
    "LogLocked",
    "LogTooNew",
    "LogUnavailable",
    "OutletUnavailable",
    "RejectNotFound",
    "SettingsError",
    "TableRefused",
    "WarehouseError",
]


class HeadwaterError(Exception):
    """What failed, in one sentence with its ids; `.hint` is what to do next."""

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
    """The configuration cannot be used as it is; each problem is a line of `.problems`."""

    def __init__(self, problems: list[str], *, source: str = "settings") -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{source} has {len(problems)} problem(s):\n{lines}")
        self.problems = problems
        self.source = source


class ExtensionError(HeadwaterError):
    """An entry point was not found, could not be imported, or does not hold its contract."""


class LogError(HeadwaterError):
    """Something about the folder of the log."""


class LogLocked(LogError):
    """Another process has the folder open; two writers would break the order (G2)."""


class LogFull(LogError):
    """The disk is full. Nothing was acknowledged; heals by itself when space returns (G9)."""

    retryable = True


class LogUnavailable(LogError):
    """The disk answered with an error other than being full. Nothing was acknowledged."""

    retryable = True


class LogClosed(LogError):
    """The log was closed, or is being closed, and takes nothing new."""


class LogTooNew(LogError):
    """The folder was written by a newer release than this one."""


class RejectNotFound(HeadwaterError):
    """No reject has this id."""


class WarehouseError(HeadwaterError):
    """A destination could not do what it was asked."""


class DestinationUnavailable(WarehouseError):
    """The destination is not there, too busy, or does not let us in: the load is tried again."""

    retryable = True


class TableRefused(WarehouseError):
    """A table cannot be made to fit what is wanted; nothing was changed."""


class LoadRefused(WarehouseError):
    """The destination takes nothing of this load; all of it was rolled back where that can be done."""


class LockTaken(WarehouseError):
    """Another pipeline has held the lock of the table for too long."""

    retryable = True


class DeliveryError(HeadwaterError):
    """An outlet could not do what it was asked."""


class BatchRejected(DeliveryError):
    """A delivery client took nothing of this batch: a session is in error, or a budget is used up.

    `retry_after_seconds` is when it may be worth another try; not retryable where it can never fit.
    """

    def __init__(
        self, text: str, *, hint: str = "", retryable: bool = True, retry_after_seconds: float = 0.0
    ) -> None:
        super().__init__(text, hint=hint)
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds


class OutletUnavailable(DeliveryError):
    """The receiver is not there, too busy, or misconfigured: the event is kept and sent again.

    `retry_after_seconds` is the receiver's own wish, where it stated one.
    """

    retryable = True

    def __init__(self, text: str, *, hint: str = "", retry_after_seconds: float | None = None) -> None:
        super().__init__(text, hint=hint)
        self.retry_after_seconds = retry_after_seconds


class EventRefused(DeliveryError):
    """The receiver has said that it will never take this event."""

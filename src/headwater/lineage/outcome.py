"""How this Python process ends: what an uncaught exception, `sys.exit` or `headwater lineage run` tell of it.

Python has no place to ask for it, so `sys.excepthook` and `sys.exit` are wrapped while lineage is installed,
each doing what it did before.
"""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import Any, NoReturn

from headwater.lineage.failures import Failure

__all__ = ["Outcome", "current"]


class Outcome:
    """Watches for the end; `failure` says why it is a bad one, as far as is known now."""

    def __init__(self) -> None:
        self._error: Failure | None = None
        self._code: Any = None
        self._hook: Any = None
        self._exit: Any = None
        self._own: tuple[Any, Any] | None = None

    def watch(self) -> None:
        """Begin to watch; a second time does nothing."""
        if self._own is not None:
            return
        self._hook, self._exit = sys.excepthook, sys.exit

        def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self.raised(error)
            self._hook(kind, error, trace)

        def exit(status: Any = None, /) -> NoReturn:
            self.exited(status)
            self._exit(status)
            raise SystemExit(status)  # not reached; somebody may have replaced `sys.exit` before us

        self._own = (excepthook, exit)
        sys.excepthook, sys.exit = excepthook, exit

    def unwatch(self) -> None:
        """Put back what was there, unless somebody has wrapped it since."""
        if self._own is None:
            return
        if sys.excepthook is self._own[0]:
            sys.excepthook = self._hook
        if sys.exit is self._own[1]:
            sys.exit = self._exit
        self._own = None

    def raised(self, error: BaseException) -> None:
        """The main thread ends by this exception."""
        lines = traceback.format_exception(error)
        text = "".join(traceback.format_exception_only(error)).strip()
        self._error = Failure(text, type(error).__name__, "".join(lines))

    def exited(self, status: Any) -> None:
        """The process was asked to end so; whoever catches SystemExit may still change its mind."""
        self._code = status

    @property
    def failure(self) -> Failure | None:
        """Why the process ends badly, or None where nothing is known of that."""
        if self._error is not None:
            return self._error
        if self._code is None or (isinstance(self._code, int) and self._code == 0):
            return None
        if isinstance(self._code, int):
            return Failure(f"exit code {self._code}", "SystemExit")
        return Failure(str(self._code), "SystemExit")


current = Outcome()

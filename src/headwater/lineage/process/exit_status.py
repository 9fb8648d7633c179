"""How this Python process ends: what an uncaught exception, an exit code or the runner tell of it.

Python has no place to ask for it: when `atexit` runs, the SystemExit is gone. So `sys.excepthook`, `sys.exit`
and the `exit` and `quit` of scripts are wrapped while lineage is installed, each doing what it did before. It
must happen early: `sys.exit(main())` takes hold of `sys.exit` before `main` makes a session. What stays
unseen is a bare `raise SystemExit(1)`; only `headwater lineage run`, which calls the script, sees that.
"""

from __future__ import annotations

import builtins
import sys
import threading
from types import TracebackType
from typing import Any, NoReturn

from headwater.lineage.runs import Failure

__all__ = ["Outcome", "current"]


class _Exit:
    """In the place of `sys.exit`, `exit` or `quit`: notes the code, then does what was there before."""

    def __init__(self, before: Any, outcome: Outcome) -> None:
        self._before = before
        self._outcome = outcome
        self.__doc__ = before.__doc__

    def __call__(self, status: Any = None, /) -> NoReturn:
        if threading.current_thread() is threading.main_thread():  # elsewhere it ends the thread alone
            self._outcome.exited(status)
        self._before(status)
        raise SystemExit(status)  # not reached, unless somebody had replaced it before us

    def __repr__(self) -> str:
        return repr(self._before)


class Outcome:
    """Watches for the end; `failure` says why it is a bad one, as far as is known now."""

    def __init__(self) -> None:
        self._error: Failure | None = None
        self._code: Any = None
        self._wrapped: dict[tuple[Any, str], tuple[Any, Any]] = {}  # place: what was there, what is there now

    def watch(self) -> None:
        """Begin to watch; again, for what has come since: Python adds `exit` and `quit` late in its start."""
        self._wrap(sys, "excepthook", self._excepthook)
        self._wrap(sys, "exit", lambda before: _Exit(before, self))
        for name in ("exit", "quit"):
            if hasattr(builtins, name):
                self._wrap(builtins, name, lambda before: _Exit(before, self))

    def unwatch(self) -> None:
        """Put back what was there, unless somebody has wrapped it since."""
        for (owner, name), (before, now) in self._wrapped.items():
            if getattr(owner, name, None) is now:
                setattr(owner, name, before)
        self._wrapped = {}

    def raised(self, error: BaseException) -> None:
        """The main thread ends by this exception."""
        import traceback  # not above: HEADWATER_LINEAGE loads this module in every Python

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

    def _wrap(self, owner: Any, name: str, make: Any) -> None:
        if (owner, name) not in self._wrapped:
            before = getattr(owner, name)
            now = make(before)
            self._wrapped[owner, name] = (before, now)
            setattr(owner, name, now)

    def _excepthook(self, before: Any) -> Any:
        def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self.raised(error)
            before(kind, error, trace)

        return excepthook


current = Outcome()

"""How this Python process ends: by an uncaught exception, by an exit code, or well.

Python has no function that returns it: when `atexit` runs, the SystemExit is gone. So `sys.excepthook`,
`sys.exit` and the `exit` and `quit` of scripts are wrapped while lineage is installed; each still does its
work. They are wrapped early: `sys.exit(main())` evaluates `sys.exit` before `main` creates a session. A bare
`raise SystemExit(1)` is visible only to `headwater lineage run`, which calls the script.
"""

from __future__ import annotations

import builtins
import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from headwater.lineage.runs import Failure


class _Exit:
    """Replaces `sys.exit`, `exit` or `quit`: records the code, then calls the original."""

    def __init__(self, before: Any, status: ExitStatus) -> None:
        self._before = before
        self._status = status
        self.__doc__ = before.__doc__

    def __call__(self, status: Any = None, /) -> NoReturn:
        if threading.current_thread() is threading.main_thread():  # elsewhere it ends one thread
            self._status.exited(status)
        self._before(status)
        raise SystemExit(status)  # only reached if another package had replaced it

    def __repr__(self) -> str:
        return repr(self._before)


class ExitStatus:
    """Records exceptions and exit codes; `failure` is the reason why the process fails."""

    def __init__(self) -> None:
        self._error: tuple[str, str, str] | None = None
        self._code: Any = None
        self._wrapped: dict[tuple[Any, str], tuple[Any, Any]] = {}  # (owner, name): the original, the wrapper

    def install(self) -> None:
        """Wrap the functions; a second call wraps `exit` and `quit`, which Python adds late in its start."""
        self._wrap(sys, "excepthook", self._excepthook)
        self._wrap(sys, "exit", lambda before: _Exit(before, self))
        for name in ("exit", "quit"):
            if hasattr(builtins, name):
                self._wrap(builtins, name, lambda before: _Exit(before, self))

    def uninstall(self) -> None:
        """Restore the originals, except where another package has wrapped ours."""
        for (owner, name), (before, now) in self._wrapped.items():
            if getattr(owner, name, None) is now:
                setattr(owner, name, before)
        self._wrapped = {}

    def raised(self, error: BaseException) -> None:
        """Record the exception that ends the main thread."""
        import traceback  # not above: HEADWATER_LINEAGE loads this module in every Python

        lines = traceback.format_exception(error)
        text = "".join(traceback.format_exception_only(error)).strip()
        self._error = (text, type(error).__name__, "".join(lines))

    def exited(self, status: Any) -> None:
        """Record an exit code; a later one replaces it, since the program may catch SystemExit."""
        self._code = status

    @property
    def failure(self) -> Failure | None:
        """The reason why the process fails, or None."""
        from headwater.lineage.runs import Failure  # not above, for the same reason

        if self._error is not None:
            return Failure(*self._error)
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


exit_status = ExitStatus()

"""Keeps forks and SQLite apart, in processes that fork while a log is open.

SQLite's allocator, page cache and file layer have mutexes of the whole process. A child that is forked while
another thread holds one inherits it locked, and its first use of SQLite waits without end. So a fork waits
until no thread is inside SQLite, and no thread enters SQLite during the fork.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Any

import apsw

_gate = threading.RLock()
_is_guarded = False


def guard_forks() -> None:
    """Make forks of this process safe for connections that are opened from now on."""
    global _is_guarded
    if not _is_guarded:
        _is_guarded = True
        # In the child the thread that forked is the only one, and holds the gate as in the parent.
        os.register_at_fork(before=_gate.acquire, after_in_parent=_gate.release, after_in_child=_gate.release)


def connection_class() -> type[apsw.Connection]:
    """The class of new connections: one that waits for forks, if this process forks."""
    return _GuardedConnection if _is_guarded else apsw.Connection


class _GuardedCursor(apsw.Cursor):
    """A cursor whose calls into SQLite hold the gate."""

    def execute(self, *arguments: Any, **options: Any) -> apsw.Cursor:
        with _gate:
            return super().execute(*arguments, **options)

    def executemany(self, *arguments: Any, **options: Any) -> apsw.Cursor:
        with _gate:
            return super().executemany(*arguments, **options)

    def __next__(self) -> Any:
        with _gate:
            return super().__next__()

    def fetchall(self) -> list[tuple[apsw.SQLiteValue, ...]]:
        with _gate:
            return super().fetchall()


class _GuardedConnection(apsw.Connection):
    """A connection whose calls into SQLite hold the gate."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        with _gate:
            super().__init__(*arguments, **options)
        self.cursor_factory = _GuardedCursor

    def execute(self, *arguments: Any, **options: Any) -> apsw.Cursor:
        with _gate:
            return super().execute(*arguments, **options)

    def executemany(self, *arguments: Any, **options: Any) -> apsw.Cursor:
        with _gate:
            return super().executemany(*arguments, **options)

    def pragma(self, *arguments: Any, **options: Any) -> Any:
        with _gate:
            return super().pragma(*arguments, **options)

    def __enter__(self) -> apsw.Connection:
        with _gate:
            return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool:
        with _gate:
            return super().__exit__(kind, error, trace)

    def close(self, force: bool = False) -> None:
        with _gate:
            super().close(force)

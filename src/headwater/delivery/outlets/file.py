"""The `file` outlet: a line of JSON per event, on disk before it counts as delivered."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any

import msgspec

from headwater.delivery.keys import Key
from headwater.delivery.outlets.base import DELIVERED, Batch, NotConnected, Outlet, Results
from headwater.errors import OutletUnavailable
from headwater.events import Event
from headwater.settings import OutletSettings

__all__ = ["FileOptions", "FileOutlet"]

_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")  # in JSON a raw line break can only be white space between tokens
_TAIL_BYTES = 64 * 1024


class FileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where to write."""

    path: Annotated[
        str, msgspec.Meta(description="The file; it is created with its folders, and appended to.")
    ]


class FileOutlet(Outlet):
    """Appends events to a file that nobody else writes. A file moved away (logrotate) is made anew."""

    Settings = FileOptions
    options: FileOptions

    def __init__(self, options: Any, settings: OutletSettings) -> None:
        super().__init__(options, settings)
        self._path = Path(self.options.path)
        self._file = -1
        self._lock = asyncio.Lock()  # sessions share the file

    async def connect(self) -> None:
        async with self._lock:
            await asyncio.to_thread(self._open)

    async def send(self, batch: Batch) -> Results:
        data = b"".join(piece + b"\n" for piece in batch.pieces)
        async with self._lock:
            writing = asyncio.create_task(asyncio.to_thread(self._append, data))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                await asyncio.wait([writing])  # a thread cannot be stopped, and the file has room for one
                raise
        return [DELIVERED] * len(batch.events)

    async def close(self) -> None:
        self._shut()

    def prepare(self, event: Event, key: Key) -> bytes:
        return event.body.translate(_ONE_LINE) if b"\n" in event.body or b"\r" in event.body else event.body

    def _open(self) -> None:
        self._shut()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            _drop_torn_line(self._file)
            _sync_folder(self._path.parent)
        except OSError as error:
            self._shut()
            raise OutletUnavailable(f"{self._path} cannot be opened: {error.strerror}.") from error

    def _append(self, data: bytes) -> None:
        if self._file < 0:
            raise NotConnected(f"{self._path} is not open.")
        if self._was_moved():
            self._open()
        size = os.fstat(self._file).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]
            os.fsync(self._file)
        except OSError as error:
            try:
                os.ftruncate(self._file, size)  # a disk that filled up leaves no half line behind
            except OSError:
                self._shut()  # `connect` looks for the torn line
            raise NotConnected(f"{self._path} cannot be written: {error.strerror}.") from error

    def _was_moved(self) -> bool:
        try:
            there = os.stat(self._path)
        except OSError:
            return True
        return not os.path.samestat(there, os.fstat(self._file))

    def _shut(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _drop_torn_line(file: int) -> None:
    """Cut off a last line without an end: a crash left it, and its event was never reported as delivered."""
    size = os.fstat(file).st_size
    keep = size
    while keep > 0:
        start = max(0, keep - _TAIL_BYTES)
        found = os.pread(file, keep - start, start).rfind(b"\n")
        if found >= 0:
            keep = start + found + 1
            break
        keep = start
    if keep < size:
        os.ftruncate(file, keep)


def _sync_folder(folder: Path) -> None:
    """Without it the file's very name may not survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

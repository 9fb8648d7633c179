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
from headwater.settings import PATH, OutletSettings
from headwater.system.durable_files import Disk, cut_torn_line, one_line, sync_folder


class FileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The file to write."""

    path: Annotated[
        str, msgspec.Meta(description="The file; it is created with its folders, and appended to."), PATH
    ]


class FileOutlet(Outlet):
    """Appends events to a file that no other process writes. A file moved by logrotate is created again."""

    shares_loop = True
    Settings = FileOptions
    options: FileOptions

    def __init__(self, options: Any, settings: OutletSettings) -> None:
        super().__init__(options, settings)
        self._path = Path(self.options.path)
        self._disk = Disk()
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
                await asyncio.wait([writing])  # the thread cannot be stopped; the file takes one at a time
                raise
        return [DELIVERED] * len(batch.events)

    async def close(self) -> None:
        self._shut()

    def prepare(self, event: Event, key: Key) -> bytes:
        return one_line(event.body)

    def _open(self) -> None:
        self._shut()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            cut_torn_line(self._file)
            sync_folder(self._path.parent)
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
            self._disk.write(self._file, data)
            self._disk.sync(self._file)
        except OSError as error:
            try:
                self._disk.cut(self._file, size)  # a disk that filled up leaves no half line behind
            except OSError:
                self._shut()  # `connect` cuts the torn line
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

"""Power cuts without pulling a plug: record what SQLite does to a disk, then ask what any moment leaves.

    disk = RecordingDisk("recorded")
    log = Log.open(folder, vfs=disk.name)        # work with it; note len(disk.operations) at each answer
    platter = Platter()
    for operation in disk.operations[:n]:        # the power fails after the n-th operation
        platter.apply(operation)
    files = platter.after_power_loss("torn", random.Random(1))

What was synced is there. Of what was not, all may be there, nothing, or any part of it, torn at the boundary
of a sector: the disk may write unsynced data in any order.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apsw

from headwater.system.durable_files import folder_watchers

__all__ = ["Fate", "Operation", "Platter", "RecordingDisk"]

SECTOR_BYTES = 512

Fate = Literal["kept", "dropped", "torn"]


class Operation(NamedTuple):
    """One thing that was done to a file, after it was done."""

    kind: Literal["write", "truncate", "sync", "delete", "sync folder"]
    file: str
    at: int = 0
    data: bytes = b""


class RecordingDisk(apsw.VFS):
    """A file system for SQLite that passes everything on and keeps a record of it, in order.

    Files that vanish otherwise than through SQLite are noticed at the next operation. Shared memory is not
    recorded: it does not survive.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.operations: list[Operation] = []
        self.lock = threading.RLock()
        self._known: set[str] = set()
        super().__init__(name, "")
        folder_watchers.append(self._folder_synced)

    def close(self) -> None:
        """Record nothing more."""
        folder_watchers.remove(self._folder_synced)
        self.unregister()

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        filename = name.filename() if isinstance(name, apsw.URIFilename) else name
        with self.lock:
            existed = filename is None or os.path.exists(filename)
            opened = _RecordedFile(self, name, filename, flags)
            if not existed and os.path.exists(filename):
                self.record(Operation("truncate", filename))  # its name is in the folder from now on
        return opened

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        with self.lock:
            super().xDelete(filename, syncdir)
            self._known.discard(filename)
            self.operations.append(Operation("delete", filename))
            if syncdir:
                self.operations.append(Operation("sync folder", os.path.dirname(filename)))

    def record(self, operation: Operation) -> None:
        """Add an operation; the lock is held."""
        if operation.kind == "sync":
            self._look_around()
        self._known.add(operation.file)
        self.operations.append(operation)

    def _look_around(self) -> None:
        for file in [file for file in self._known if not os.path.exists(file)]:
            self._known.discard(file)
            self.operations.append(Operation("delete", file))

    def _folder_synced(self, folder: Path) -> None:
        with self.lock:
            self._look_around()
            self.operations.append(Operation("sync folder", str(folder)))


class _RecordedFile(apsw.VFSFile):
    def __init__(self, disk: RecordingDisk, name: Any, filename: str, flags: list[int]) -> None:
        self._disk = disk
        self._filename = filename
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        with self._disk.lock:
            super().xWrite(data, offset)
            self._disk.record(Operation("write", self._filename, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        with self._disk.lock:
            super().xTruncate(newsize)
            self._disk.record(Operation("truncate", self._filename, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        with self._disk.lock:
            super().xSync(flags)
            self._disk.record(Operation("sync", self._filename))


class Platter:
    """The contents of a disk: what is surely on it, and what only might be."""

    def __init__(self) -> None:
        self._synced: dict[str, bytearray] = {}
        self._waiting: dict[str, list[Operation]] = {}
        self._entered: set[str] = set()  # files whose names are surely in the folder
        self._doomed: dict[str, bytes] = {}  # files whose names may still be there

    def apply(self, operation: Operation) -> None:
        file = operation.file
        if operation.kind == "sync folder":
            self._sync_folder()
        elif operation.kind == "sync":
            content = self._synced.setdefault(file, bytearray())
            for each in self._waiting.pop(file, []):
                _perform(content, each)
            if file.endswith(("-wal", "-journal")) and file not in self._entered:
                self._sync_folder()  # SQLite does so with the first sync of these
        elif operation.kind == "delete":
            content = self._synced.pop(file, bytearray())
            for each in self._waiting.pop(file, []):
                _perform(content, each)
            if file in self._entered:
                self._entered.discard(file)
                self._doomed[file] = bytes(content)
        else:
            self._waiting.setdefault(file, []).append(operation)

    def _sync_folder(self) -> None:
        self._entered |= self._synced.keys() | self._waiting.keys()
        self._doomed.clear()

    def after_power_loss(self, fate: Fate, chance: random.Random) -> dict[str, bytes]:
        """The files that are found when the power is back."""

        def survives(likely: float) -> bool:
            return fate == "kept" or (fate == "torn" and chance.random() < likely)

        files = {file: content for file, content in self._doomed.items() if not survives(0.5)}
        for file in {*self._synced, *self._waiting}:
            if file not in self._entered and not survives(0.5):
                continue
            content = bytearray(self._synced.get(file, b""))
            for operation in self._waiting.get(file, []):
                if survives(0.7):
                    torn = fate == "torn" and chance.random() < 0.3
                    _perform(content, _tear(operation, chance) if torn else operation)
            files[file] = bytes(content)
        return files


def _perform(content: bytearray, operation: Operation) -> None:
    if operation.kind == "truncate":
        del content[operation.at :]
        return
    if len(content) < operation.at:
        content.extend(bytes(operation.at - len(content)))
    content[operation.at : operation.at + len(operation.data)] = operation.data


def _tear(operation: Operation, chance: random.Random) -> Operation:
    boundary = chance.randint(0, len(operation.data) // SECTOR_BYTES) * SECTOR_BYTES
    return operation._replace(data=operation.data[:boundary])

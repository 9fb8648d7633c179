"""What several tests of the log need: a small log's settings, bodies by number, the sum of G3, bad disks."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

from headwater.events import Event
from headwater.log.queue import offline as inspect
from headwater.log.queue.log import Log
from headwater.log.queue.reader import Reader
from headwater.settings import LogSettings

__all__ = ["DAMAGES", "MIB", "FaultyDisk", "adds_up", "body", "copy_of", "fill", "read_all", "small"]

MIB = 1024 * 1024


def small(**changes: Any) -> LogSettings:
    """Settings of a log whose partitions are small and that collects only on demand."""
    values: dict[str, Any] = {
        "partition_bytes": 256 * 1024,
        "retention_bytes": 64 * MIB,
        "max_commit_bytes": 64 * 1024,
        "collect_seconds": 3600,
    }
    return LogSettings(**(values | changes))


def body(number: int, size: int = 300) -> bytes:
    """The body of event `number`: incompressible, and the same each time."""
    return b"%d:" % number + random.Random(number).randbytes(size)


def fill(log: Log, count: int, size: int = 3000, per_commit: int = 10) -> list[bytes]:
    """Append so many events; the bodies, by position from where the log ended."""
    bodies = [body(log.end + i, size) for i in range(count)]
    for start in range(0, count, per_commit):
        log.append_wait(bodies[start : start + per_commit])
    return bodies


def read_all(reader: Reader, position: int = 0, max_events: int = 100) -> list[Event]:
    """Everything that the reader has not finished; nothing is finished by it."""
    events: list[Event] = []
    while batch := reader.read(position, max_events, 1 << 20):
        events += batch
        position = batch[-1].position + 1
    return events


def adds_up(log: Log) -> None:
    """G3 for every reader, with the lag counted by reading what is left, from inside and from outside."""
    waiting = {found.name: len(read_all(log.reader(found.name))) for found in log.stat().readers}
    for found in (*log.stat().readers, *inspect.stat(log.folder).readers):
        finished = found.delivered + found.rejected
        dropped = found.dropped_age + found.dropped_bytes + found.dropped_damage
        assert found.appended == log.end - found.base, found
        assert found.lag_events == waiting[found.name], found
        assert found.appended == finished + dropped + found.lag_events, found
        assert min(finished, dropped, found.lag_events) >= 0, found


def copy_of(folder: Path, to: Path) -> Path:
    """The folder as a crash would leave it: every file as it is now, but not the shared memory."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*-shm", "lock"))
    return to


class FaultyDisk(apsw.VFS):
    """A file system that fails on demand: `fault` is `full`, `sync`, `write`, `read` or `corrupt`.

    `only` limits the fault to files whose name contains it, `times` how often it shows. `written` lists the
    files written since.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.fault = ""
        self.only = ""
        self.times = 1 << 30
        self.written: list[str] = []
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        filename = name.filename() if isinstance(name, apsw.URIFilename) else name
        return _FaultyFile(self, name, filename, flags)

    def check(self, fault: str, filename: str, code: int) -> None:
        if self.fault == fault and self.only in Path(filename).name and self.times:
            self.times -= 1
            raise apsw.exception_for(code)


class _FaultyFile(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: Any, filename: str, flags: list[int]) -> None:
        self._disk = disk
        self._filename = filename
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.check("full", self._filename, apsw.SQLITE_FULL)
        self._disk.check("corrupt", self._filename, apsw.SQLITE_CORRUPT)
        self._disk.check("write", self._filename, apsw.SQLITE_IOERR_WRITE)
        self._disk.written.append(Path(self._filename).name)
        super().xWrite(data, offset)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._disk.check("read", self._filename, apsw.SQLITE_IOERR_READ)
        return super().xRead(amount, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._disk.check("sync", self._filename, apsw.SQLITE_IOERR_FSYNC)


Damage = Callable[[Path], object]


def _truncated(keep: float) -> Damage:
    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.truncate(int(path.stat().st_size * keep))

    return damage


def _zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _overwritten(path: Path, at: float = 0.5, length: int = 16 * 1024) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(int(size * at) // length * length)
        file.write(random.Random(7).randbytes(length))


def _bit_flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


DAMAGES: Sequence[tuple[str, Damage]] = (
    ("deleted", Path.unlink),
    ("empty", _truncated(0)),
    ("a hundred bytes", lambda path: path.write_bytes(path.read_bytes()[:100])),
    ("truncated to a tenth", _truncated(0.1)),
    ("truncated to a half", _truncated(0.5)),
    ("truncated by a bit", _truncated(0.99)),
    ("zeroed", _zeroed),
    ("garbage", lambda path: path.write_bytes(random.Random(3).randbytes(path.stat().st_size))),
    ("first page overwritten", lambda path: _overwritten(path, 0)),
    ("one page in the middle overwritten", _overwritten),
    ("one bit flipped", _bit_flipped),
)

"""The writer of the graph in a process of its own: ingesting takes no time of the server (G7).

The server reads its log and sends batches through a pipe; the process answers after the commit. Each message
is MessagePack behind its length.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from headwater.errors import HeadwaterError, LogFull, LogLocked, LogTooNew, LogUnavailable
from headwater.graph.store.database import GraphDatabase, IngestResult
from headwater.settings import GraphSettings

_LENGTH = struct.Struct(">Q")
NICE = 5  # below the server, which acknowledges events
LOCK_SECONDS = 10.0  # to wait for the process of a server that was killed
STOP_SECONDS = 10.0
KINDS = {
    "full": LogFull,
    "unavailable": LogUnavailable,
    "locked": LogLocked,
    "new": LogTooNew,
    "": HeadwaterError,
}


class Start(msgspec.Struct):
    """The first message: which graph to open."""

    folder: str
    settings: GraphSettings


class Batch(msgspec.Struct):
    """Events with the times of their receipt, and the position after them; none: clean up, by `now`."""

    events: list[tuple[float, bytes]] | None
    position: int | None = None
    now: float | None = None


class Done(msgspec.Struct):
    """The result of a message, or the error that ended it."""

    position: int = 0
    received_at: float = 0.0
    result: tuple[int, int, int, dict[str, int]] = (0, 0, 0, {})
    removed: int = 0
    error: str = ""
    hint: str = ""
    kind: str = ""


class IngestProcess:
    """A GraphDatabase in another process, with the same methods; a process that dies is started again.

    Used by one thread at a time. `command` runs `serve_batches`.
    """

    def __init__(self, folder: Path, settings: GraphSettings, command: Sequence[str]) -> None:
        self.folder = folder
        self._settings = settings
        self.retention_days = settings.retention_days
        self._command = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._position = 0
        self._received_at = 0.0
        self._start()

    @property
    def position(self) -> int:
        """The position in the log of the first event that is not ingested; 0 for a new graph."""
        if self._process is None:
            self._start()
        return self._position

    @property
    def last_received_at(self) -> float:
        """When the last event in the graph at the start of the process was received; 0 if unknown."""
        return self._received_at

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            done = self._ask(Start(str(self.folder), self._settings))
            self._position, self._received_at = done.position, done.received_at
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The id of the process; 0 while none runs."""
        return self._process.pid if self._process is not None else 0

    def ingest_received(
        self, events: Iterable[tuple[float, bytes]], position: int | None = None
    ) -> IngestResult:
        """Ingest events in one transaction; they are on disk when this returns."""
        result = IngestResult(*self._request(Batch(list(events), position)).result)
        if position is not None:
            self._position = position
        return result

    def clean_up(self, now: float) -> int:
        """Remove rows beyond the retention limits at the time `now`; returns how many."""
        return self._request(Batch(None, now=now)).removed

    def _request(self, message: Batch) -> Done:
        if self._process is None:
            self._start()
        return self._ask(message)

    def _ask(self, message: Start | Batch) -> Done:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            send(process.stdin, message)
            content = receive(process.stdout)
        except OSError:
            content = None
        if content is None:
            self.close()
            raise LogUnavailable(
                f"The process of the graph ended (exit code {process.returncode}).",
                hint="It is started again; events wait in the log.",
            )
        done = msgspec.msgpack.decode(content, type=Done)
        if done.error:
            self._position = min(self._position, done.position)  # lower if a new graph was begun
            raise KINDS[done.kind](done.error, hint=done.hint)
        return done

    def close(self) -> None:
        """Let the process finish its batch and end; kill it if it does not."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.close()  # its end of messages
        except OSError:
            pass
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def send(stream: BinaryIO | Any, message: msgspec.Struct) -> None:
    """Write a message."""
    content = msgspec.msgpack.encode(message)
    stream.write(_LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def receive(stream: BinaryIO | Any) -> bytes | None:
    """The next message; None at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    size = _LENGTH.unpack(head)[0]
    content: bytes = stream.read(size)
    return content if len(content) == size else None


def read_start(stream: BinaryIO) -> Start | None:
    """The first message of a process; None if the server has ended already."""
    content = receive(stream)
    return msgspec.msgpack.decode(content, type=Start) if content is not None else None


def serve_batches(start: Start, requests: BinaryIO, answers: BinaryIO) -> None:
    """Ingest batches until the server closes the stream or dies."""
    # The server ends this process, after the batch; a signal of the terminal goes to all processes.
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if sys.platform != "win32":
            os.nice(NICE)
    try:
        database = _opened(start)
    except HeadwaterError as error:
        send(answers, _failed(error))
        return
    try:
        send(answers, Done(database.position, database.last_received_at))
        while (content := receive(requests)) is not None:
            send(answers, _answer(database, msgspec.msgpack.decode(content, type=Batch)))
    except BrokenPipeError:
        pass  # the server was killed
    finally:
        database.close()


def _opened(start: Start) -> GraphDatabase:
    """The graph; waits a little for the process of a server that was killed to let go of it."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return GraphDatabase(Path(start.folder), start.settings)
        except LogLocked:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def _answer(database: GraphDatabase, batch: Batch) -> Done:
    try:
        if batch.events is None:
            return Done(removed=database.clean_up(batch.now))
        result = database.ingest_received(batch.events, batch.position)
        return Done(result=(result.events, result.invalid, result.mistimed, dict(result.left_out)))
    except HeadwaterError as error:
        return _failed(error, database.position)
    except Exception as error:
        return Done(database.position, error=f"{type(error).__name__}: {error}")


def _failed(error: HeadwaterError, position: int = 0) -> Done:
    kind = next((kind for kind, type in KINDS.items() if kind and isinstance(error, type)), "")
    return Done(position, error=error.text, hint=error.hint, kind=kind)

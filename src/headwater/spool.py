"""A durable transport for openlineage-python: for producers that have no sidecar beside them.

    transport:
      type: headwater.spool.SpoolTransport
      path: /var/spool/headwater
      url: https://backend.example

An event is on the local disk when `emit` returns; it is sent in the background, in order, and retried while
the backend is unreachable. Events that are left when the process ends, even by kill -9, are sent by the next
process that uses the same `path`, or by another one that is running.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import logging
import os
import re
import secrets
import socket
import threading
import time
import weakref
from pathlib import Path
from typing import Annotated, Any

import attr
import msgspec
from openlineage.client.serde import Serde
from openlineage.client.transport import Config, Transport

from headwater.delivery.outlet_worker import OutletWorker
from headwater.delivery.outlets.base import load_outlet
from headwater.delivery.outlets.http_client import HttpClient, TlsOptions, needs_proxy
from headwater.errors import HeadwaterError, LogLocked, OutletUnavailable, SettingsError
from headwater.log.queue.log import Log
from headwater.log.queue.sqlite_fork_guard import guard_forks
from headwater.log.rejects.store import RejectStore
from headwater.metrics import Metrics
from headwater.settings import Bytes, Hours, LogSettings, OutletSettings, Seconds, convert, doc
from headwater.system.durable_files import FolderLock

__all__ = ["SpoolConfig", "SpoolSettings", "SpoolTransport"]

logger = logging.getLogger(__name__)

MIB = 1024 * 1024
# Folders with other names below `path` are not ours: they are neither opened nor removed.
FOLDER_NAME = re.compile(r"spool-\d{20}-\d+-[0-9a-f]{8}")
POLL_SECONDS = 0.05
DRAIN_CLOSE_SECONDS = 5.0
COMMIT_SECONDS = 1.0  # for the last commit of a cursor, which a disk does in milliseconds


class SpoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The spool's own keys; all others are those of the `openlineage` outlet."""

    path: Annotated[str, doc("Folder on a local disk; for one backend, shared by any number of processes.")]
    retention_hours: Annotated[Hours, doc("Events that are older are dropped, delivered or not.")] = 168.0
    retention_bytes: Annotated[
        Bytes, doc("Bytes on disk per process; beyond it the oldest events are dropped.")
    ] = 256 * MIB
    close_timeout_seconds: Annotated[
        Seconds, doc("Time to deliver what is left at `close()` without a timeout, and at exit.")
    ] = 5.0
    adopt_seconds: Annotated[
        Seconds, doc("Pause between two looks for what processes that have ended left behind.")
    ] = 30.0


@attr.define
class SpoolConfig(Config):
    """The keys of the transport's section: `path`, limits, and all options of the `openlineage` outlet."""

    spool: SpoolSettings
    options: dict[str, Any]

    @classmethod
    def from_dict(cls, params: dict[str, Any]) -> SpoolConfig:
        """Build the config; `auth: {type: api_key, apiKey: …}` works as in the client's HTTP transport."""
        options = {key: value for key, value in params.items() if key not in ("type", "name", "priority")}
        auth = options.pop("auth", None)
        if auth is not None:
            key = auth.get("apiKey") or auth.get("api_key") if isinstance(auth, dict) else None
            if not key or auth.get("type") != "api_key":
                raise SettingsError(["`auth` must be {type: api_key, apiKey: …}"], source="spool transport")
            options["api_key"] = key
        own = {name: options.pop(name) for name in SpoolSettings.__struct_fields__ if name in options}
        config = cls(convert(own, SpoolSettings, source="spool transport"), options)
        load_outlet(config.outlet("spool"))  # so that a wrong key is reported now, not in the background
        return config

    def outlet(self, name: str) -> OutletSettings:
        """The settings of the outlet that sends the events of the sub-folder `name`."""
        return OutletSettings(name=name, type="openlineage", options=dict(self.options))

    @property
    def log(self) -> LogSettings:
        """Small partitions: a producer's spool is nearly always nearly empty."""
        return LogSettings(
            partition_bytes=min(4 * MIB, max(1, self.spool.retention_bytes // 4)),
            retention_hours=self.spool.retention_hours,
            retention_bytes=self.spool.retention_bytes,
        )


class _Folder:
    """One sub-folder, open: a log and the worker that delivers it."""

    def __init__(self, path: Path, config: SpoolConfig, rejects: RejectStore) -> None:
        self.path = path
        metrics = Metrics()
        self.log = Log.open(path, config.log, metrics=metrics)
        self._worker = OutletWorker(config.outlet(path.name), self.log, rejects, metrics)
        self._worker.start()

    def is_drained(self) -> bool:
        found = [reader for reader in self.log.stat().readers if reader.name == self.path.name]
        return bool(found) and found[0].lag_events == 0

    def wait(self, deadline: float, stop: threading.Event | None = None) -> bool:
        """Whether everything was delivered before the deadline (of the monotonic clock) or `stop`."""
        while not self.is_drained():
            left = deadline - time.monotonic()
            if left <= 0 or (stop is not None and stop.is_set()):
                return False
            time.sleep(min(POLL_SECONDS, left))
        return True

    def close(self, deadline: float) -> bool:
        """Close, and remove the folder if all its events are finished; return whether they are."""
        self._worker.close(max(0.0, min(DRAIN_CLOSE_SECONDS, deadline - time.monotonic())) + 0.1)
        is_drained = self.is_drained()
        self.log.close()
        if is_drained:
            _remove(self.path)
        return is_drained


def _remove(path: Path) -> None:
    """Remove a drained sub-folder, unless another process has just opened it, which will then remove it."""
    try:
        lock = FolderLock(path)
    except (LogLocked, OSError):
        return
    try:
        for found in sorted(path.rglob("*"), reverse=True):
            found.rmdir() if found.is_dir() else found.unlink(missing_ok=True)
        path.rmdir()
    except OSError as error:
        logger.debug("%s stays for now: %s", path, error)
    finally:
        lock.release()


class SpoolTransport(Transport):
    """Appends to a log of its own below `path` and delivers in the background.

    Thread-safe. Any number of processes may share one `path`, for one backend: each has a sub-folder of its
    own, and takes over those whose process has ended. `emit` raises only if the local disk does not take the
    event (it is then not kept); a failing backend never affects the job.
    """

    kind = "headwater_spool"
    config_class = SpoolConfig

    def __init__(self, config: SpoolConfig) -> None:
        self.config = config
        guard_forks()  # programs with this transport fork, as Airflow's workers do for each task
        _load_http(needs_proxy(str(config.options.get("url", ""))))
        self._opening = threading.Lock()
        self._open()
        _open_transports.add(self)

    def _open(self) -> None:
        root = Path(self.config.spool.path).expanduser()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)  # events may name what others must not know
        self._root = root
        self._process = os.getpid()
        self._is_closed = False
        self._stop = threading.Event()
        log = self.config.log
        self._rejects = RejectStore(
            root / "rejects.db",
            max_bytes=log.rejects_bytes,
            retention_bytes=log.retention_bytes,
            retention_hours=log.retention_hours,
        )
        self._own = self._create()
        self._adopter = threading.Thread(target=self._adopt_all, name="headwater-spool", daemon=True)
        self._adopter.start()

    def _create(self) -> _Folder:
        while True:
            # the time first, so that what was left behind is adopted in the order in which it was begun
            name = f"spool-{time.time_ns():020d}-{os.getpid()}-{secrets.token_hex(4)}"
            try:
                return _Folder(self._root / name, self.config, self._rejects)
            except LogLocked:
                continue  # an adopter was quicker between our making the folder and locking it

    def emit(self, event: Any) -> None:
        """Put the event on disk; when this returns it will be delivered, by this process or another one."""
        body = Serde.to_json(event).encode()
        if self._process != os.getpid():
            self._reopen_after_fork()
        if self._is_closed:
            raise HeadwaterError("The spool transport is closed.", hint="Emit before `close`.")
        self._own.log.append_wait([body])

    def _reopen_after_fork(self) -> None:
        """A forked child has none of the threads, and must leave its parent's files alone."""
        with self._opening:
            if self._process != os.getpid():
                _inherited.append((self._own, self._rejects))
                self._open()

    def close(self, timeout: float = -1) -> bool:
        """Deliver this process's pending events for at most `timeout` seconds; return whether none is left.

        A negative timeout means `close_timeout_seconds`: events that are left are on disk, and a job should
        not wait for a backend that is unreachable. The last commit to disk may take a second more.
        """
        if self._is_closed or self._process != os.getpid():
            return True
        self._is_closed = True
        wait = self.config.spool.close_timeout_seconds if timeout < 0 else timeout
        deadline = time.monotonic() + wait
        self._stop.set()
        drained = threading.Event()
        # In a thread of its own, so that neither a disk that hangs nor a lock can hold up the job.
        closer = threading.Thread(target=self._close, args=(deadline, drained), daemon=True)
        closer.start()
        closer.join(wait + COMMIT_SECONDS)
        _open_transports.discard(self)
        if not (is_drained := drained.is_set()):
            logger.warning(
                "Events are left in %s; the next process with this path sends them.", self._own.path
            )
        return is_drained

    def _close(self, deadline: float, drained: threading.Event) -> None:
        self._own.wait(deadline)
        self._adopter.join(max(0.0, deadline - time.monotonic()))  # what it adopted stays on disk
        if self._own.close(deadline):
            drained.set()
        if not self._adopter.is_alive():
            self._rejects.close()

    def _adopt_all(self) -> None:
        while not self._stop.is_set():
            try:
                for path in sorted(self._root.iterdir()):
                    if self._stop.is_set():
                        return
                    if FOLDER_NAME.fullmatch(path.name) and path != self._own.path:
                        self._adopt(path)
            except Exception:
                logger.warning(
                    "The search for left spools in %s failed; it is repeated.", self._root, exc_info=True
                )
            self._stop.wait(self.config.spool.adopt_seconds)

    def _adopt(self, path: Path) -> None:
        """Deliver what a process that has ended left behind; one folder at a time bounds the memory (G8)."""
        try:
            folder = _Folder(path, self.config, self._rejects)
        except (LogLocked, FileNotFoundError):
            return  # its process lives, or another adopter was faster
        except HeadwaterError as error:
            logger.warning("%s cannot be adopted: %s", path, error)
            return
        try:
            folder.wait(float("inf"), self._stop)
        finally:
            folder.close(time.monotonic())


@functools.cache
def _load_http(needs_proxy: bool) -> None:
    """Load what an HTTP client imports only when it is first used, before any thread of ours runs.

    A fork in the middle of such an import would leave the child waiting without end for a module that no
    thread finishes loading.
    """

    async def ask_closed_port() -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))  # but does not listen: refused at once
            url = f"http://localhost:{closed.getsockname()[1]}/"
            if needs_proxy:
                import httpx2

                async with httpx2.AsyncClient(trust_env=False) as proxied:
                    with contextlib.suppress(httpx2.HTTPError):
                        await proxied.get(url)
            client = HttpClient(url=url, headers={}, tls=TlsOptions(), use_proxy=False)
            client.open()
            with contextlib.suppress(OutletUnavailable):
                await client.post(url, b"")
            await client.close()

    # in a thread, since the caller may be inside a loop of its own
    loading = threading.Thread(target=lambda: asyncio.run(ask_closed_port()), name="headwater-spool-load")
    loading.start()
    loading.join()


_open_transports: weakref.WeakSet[SpoolTransport] = weakref.WeakSet()
_inherited: list[
    object
] = []  # a child keeps its parent's objects untouched: closing them could harm the files


def _close_open_transports() -> None:
    for transport in list(_open_transports):
        transport.close()


# A plain atexit function runs after the process's thread pools have closed, too late to deliver anything;
# this one runs before, and is what those pools use themselves. Nothing is lost either way.
getattr(threading, "_register_atexit", atexit.register)(_close_open_transports)

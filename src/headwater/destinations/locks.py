"""Locks: one pipeline at a time changes a table.

The settings choose the service: files (all pipelines on one machine), a Postgres server, or a Redis server.
Each releases a lock when its holder dies: the kernel closes the file, Postgres ends the session, and the key
in Redis expires. A holder whose key has expired may still be patching; patches are idempotent.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from headwater.errors import DestinationUnavailable, ExtensionError, LockTaken, SettingsError
from headwater.settings import LockSettings
from headwater.system.durable_files import try_lock
from headwater.system.installation import install_command

_PAUSE_SECONDS = 0.05


class Locks(ABC):
    """A service that keeps the locks of tables."""

    def __init__(self, place: str | Path, timeout_seconds: float = 60.0) -> None:
        """`place` is the folder or the server's URL."""
        self._place = str(place)
        self.timeout_seconds = timeout_seconds

    @contextmanager
    def hold(self, destination: str, table: str) -> Iterator[None]:
        """Hold the lock of a table; LockTaken if another pipeline holds it for too long."""
        limit = time.monotonic() + self.timeout_seconds
        with self._service(destination, table) as attempt:
            while not attempt():
                if time.monotonic() >= limit:
                    raise LockTaken(
                        f"another pipeline has worked on the table {table!r} of the destination "
                        f"{destination} for {self.timeout_seconds:g} seconds.",
                        hint="The load is retried; for slow patches raise `pipeline.lock.timeout_seconds`.",
                    )
                time.sleep(_PAUSE_SECONDS)
            yield

    @abstractmethod
    def _service(self, destination: str, table: str) -> AbstractContextManager[Any]:
        """Yield a function that tries to take the lock; the end of the block releases it."""


class FileLocks(Locks):
    """Locks in a folder, for pipelines on one machine."""

    @contextmanager
    def _service(self, destination: str, table: str) -> Iterator[Any]:
        folder = Path(self._place)
        folder.mkdir(parents=True, exist_ok=True)
        # never unlinked: another process may wait for a lock on this very file
        fd = os.open(
            folder / f"{_digest(destination, table).hex()}.lock",
            os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
            0o644,
        )
        try:
            yield lambda: try_lock(fd)
        finally:
            os.close(fd)


class PostgresLocks(Locks):
    """Advisory locks of a Postgres server."""

    @contextmanager
    def _service(self, destination: str, table: str) -> Iterator[Any]:
        psycopg = _module("psycopg", "postgres")
        number = int.from_bytes(_digest(destination, table), "big", signed=True)
        try:
            # a new session: Postgres grants the same lock twice within one session
            connection = psycopg.connect(self._place, autocommit=True, connect_timeout=10)
        except psycopg.Error as error:
            raise _unavailable("Postgres", error) from error
        with connection:

            def attempt() -> bool:
                try:
                    return bool(connection.execute("SELECT pg_try_advisory_lock(%s)", [number]).fetchone()[0])
                except psycopg.Error as error:
                    raise _unavailable("Postgres", error) from error

            yield attempt


_IF_MINE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call({}) end return 0"
_RELEASE = _IF_MINE.format("'del', KEYS[1]")
_RENEW = _IF_MINE.format("'pexpire', KEYS[1], ARGV[2]")


class RedisLocks(Locks):
    """Keys of a Redis server that expire, unless their holder renews them."""

    def __init__(self, url: str, timeout_seconds: float = 60.0, expiry_seconds: float = 30.0) -> None:
        super().__init__(url, timeout_seconds)
        self._expiry = int(expiry_seconds * 1000)

    @contextmanager
    def _service(self, destination: str, table: str) -> Iterator[Any]:
        redis = _module("redis", "redis")
        client = redis.Redis.from_url(self._place, socket_timeout=10, socket_connect_timeout=10)
        name, mine = f"headwater:lock:{_digest(destination, table).hex()}", uuid.uuid4().hex
        taken, left = threading.Event(), threading.Event()

        def attempt() -> bool:
            try:
                if client.set(name, mine, nx=True, px=self._expiry):
                    taken.set()
            except redis.RedisError as error:
                raise _unavailable("Redis", error) from error
            return taken.is_set()

        def renew() -> None:
            while not left.wait(self._expiry / 3000):
                try:
                    if taken.is_set():
                        client.eval(_RENEW, 1, name, mine, self._expiry)
                except redis.RedisError:
                    pass  # two more tries are left before it expires

        renewal = threading.Thread(target=renew, name="lock-renewal", daemon=True)
        renewal.start()
        try:
            yield attempt
        finally:
            left.set()
            renewal.join()
            try:
                client.eval(_RELEASE, 1, name, mine)
            except redis.RedisError:
                pass  # it expires
            client.close()


_BY_URL: dict[str, type[PostgresLocks] | type[RedisLocks]] = {"postgres": PostgresLocks, "redis": RedisLocks}


def load_locks(settings: LockSettings, folder: Path) -> Locks:
    """The lock service that the settings name; `folder` is the default folder of lock files."""
    service = _BY_URL.get(settings.type)
    if service is None:
        return FileLocks(Path(settings.dir) if settings.dir else folder, settings.timeout_seconds)
    if not settings.url:
        raise SettingsError([f"`pipeline.lock.url` is missing; `{settings.type}` needs it"])
    return service(settings.url, settings.timeout_seconds)


def _digest(destination: str, table: str) -> bytes:
    """A short id of a table for every service, whatever the length and alphabet of its name."""
    return blake2b(f"{len(destination)}:{destination}{table}".encode(), digest_size=8).digest()


def _module(name: str, extra: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise ExtensionError(
            f"locks of this type need {name}: {error}.", hint=f"Run `{install_command(extra)}`."
        ) from error


def _unavailable(service: str, error: Exception) -> DestinationUnavailable:
    text = str(error).strip().split("\n", 1)[0]
    return DestinationUnavailable(
        f"the lock service ({service}) does not answer: {text}.",
        hint="Check `pipeline.lock.url`; the load is retried.",
    )

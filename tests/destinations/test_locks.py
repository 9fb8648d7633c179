"""One holder at a time, whichever service keeps the lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.destinations.locks import FileLocks, Locks, PostgresLocks, RedisLocks, load_locks
from headwater.errors import DestinationUnavailable, LockTaken, SettingsError
from headwater.settings import LockSettings
from tests.parts.cache import Missing
from tests.parts.postgres import PostgresServer
from tests.parts.redis import RedisServer

Maker = Callable[[float], Locks]

HOLDER = """
import sys, time
from pathlib import Path
from headwater.destinations.locks import FileLocks, PostgresLocks, RedisLocks
kind, where = sys.argv[1:]
locks = {
    "file": lambda: FileLocks(Path(where)),
    "postgres": lambda: PostgresLocks(where),
    "redis": lambda: RedisLocks(where, expiry_seconds=1.0),
}[kind]()
with locks.hold("dwh", "t"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    pytest.importorskip("redis", reason="redis is missing: pip install 'headwater[redis]'")
    try:
        server = RedisServer()
    except Missing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture(params=["file", "postgres", pytest.param("redis", marks=pytest.mark.long)])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    if request.param == "file":
        return "file", str(tmp_path / "locks")
    server: PostgresServer | RedisServer = request.getfixturevalue(request.param)
    return request.param, server.url


@pytest.fixture
def make(service: tuple[str, str]) -> Maker:
    kind, where = service
    if kind == "file":
        return lambda timeout: FileLocks(Path(where), timeout)
    if kind == "postgres":
        return lambda timeout: PostgresLocks(where, timeout)
    return lambda timeout: RedisLocks(where, timeout, expiry_seconds=1.0)


def test_only_one_works_at_a_time_when_many_want_to(make: Maker) -> None:
    inside, most, done, guard = 0, 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, most, done
        for _ in range(3):
            with make(120).hold("dwh", "busy table"):
                with guard:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.005)
                with guard:
                    inside -= 1
                    done += 1

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, done) == (1, 15)


def test_the_second_gets_a_retryable_error_when_the_first_does_not_let_go(make: Maker) -> None:
    with make(60).hold("dwh", "t"):
        with pytest.raises(LockTaken, match=r"'t'.*dwh") as caught, make(0.2).hold("dwh", "t"):
            pass
        assert caught.value.retryable
    with make(0.2).hold("dwh", "t"):
        pass


def test_others_go_on_when_they_want_another_table_or_destination(make: Maker) -> None:
    held = []
    with make(5).hold("dwh", "t"), make(5).hold("dwh", "u"), make(5).hold("dw", "ht"):
        held.append("all three")
    assert held == ["all three"]


def test_the_lock_is_free_when_its_holder_raised(make: Maker) -> None:
    with pytest.raises(RuntimeError, match="mine"), make(5).hold("dwh", "t"):
        raise RuntimeError("mine")
    with make(0.2).hold("dwh", "t"):
        pass


def test_the_lock_is_free_again_when_its_holder_is_killed(service: tuple[str, str], make: Maker) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, *service], stdout=subprocess.PIPE, env={**os.environ}
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockTaken), make(1.5).hold("dwh", "t"):  # longer than Redis keeps it by itself
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    with make(60).hold("dwh", "t"):
        pass


@pytest.mark.parametrize(
    "locks",
    [PostgresLocks("postgresql://127.0.0.1:1/none"), RedisLocks("redis://127.0.0.1:1")],
    ids=lambda locks: type(locks).__name__,
)
def test_a_retry_is_advised_when_the_service_is_not_there(locks: Locks) -> None:
    with pytest.raises(DestinationUnavailable) as caught, locks.hold("dwh", "t"):
        pass
    assert caught.value.retryable


def test_the_service_is_the_one_that_the_settings_name_when_it_is_loaded(tmp_path: Path) -> None:
    assert isinstance(load_locks(LockSettings(), tmp_path), FileLocks)
    assert isinstance(
        load_locks(LockSettings(type="postgres", url="postgresql://h/d"), tmp_path), PostgresLocks
    )
    assert isinstance(load_locks(LockSettings(type="redis", url="redis://h"), tmp_path), RedisLocks)
    with load_locks(LockSettings(dir=str(tmp_path / "mine")), tmp_path / "other").hold("dwh", "t"):
        assert [path.suffix for path in (tmp_path / "mine").iterdir()] == [".lock"]


def test_the_missing_url_is_named_when_a_server_is_chosen(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"pipeline\.lock\.url"):
        load_locks(LockSettings(type="redis"), tmp_path)

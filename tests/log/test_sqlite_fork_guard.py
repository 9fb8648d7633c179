"""Forks while other threads use SQLite: each child can open a database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FORKER = """
import os, sys, threading
from pathlib import Path
from headwater.log.queue.sqlite_fork_guard import guard_forks
from headwater.log.queue.sqlite import connect, select

folder = Path(sys.argv[1])
if sys.argv[2] == "guarded":
    guard_forks()
stop = threading.Event()

def use(name):
    while not stop.is_set():
        connection = connect(folder / name, create=True)
        connection.execute("CREATE TABLE IF NOT EXISTS t(x)")
        with connection:
            connection.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(20)])
        for row in connection.execute("SELECT x FROM t LIMIT 20"):
            pass
        connection.close()

threads = [threading.Thread(target=use, args=(f"{number}.db",)) for number in range(3)]
for thread in threads:
    thread.start()
for number in range(int(sys.argv[3])):
    if (child := os.fork()) == 0:
        connection = connect(folder / f"child-{number}.db", create=True)
        connection.execute("CREATE TABLE t(x)")
        assert select(connection, "SELECT count(*) FROM t") == [(0,)]
        connection.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
"""


def fork(folder: Path, mode: str, forks: int, timeout: float) -> None:
    command = [sys.executable, "-c", FORKER, str(folder), mode, str(forks)]
    subprocess.run(command, timeout=timeout, check=True, capture_output=True, text=True)


def test_every_child_uses_sqlite_when_threads_of_its_parent_do(tmp_path: Path) -> None:
    fork(tmp_path, "guarded", 40, 120)

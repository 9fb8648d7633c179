"""A file system that really runs full: acknowledged events stay, and all goes on when space returns (G9)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import LogFull
from headwater.log.queue.log import Log
from headwater.log.rejects.store import NewReject, RejectStore
from tests.log.parts import adds_up, body, fill, read_all, small


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small tmpfs needs root and the right to mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill_up(log: Log) -> list[bytes]:
    """Append until the disk is full; what was acknowledged."""
    taken: list[bytes] = []
    while True:
        try:
            log.append_wait([body(len(taken), 20_000)])
        except LogFull:
            return taken
        taken.append(body(len(taken), 20_000))


def test_nothing_is_lost_and_it_heals_when_the_file_system_runs_full(mounted: Path) -> None:
    log = Log.open(mounted / "log", small())
    rejects = RejectStore(mounted / "rejects.db", max_bytes=1 << 30)
    reader = log.reader("r")
    before = fill(log, 100)
    rejects.add("gateway", [NewReject("bad", b"first")])
    ballast = mounted / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    acknowledged = fill_up(log)
    with pytest.raises(LogFull):
        rejects.add("gateway", [NewReject("bad", bytes(100_000))])
    assert rejects.counts() == {"gateway": 1}
    # delivery goes on meanwhile, also over partitions that were closed long ago
    delivered = read_all(reader)
    assert [event.body for event in delivered] == before + acknowledged
    reader.finish([event.position for event in delivered[:50]])
    assert reader.position == 51

    ballast.unlink()
    after = fill(log, 20)
    log.collect()  # as every few seconds: stores the cursors that the disk had refused
    rejects.add("gateway", [NewReject("bad", bytes(100_000))])
    assert rejects.counts() == {"gateway": 2}
    assert [event.body for event in read_all(reader)] == (before + acknowledged + after)[50:]
    adds_up(log)
    log.close()
    rejects.close()
    log = Log.open(mounted / "log", small())
    assert [event.body for event in read_all(log.reader("r"))] == (before + acknowledged + after)[50:]
    adds_up(log)
    log.close()


def test_it_says_that_it_is_well_when_space_returns_and_no_event_comes(mounted: Path) -> None:
    log = Log.open(mounted / "log", small(retention_bytes=1 << 30, collect_seconds=0.05))
    ballast = mounted / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    fill_up(log)
    assert not log.healthy
    ballast.unlink()
    deadline = time.monotonic() + 30
    while not log.healthy and time.monotonic() < deadline:
        time.sleep(0.02)
    assert log.healthy
    assert not (mounted / "log" / "probe").exists()
    log.close()


def test_room_is_made_by_delivering_when_the_log_itself_fills_the_file_system(mounted: Path) -> None:
    log = Log.open(mounted / "log", small(retention_bytes=1 << 30))
    reader = log.reader("r")
    taken = len(fill_up(log))
    while events := reader.read(reader.position, 10, 1 << 20):
        reader.finish([event.position for event in events])
    assert reader.lag_events() == 0
    log.collect()
    assert fill(log, 20)
    assert reader.lag_events() == 20
    assert log.stat().readers[0].delivered == taken
    adds_up(log)
    log.close()

"""Pages are zeroed, swapped, misplaced, cut or flipped: the rest is served, and the loss counted (G9, G3)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.errors import LogUnavailable
from headwater.log.queue import offline
from headwater.log.queue.log import Log
from headwater.log.queue.partition_file import partition_paths
from headwater.log.rejects.schema import DAMAGED
from headwater.log.rejects.store import NewReject, RejectReader, RejectStore
from tests.log.page_damage import OP_BYTES, damaged
from tests.log.parts import adds_up, body, copy_of, fill, read_all, small

EVENTS = 60
FINISHED = (*range(1, 6), 8)
REJECTS = 40
CHANGES = st.lists(st.binary(min_size=OP_BYTES, max_size=OP_BYTES), min_size=1, max_size=3).map(b"".join)
few = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
many = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """In memory where that can be had: each example copies a log and syncs it."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as place:
        yield Path(place)


@pytest.fixture(scope="module")
def log(folder: Path) -> Path:
    """A log of three partitions or more, as a crash leaves it: the last one has a WAL."""
    log = Log.open(folder / "first", small(partition_bytes=96 * 1024))
    reader = log.reader("r")
    fill(log, EVENTS, size=4000, per_commit=4)
    reader.finish(FINISHED)
    assert len(log.stat().partitions) >= 3
    copy = copy_of(log.folder, folder / "log")
    log.close()
    return copy


def check_log(log: Path, name: str, changes: bytes) -> None:
    """Read a damaged copy of the log from outside, then serve it; `name` is the file that is changed."""
    bodies = {position: body(position, 4000) for position in range(1, EVENTS + 1)}
    with tempfile.TemporaryDirectory(dir=log.parent) as place:
        copy = copy_of(log, Path(place) / "log")
        path = copy / name
        before = path.read_bytes()
        path.write_bytes(damaged(before, changes))
        offline.stat(copy)
        problems = offline.verify(copy)
        exported = {event.position: event.body for event in offline.export(copy)}
        assert exported.items() <= bodies.items()
        assert problems or exported == bodies, "events are missing, and nothing is said"
        served = Log.open(copy, small(partition_bytes=96 * 1024))
        try:
            reader = served.reader("r")
            found = read_all(reader)
            assert {event.position: event.body for event in found}.items() <= bodies.items()
            assert [event.position for event in found] == sorted({event.position for event in found})
            adds_up(served)
            if not problems:
                # a cursor that lost its last moves sends events again (G4)
                assert {event.position for event in found} | {*FINISHED} == bodies.keys()
            reader.finish([event.position for event in found])
            assert served.append_wait([b"new"]) > EVENTS
            assert [event.body for event in read_all(reader)] == [b"new"]
            (stat,) = served.stat().readers
            assert stat.lag_events == 1  # nothing waits for an event that is gone
        finally:
            served.close()


def files_of(log: Path) -> list[str]:
    last = partition_paths(log)[-1].name
    closed = [path.name for path in partition_paths(log)[:-1]]
    return [closed[0], closed[1], last, f"{last}-wal", "index.db", "index.db-wal", "tail", "clock"]


@given(which=st.integers(0, 7), changes=CHANGES)
@few
def test_no_event_is_another_and_the_rest_is_served_when_pages_are_damaged(
    log: Path, which: int, changes: bytes
) -> None:
    check_log(log, files_of(log)[which], changes)


@pytest.mark.long
@given(which=st.integers(0, 7), changes=CHANGES)
@many
def test_no_event_is_another_and_the_rest_is_served_when_many_pages_are_damaged(
    log: Path, which: int, changes: bytes
) -> None:
    check_log(log, files_of(log)[which], changes)


def test_the_rest_is_served_when_each_sector_of_a_closed_partition_is_zeroed(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = partition_paths(log)[0].name
    sectors = (log / name).stat().st_size // 4096
    for sector in range(sectors):
        check_log(log, name, bytes([0, 1, sector >> 8, sector & 255, 0, 0]))
    assert "events were lost to damage before the reader r finished them" in caplog.text
    assert "they were over" not in caplog.text


@pytest.fixture(scope="module")
def rejects(folder: Path) -> Path:
    """A store of forty rejects, half of them of acknowledged events, whose replay is requested."""
    path = folder / "store" / "rejects.db"
    store = RejectStore(path, max_bytes=1 << 30)
    for number in range(1, REJECTS + 1):
        stage = "gateway" if number % 2 else "outlet:a"
        store.add(stage, [NewReject("bad", body(number, 1500), position=number, received_at=float(number))])
    store.request_replay(None)
    store.close()
    return path


def check_rejects(rejects: Path, changes: bytes) -> None:
    """Read a damaged copy of the store beside a server, then serve it."""
    with tempfile.TemporaryDirectory(dir=rejects.parent) as place:
        path = Path(place) / "rejects.db"
        path.write_bytes(damaged(rejects.read_bytes(), changes))
        try:
            reader = RejectReader(path)
            for reject in reader.list():
                assert reject.body == body(reject.position or 0, 1500) or reject.reason == DAMAGED
            reader.counts()
            reader.close()
        except LogUnavailable:
            pass  # it says that the file is damaged: tests/log/test_rejects.py
        store = RejectStore(path, max_bytes=1 << 30)
        try:
            known = store.list(limit=1000)
            good = {reject.position: reject.body for reject in known if not reject.is_damaged}
            assert good.items() <= {n: body(n, 1500) for n in range(1, REJECTS + 1)}.items()
            assert all(reject.reason == DAMAGED for reject in known if reject.is_damaged)
            assert len(known) == REJECTS or (path.parent / "damaged").exists()
            for stage in ("gateway", "outlet:a"):
                for reject in store.requested(stage):  # what will be sent
                    assert reject.body == body(reject.position or 0, 1500)
                assert not any(reject.is_damaged for reject in store.requested(stage))
            store.add("outlet:a", [NewReject("bad", b"new", position=1000)])
            assert store.list("outlet:a", limit=1000)[-1].body == b"new"
            assert sum(store.counts().values()) == len(known) + 1
        finally:
            store.close()


@given(changes=CHANGES)
@few
def test_no_reject_is_another_and_the_rest_is_kept_when_pages_are_damaged(
    rejects: Path, changes: bytes
) -> None:
    check_rejects(rejects, changes)


@pytest.mark.long
@given(changes=CHANGES)
@many
def test_no_reject_is_another_and_the_rest_is_kept_when_many_pages_are_damaged(
    rejects: Path, changes: bytes
) -> None:
    check_rejects(rejects, changes)

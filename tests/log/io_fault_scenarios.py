"""The work of the tests of failing disks: append, rotate, collect, archive, reject."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headwater.clock import ManualClock
from headwater.errors import HeadwaterError
from headwater.log.files.archive import archive, clean_archive
from headwater.log.files.file_status import FileStatus
from headwater.log.files.incoming import Incoming, finish_interrupted
from headwater.log.files.layout import unprocessed
from headwater.log.queue.log import Log
from headwater.log.queue.offline import commits
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from headwater.log.rejects.store import NewReject, RejectStore
from headwater.log.streams import STREAM_READER, Queues, StreamCursor, identity_of
from headwater.pipeline.stream.archive import StreamArchive
from headwater.settings import DestinationSettings, EventsSettings, LogSettings, Settings
from tests.log.event_parts import archived_events, events_in
from tests.log.parts import adds_up, read_all
from tests.support.io_faults import EXPECTED, Record

DAY = 86_400.0
START = 1_800_000_000.0


def event(number: int) -> bytes:
    return b'{"n":%d,"text":"%s"}' % (number, b"x" * (number % 7) * 100)


def numbers(bodies: Iterable[bytes]) -> Counter[int]:
    return Counter(json.loads(body)["n"] for body in bodies)


def none_lost_none_doubled(found: Counter[int], acknowledged: Iterable[int], appended: Iterable[int]) -> None:
    assert not (lost := set(acknowledged) - found.keys()), f"lost: {sorted(lost)}"
    assert not (doubled := [number for number, times in found.items() if times > 1]), f"doubled: {doubled}"
    assert not (foreign := found.keys() - set(appended)), f"never sent: {foreign}"


class EventFiles:
    """Events of two tokens are appended, and their files rotated."""

    def prepare(self, folder: Path) -> None: ...

    def work(self, folder: Path, record: Record) -> None:
        clock = ManualClock(START)
        incoming = Incoming(folder, EventsSettings(rotation_bytes=1_500), clock=clock)
        for number in range(14):
            with contextlib.suppress(HeadwaterError):
                incoming.append_wait("web" if number % 3 else "app", [event(number)])
                record(number)
            clock.advance(3)
        incoming.close()

    def check(self, folder: Path, recorded: list[Any]) -> None:
        finish_interrupted(folder)
        files = unprocessed(folder)
        found = numbers(body for file in files for body in events_in(file.path))
        none_lost_none_doubled(found, recorded, range(14))
        incoming = Incoming(folder)
        incoming.append_wait("web", [event(99)])
        incoming.close()
        assert len(unprocessed(folder)) == len(files) + 1


class LoadedFiles:
    """Files are marked as loaded, some events are rejected and replayed, and the files are archived."""

    def prepare(self, folder: Path) -> None:
        clock = ManualClock(START)
        incoming = Incoming(folder, clock=clock)
        for number in range(9):
            incoming.append_wait("web", [event(number)])
            if number % 3 == 2:
                incoming.rotate()
            clock.advance(1)
        incoming.close()

    def work(self, folder: Path, record: Record) -> None:
        finish_interrupted(folder)
        for file in unprocessed(folder):
            with contextlib.suppress(*EXPECTED):
                status = FileStatus.load(file)
                status.mark("dwh", "events", True, rows=2)
                status.save()
                record(["loaded", file.name])
                status.count("dwh", events=3, skipped=0, rejected=1)
                status.save()
                archive(file)
                record(["archived", file.name])
        clean_archive(folder, 30, clock=ManualClock(START + 3 * DAY))

    def check(self, folder: Path, recorded: list[Any]) -> None:
        finish_interrupted(folder)
        left = unprocessed(folder)
        names = {file.name for file in left}
        for what, name in recorded:
            assert not (what == "archived" and name in names), f"{name} was archived and is waiting"
            if name in names:
                status = FileStatus.load(next(file for file in left if file.name == name))
            else:
                status = FileStatus.read(next(folder.glob(f"archive/*/{name}.status")))
            assert status.is_done("dwh", "events"), f"{name} would be loaded again"
        for file in left:
            archive(file)
        none_lost_none_doubled(numbers(archived_events(folder)), range(9), range(9))


class DestinationFiles:
    """Rejects of a destination are written and replayed."""

    def prepare(self, folder: Path) -> None: ...

    def work(self, folder: Path, record: Record) -> None:
        rejects = DestinationRejects(folder)
        for number in range(0, 8, 2):
            with contextlib.suppress(*EXPECTED):
                errors = [self._reject(number), self._reject(number + 1)]
                rejects.append("dwh", errors)
                record(number)
                record(number + 1)
            if number % 4 == 2:
                with contextlib.suppress(*EXPECTED):
                    rejects.request_replay("dwh", START + number)

    @staticmethod
    def _reject(number: int) -> EventError:
        return EventError.of(event(number), "bad", destination_id="dwh", source=f"file:{number}", at=START)

    def check(self, folder: Path, recorded: list[Any]) -> None:
        finish_interrupted(folder)
        kept = [error.line() for error in DestinationRejects(folder).read("dwh")]
        replayed = [body for file in unprocessed(folder) for body in events_in(file.path)]
        none_lost_none_doubled(numbers(kept + replayed), recorded, range(8))


class StoredRejects:
    """Rejects of an outlet are added to the store, and some are replayed."""

    def prepare(self, folder: Path) -> None: ...

    def work(self, folder: Path, record: Record) -> None:
        store = RejectStore(folder / "rejects.db", max_bytes=1 << 30)
        for number in range(6):
            with contextlib.suppress(HeadwaterError):
                store.add("outlet:a", [NewReject("no", event(number), position=number + 1, received_at=5.0)])
                record(number)
        with contextlib.suppress(HeadwaterError):
            store.replayed(*(each.id for each in store.list("outlet:a", limit=2)))
        store.close()

    def check(self, folder: Path, recorded: list[Any]) -> None:
        store = RejectStore(folder / "rejects.db", max_bytes=1 << 30)
        kept = numbers(each.body for each in store.list("outlet:a"))
        settled = sum(each.events for each in store.settlements("outlet:a"))
        assert settled <= 2
        assert len(set(recorded) - kept.keys()) <= settled, f"lost: {set(recorded) - kept.keys()}"
        none_lost_none_doubled(kept, (), range(6))
        assert store.counts().get("outlet:a", 0) == len(kept)
        assert not store.totals().dropped
        store.add("outlet:a", [NewReject("no", event(9), position=10, received_at=5.0)])
        store.close()


class QueueWithLimits:
    """A queue whose partitions are rotated, finished by a reader, and removed by age and by size."""

    settings = LogSettings(
        partition_bytes=64 * 1024, retention_bytes=256 * 1024, retention_hours=1, collect_seconds=3600
    )

    def prepare(self, folder: Path) -> None: ...

    def work(self, folder: Path, record: Record) -> None:
        clock = ManualClock(START)
        log = Log.open(folder / "log", self.settings, clock=clock)
        reader = log.reader("steady")
        log.reader("left behind")
        can_read = True
        for number in range(16):
            with contextlib.suppress(HeadwaterError):
                first = log.append_wait([b"%d:" % number + bytes(40_000)])
                record(["appended", number, first])
            clock.advance(400)
            with contextlib.suppress(HeadwaterError):
                if number % 4 == 3:
                    log.collect()
            try:
                if can_read and number % 2 and (events := reader.read(reader.position, 1, 1 << 20)):
                    reader.finish(delivered=range(reader.position, events[-1].position + 1))
            except HeadwaterError:
                can_read = False  # each attempt waits until SQLite gives up
        log.close()

    def check(self, folder: Path, recorded: list[Any]) -> None:
        log = Log.open(folder / "log", LogSettings(collect_seconds=3600), clock=ManualClock(START + 16 * 400))
        kept = {
            event.position: int(event.body.split(b":")[0]) for event in read_all(log.reader("left behind"))
        }
        assert len(set(kept.values())) == len(kept), f"doubled: {kept}"
        appended = {position: number for _, number, position in recorded}
        lowest = min(kept, default=log.end)
        for position, number in appended.items():
            assert position < log.end, f"the acknowledged {position} is behind the end {log.end}"
            assert position < lowest or kept.get(position) == number, f"lost: {position}"
        for found in log.stat().readers:
            assert not found.dropped_damage, found
        adds_up(log)
        log.append_wait([b"99:"])
        log.close()


class StreamArchived:
    """The loaded events of a stream go to the archive, and out of the queue."""

    destination = DestinationSettings(id="dwh", type="duckdb", mode="stream")

    def prepare(self, folder: Path) -> None:
        queues = Queues(folder / "events", [self.destination])
        for number in range(6):
            queues.log("dwh").append_wait([event(number)])
        queues.close()

    def work(self, folder: Path, record: Record) -> None:
        queue = folder / "events" / "queue.dst=dwh"
        settings = Settings(data_dir=str(folder), destinations=(self.destination,))
        for end in (3, 5, 7):
            with contextlib.suppress(*EXPECTED):
                cursor = StreamCursor.load(queue, identity_of(queue))
                cursor.rows += end - cursor.position
                cursor.advance(end, next(commits(queue, 1)).epoch)
                cursor.save(queue)
                record(["loaded", end])
                StreamArchive(settings, "dwh", queue, cursor, threading.Lock()).run(START + end)
                record(["archived", end])
        queues = Queues(folder / "events", [self.destination], collect_seconds=3600)
        queues.collect_loaded()
        queues.close()

    def check(self, folder: Path, recorded: list[Any]) -> None:
        events = folder / "events"
        queues = Queues(events, [self.destination], collect_seconds=3600)
        cursor = StreamCursor.peek(queues.log("dwh").folder)
        loaded = max((end for what, end in recorded if what == "loaded"), default=1)
        position = cursor.position if cursor is not None else 1
        archived = cursor.archived if cursor is not None else 1
        assert position >= loaded, f"loaded up to {loaded}, the cursor is at {position}"
        found = numbers(archived_events(events))
        assert set(range(archived - 1)) <= found.keys(), f"archived below {archived}: {sorted(found)}"
        assert all(times == 1 for times in found.values()), found
        waiting = read_all(queues.log("dwh").reader(STREAM_READER))
        left = {json.loads(each.body)["n"] for each in waiting if each.position >= archived}
        assert left == set(range(archived - 1, 6)), f"{sorted(left)} wait above {archived}"
        queues.close()

"""An earlier copy of any part beside newer others, in stream mode: no event is lost, and none is doubled.

The way of an event into a table runs without Spark here: the gateway's queues, the ranges, plans and ledger
ids of the stream, and a real destination, for which pyarrow writes the staged file. `test_stream.py` runs
cases with Spark, `test_restored_files.py` has batch mode.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import msgspec
import pytest

from headwater.destinations.base import Destination
from headwater.log.backup import back_up, restore
from headwater.log.files.layout import EventFolder
from headwater.log.streams import Queues, StreamCursor, identity_of, stream_folder
from headwater.pipeline.stream.next_range import KnownLoads, NextRange, next_range, plan, step_back
from headwater.pipeline.stream.sources import QueueSource
from headwater.settings import Settings
from tests.log.parts import small
from tests.parts.postgres import PostgresServer
from tests.pipeline.warehouses import DuckDB, Postgres, Warehouse, store

PARTS = (
    "all",
    "queue",
    "queue without its index",
    "index",
    "cursor",
    "warehouse",
    "queue and cursor",
    "backup",
)


class Died(Exception):
    """The pipeline was killed here."""


class Installation:
    """A gateway and a pipeline on one folder, and the numbers of the events that were acknowledged."""

    def __init__(self, folder: Path, warehouse: Warehouse, random: random.Random) -> None:
        self.folder, self.warehouse, self._random = folder, warehouse, random
        raw = {
            "data_dir": str(folder),
            "destinations": [
                {"id": "dwh", "type": warehouse.type, "mode": "stream", "options": warehouse.options()}
            ],
        }
        self._settings = msgspec.convert(raw, Settings)
        self._source = QueueSource(self._settings, self._settings.destinations[0])
        self.queue = EventFolder(self._settings.events_dir).queue("dwh")
        self.queues: Queues | None = None
        self.acknowledged: list[int] = []
        self._next = 0

    # --- the gateway

    def start(self) -> None:
        log = small(partition_bytes=4096)
        self.queues = Queues(
            self._settings.events_dir, self._settings.destinations, log, collect_seconds=3600
        )

    def stop(self) -> None:
        if self.queues is not None:
            self.queues.close()
            self.queues = None

    def take(self, count: int) -> None:
        assert self.queues is not None
        while count > 0:
            numbers = range(self._next, self._next + self._random.randint(1, min(count, 20)))
            pad = self._random.randbytes(60).hex()
            self.queues.log("dwh").append_wait([json.dumps({"n": n, "x": pad}).encode() for n in numbers])
            self.acknowledged += numbers
            self._next, count = numbers.stop, count - len(numbers)

    def collect(self) -> None:
        assert self.queues is not None
        self.queues.collect_loaded()
        self.queues.log("dwh").collect()

    # --- the pipeline

    def pump(self, *, max_events: int = 40, dies: float = 0.0) -> None:
        """Load what waits; with a probability of `dies` the process ends in the middle of a range."""
        destination = self.warehouse.connect()
        try:
            self._pump(destination, max_events, dies)
        except Died:
            pass
        finally:
            destination.close()

    def _pump(self, destination: Destination, max_events: int, dies: float) -> None:
        cursor = StreamCursor.load(self.queue, identity_of(self.queue), self._source.oldest())
        if step_back(self._source, cursor):
            cursor.save(self.queue)
        known = KnownLoads(destination.loaded_between)
        while (found := next_range(self._source, cursor, max_events, 1 << 20)) is not None:
            plan(cursor, found)
            cursor.save(self.queue)
            self._maybe_die(dies)
            positions = found.positions(cursor, "dwh")
            there = known.of(positions).already_loaded(positions, "events")
            numbers = {
                position: json.loads(body)["n"]
                for commit in found.events
                for position, body in enumerate(commit.bodies, commit.first)
                if not any(first <= position < end for first, end in there)
            }
            if numbers:
                store(destination, positions.load_id("events"), numbers, self.folder)
            self._maybe_die(dies)
            self._done(cursor, found)

    def _done(self, cursor: StreamCursor, found: NextRange) -> None:
        cursor.advance(found.end, found.epoch)
        if self._random.random() < 0.5:
            cursor.archived = cursor.position
        cursor.save(self.queue)

    def _maybe_die(self, probability: float) -> None:
        if self._random.random() < probability:
            raise Died

    # --- copies

    def copy(self, to: Path) -> None:
        shutil.copytree(self.queue, to)
        (self.folder / "data").mkdir()
        back_up(self.folder / "data", self._settings.events_dir, self.folder / "backup")
        self.warehouse.copy()

    def restore(self, part: str, copy: Path) -> None:
        """Put a part of the copy beside the newer others."""
        own = stream_folder(self.queue)
        if part in ("all", "warehouse"):
            self.warehouse.restore()
        if part == "backup":
            shutil.rmtree(self._settings.events_dir)
            restore(self.folder / "backup", self.folder / "data", self._settings.events_dir)
        if part in ("all", "queue and cursor"):
            shutil.rmtree(self.queue)
            shutil.copytree(copy, self.queue)
        if part in ("queue", "queue without its index"):
            for path in self.queue.iterdir():
                if path != own and not (part != "queue" and path.name.startswith("index.db")):
                    path.unlink() if path.is_file() else shutil.rmtree(path)
            for path in copy.iterdir():
                if path.is_file() and not (part != "queue" and path.name.startswith("index.db")):
                    shutil.copyfile(path, self.queue / path.name)
        if part == "index":
            for path in self.queue.glob("index.db*"):
                path.unlink()
            for path in copy.glob("index.db*"):
                shutil.copyfile(path, self.queue / path.name)
        if part == "cursor":
            (own / "cursor.json").unlink(missing_ok=True)
            if (stream_folder(copy) / "cursor.json").exists():
                shutil.copyfile(stream_folder(copy) / "cursor.json", own / "cursor.json")

    def check(self, since: int) -> None:
        """Each event that was acknowledged after the restore is one row, and none is two."""
        rows = self.warehouse.rows()
        assert len(rows) == len(set(rows)), f"{len(rows) - len(set(rows))} doubled"
        assert not (lost := set(self.acknowledged[since:]) - set(rows)), (
            f"{len(lost)} lost: {sorted(lost)[:5]}"
        )


def some_days(at: Installation, part: str, *, is_hot: bool) -> None:
    """Traffic, crashes and restarts; a copy, more of them, the restore of a part, and more again."""
    random = at._random

    def traffic(days: int) -> None:
        for _ in range(days):
            at.take(random.randint(0, 60))
            at.pump(max_events=random.choice((15, 40, 1000)), dies=0.1)
            if random.random() < 0.3:
                at.collect()
            if random.random() < 0.3:
                at.stop()
                at.start()

    at.start()
    traffic(random.randint(1, 3))
    at.pump()
    if not is_hot:
        at.stop()
    at.copy(at.folder / "copy")
    if not is_hot:
        at.start()
    traffic(random.randint(1, 3))
    at.stop()
    at.restore(part, at.folder / "copy")
    since = len(at.acknowledged)
    at.start()
    if random.random() < 0.5:
        at.collect()  # before the pipeline has looked
    traffic(random.randint(1, 3))
    at.take(1)
    at.pump()
    at.collect()
    at.stop()
    at.check(since)


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> range:
    return range(200 if request.config.getoption("--full") else 2)


@pytest.mark.parametrize("is_hot", [pytest.param(True, marks=pytest.mark.long, id="hot"), False])
@pytest.mark.parametrize("part", PARTS)
def test_no_event_is_lost_or_doubled_when_a_part_is_an_earlier_copy(
    tmp_path: Path, part: str, is_hot: bool, seeds: range
) -> None:
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        some_days(Installation(folder, DuckDB(folder), random.Random(seed)), part, is_hot=is_hot)


def test_no_event_is_lost_or_doubled_when_a_part_is_an_earlier_copy_on_postgres(
    tmp_path: Path, postgres: PostgresServer, request: pytest.FixtureRequest
) -> None:
    is_full = request.config.getoption("--full")
    cases = [(part, is_hot) for part in PARTS for is_hot in (False, True)]
    for number, (part, is_hot) in enumerate(cases if is_full else random.sample(cases, 3)):
        print(f"{part}, {'hot' if is_hot else 'cold'}")
        folder = tmp_path / str(number)
        folder.mkdir()
        some_days(Installation(folder, Postgres(postgres), random.Random(number)), part, is_hot=is_hot)


def test_each_event_is_one_row_when_a_cloned_volume_lives_beside_the_original(tmp_path: Path) -> None:
    for seed in range(2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        warehouse, chance = DuckDB(folder), random.Random(seed)
        original = Installation(folder / "a", warehouse, chance)
        original.start()
        original.take(90)
        original.pump(max_events=20, dies=0.1)
        original.take(30)  # these wait in both
        shutil.copytree(folder / "a", folder / "b")
        clone = Installation(folder / "b", warehouse, chance)
        clone._next, clone.acknowledged = 1_000_000, []
        clone.start()
        for _ in range(6):
            chance.choice((original, clone)).take(chance.randint(0, 60))
            chance.choice((original, clone)).pump(max_events=chance.choice((7, 40)), dies=0.1)
        for each in (original, clone):
            each.pump()
            each.stop()
        original.check(0)
        clone.check(0)

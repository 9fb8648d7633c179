"""An earlier copy of any part beside newer others, in batch mode: no acknowledged event is lost or doubled.

The way of an event into a table runs without Spark here: the gateway's event files, their status, the names
of the loads and the archive, and a real destination, for which pyarrow writes the staged file.
"""

from __future__ import annotations

import json
import random
import shutil
from itertools import product
from pathlib import Path

import msgspec
import pytest

from headwater.destinations.base import Destination
from headwater.log.backup import back_up, restore
from headwater.log.files.archive import archive
from headwater.log.files.checked_lines import LineReader
from headwater.log.files.incoming import Incoming, finish_interrupted
from headwater.log.files.layout import EventFolder, unprocessed
from headwater.pipeline.batch.file_in_cycle import FileInCycle
from headwater.pipeline.load_report import FileReport, Outcome
from headwater.settings import Settings
from tests.parts.postgres import PostgresServer
from tests.pipeline.warehouses import DuckDB, Postgres, Warehouse, store

PARTS = ("all", "files", "event files", "statuses", "archive", "warehouse", "files and archive", "backup")


class Died(Exception):
    """The pipeline was killed here."""


class Installation:
    """A gateway and a batch pipeline on one folder, and the numbers of the events that were acknowledged."""

    def __init__(self, folder: Path, warehouse: Warehouse, random: random.Random) -> None:
        self.folder, self.warehouse, self.random = folder, warehouse, random
        raw = {
            "data_dir": str(folder / "data"),
            "destinations": [{"id": "dwh", "type": warehouse.type, "options": warehouse.options()}],
        }
        self._settings = msgspec.convert(raw, Settings)
        self.events = EventFolder(self._settings.events_dir)
        self._gateway: Incoming | None = None
        self.acknowledged: list[int] = []

    # --- the gateway

    def start(self) -> None:
        self._gateway = Incoming(self.events.path, destinations=self._settings.destinations)

    def stop(self) -> None:
        if self._gateway is not None:
            self._gateway.close()
            self._gateway = None

    def take(self, count: int) -> None:
        assert self._gateway is not None
        numbers = range(len(self.acknowledged), len(self.acknowledged) + count)
        pad = self.random.randbytes(60).hex()
        for n in numbers:
            token = self.random.choice(("web", "app"))
            self._gateway.append_wait(token, [json.dumps({"n": n, "x": pad}).encode()])
            self.acknowledged.append(n)

    def rotate(self) -> None:
        assert self._gateway is not None
        self._gateway.rotate()

    # --- the pipeline

    def cycle(self, *, dies: float = 0.0) -> None:
        """Load what is complete; with a probability of `dies` the process ends between two steps."""
        destination = self.warehouse.connect()
        try:
            finish_interrupted(self.events.path)
            for file in unprocessed(self.events.path):
                self._load(FileInCycle(file, FileReport(file.name)), destination, dies)
        except Died:
            pass
        finally:
            destination.close()

    def _load(self, file: FileInCycle, destination: Destination, dies: float) -> None:
        file.begin("dwh")
        if file.is_open("events"):
            lines = LineReader(file.file.path)
            numbers = dict(enumerate(json.loads(line.event)["n"] for line in lines))
            store(destination, file.load_id("events"), numbers, self.folder)
            self._maybe_die(dies)
            file.record("events", Outcome(rows=len(numbers)))
        self._maybe_die(dies)
        archive(file.file)

    def _maybe_die(self, probability: float) -> None:
        if self.random.random() < probability:
            raise Died

    # --- copies

    def copy(self) -> None:
        shutil.copytree(self.events.path, self.folder / "copy")
        back_up(self.folder / "data", self.events.path, self.folder / "backup")
        self.warehouse.copy()

    def restore(self, part: str) -> None:
        """Put a part of the copy beside the newer others."""
        if part in ("all", "warehouse"):
            self.warehouse.restore()
        if part == "backup":
            shutil.rmtree(self.folder / "data")
            restore(self.folder / "backup", self.folder / "data", self.events.path)
        copy = EventFolder(self.folder / "copy")
        if part == "all":
            shutil.rmtree(self.events.path)
            shutil.copytree(copy.path, self.events.path)
        if part in ("files", "files and archive"):
            self._replace(copy.incoming, self.events.incoming, "*.log*")
        if part == "event files":
            self._replace(copy.incoming, self.events.incoming, "*.log")
        if part == "statuses":
            self._replace(copy.incoming, self.events.incoming, "*.status")
        if part in ("archive", "files and archive"):
            self._replace(copy.archive, self.events.archive, "*/*")

    @staticmethod
    def _replace(source: Path, target: Path, pattern: str) -> None:
        for path in target.glob(pattern):
            path.unlink()
        for path in source.glob(pattern):
            place = target / path.relative_to(source)
            place.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, place)

    def check(self, since: int) -> None:
        """Each event that was acknowledged after the restore is one row, and none is two."""
        rows = self.warehouse.rows()
        assert len(rows) == len(set(rows)), f"{len(rows) - len(set(rows))} doubled"
        lost = set(self.acknowledged[since:]) - set(rows)
        assert not lost, f"{len(lost)} lost: {sorted(lost)[:5]}"


def some_days(at: Installation, part: str, *, is_hot: bool) -> None:
    """Traffic, crashes and restarts; a copy, more of them, the restore of a part, and more again."""
    random = at.random

    def traffic(days: int) -> None:
        for _ in range(days):
            at.take(random.randint(0, 12))
            if random.random() < 0.5:
                at.rotate()
            at.cycle(dies=0.15)
            if random.random() < 0.3:
                at.stop()
                at.start()

    at.start()
    at.take(1)
    traffic(random.randint(1, 3))
    at.stop()
    at.cycle()
    at.start()
    at.take(random.randint(0, 5))  # these wait
    if not is_hot:
        at.stop()
    at.copy()
    if not is_hot:
        at.start()
    traffic(random.randint(1, 3))
    at.stop()
    at.restore(part)
    since = len(at.acknowledged)
    at.start()
    traffic(random.randint(1, 3))
    at.take(1)
    at.stop()
    at.cycle()
    assert unprocessed(at.events.path) == []
    at.check(since)


@pytest.mark.parametrize("part", PARTS)
def test_no_event_of_a_file_is_lost_or_doubled_when_a_part_is_an_earlier_copy(
    tmp_path: Path, part: str, request: pytest.FixtureRequest
) -> None:
    for seed in range(100 if request.config.getoption("--full") else 2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        some_days(Installation(folder, DuckDB(folder), random.Random(seed)), part, is_hot=False)


def test_no_event_of_a_file_is_lost_or_doubled_when_the_backup_was_made_beside_the_server(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for seed in range(20 if request.config.getoption("--full") else 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        some_days(Installation(folder, DuckDB(folder), random.Random(seed)), "backup", is_hot=True)


def test_no_event_of_a_file_is_lost_or_doubled_when_a_part_is_an_earlier_copy_on_postgres(
    tmp_path: Path, postgres: PostgresServer, request: pytest.FixtureRequest
) -> None:
    cases = list(product(PARTS, range(2)))
    for number, (part, seed) in enumerate(
        cases if request.config.getoption("--full") else random.sample(cases, 3)
    ):
        print(f"{part}, {seed}")
        folder = tmp_path / str(number)
        folder.mkdir()
        some_days(Installation(folder, Postgres(postgres), random.Random(seed)), part, is_hot=False)

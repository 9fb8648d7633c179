"""`headwater backup` and `restore` as processes: killed, beside a server, beside loads."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from headwater.destinations.base import Destination
from headwater.log.files.archive import archive
from headwater.log.files.checked_lines import LineReader
from headwater.log.files.incoming import finish_interrupted
from headwater.log.files.layout import archived_files, unprocessed
from headwater.pipeline.batch.file_in_cycle import FileInCycle
from headwater.pipeline.load_report import FileReport, Outcome
from headwater.testing.processes import HeadwaterProcess
from tests.pipeline.warehouses import DuckDB, store

TOKEN = {"id": "web", "server_secret": "s"}


class Site:
    """A server with a token and a batch destination in a folder, and what it has acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warehouse = DuckDB(folder)
        self.settings: dict[str, Any] = {
            "gateway": {"port": 0},
            "data_dir": "data",
            "tokens": [TOKEN],
            "destinations": [{"id": "dwh", "type": "duckdb", "options": self.warehouse.options()}],
        }
        self.server = HeadwaterProcess(folder, "serve", settings=self.settings)
        self.acknowledged: list[int] = []
        self.events = folder / "data" / "events"

    def send(self, count: int) -> None:
        with httpx2.Client(base_url=self.server.url, headers={"X-Auth-Token": "s"}) as client:
            for _ in range(count):
                n = len(self.acknowledged)
                assert client.post("/api/v1/s2s/event", json={"n": n}).status_code == 200
                self.acknowledged.append(n)

    def run(self, *arguments: str, crash_point: str = "") -> HeadwaterProcess:
        """Run a command to its end."""
        process = HeadwaterProcess(self.folder, *arguments, name="command")
        process.start(crash_point)
        assert process.wait() is not None
        return process

    def cycle(self, destination: Destination) -> None:
        """Load all complete files, as a cycle of the pipeline does, but without Spark."""
        finish_interrupted(self.events)
        for file in unprocessed(self.events):
            loaded = FileInCycle(file, FileReport(file.name))
            loaded.begin("dwh")
            if loaded.is_open("events"):
                numbers = dict(enumerate(numbers_of(file.path)))
                store(destination, loaded.load_id("events"), numbers, self.folder)
                loaded.record("events", Outcome(rows=len(numbers)))
            archive(file)

    def load(self) -> None:
        destination = self.warehouse.connect()
        try:
            self.cycle(destination)
        finally:
            destination.close()


def numbers_of(path: Path) -> list[int]:
    return [json.loads(line.event)["n"] for line in LineReader(path)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    with made.server:
        made.send(20)
        yield made


@pytest.mark.long
def test_nothing_is_lost_or_doubled_when_backup_and_restore_are_killed(site: Site) -> None:
    for copied in (1, 3):
        killed = site.run("backup", "broken", crash_point=f"backup.after_file:{copied}")
        assert killed.exit_code == -9
        refused = site.run("restore", "broken")
        assert (refused.exit_code, "has no backup.json" in refused.output) == (1, True)
        assert site.run("backup", "broken").exit_code == 1  # it overwrites nothing
        subprocess.run(["rm", "-r", str(site.folder / "broken")], check=True)
    assert site.run("backup", "whole").exit_code == 0
    assert site.server.stop() == 0
    site.load()
    (site.folder / "data").rename(site.folder / "lost")
    killed = site.run("restore", "whole", crash_point="restore.after_file:2")
    assert killed.exit_code == -9
    commands = (
        ("serve",),
        ("up",),
        ("pipeline", "run"),
        ("pipeline", "stream"),
        ("pipeline", "backfill", "--destination", "dwh", "--since", "2026-11-16"),
        ("pipeline", "forget", "dwh", "-y"),
        ("backup", "again"),
        ("restore", "whole"),
        ("check",),
    )
    for command in commands:
        refused = site.run(*command)
        assert refused.exit_code in (1, 2), (command, refused.output)
        expected = "is not empty" if command[0] == "restore" else "was restored in part only"
        assert expected in refused.output, (command, refused.output)
    subprocess.run(["rm", "-r", str(site.folder / "data")], check=True)
    assert site.run("restore", "whole").exit_code == 0
    with site.server.start():
        site.send(5)
        assert site.server.stop() == 0
    site.load()
    assert sorted(site.warehouse.rows()) == site.acknowledged


def test_nothing_is_lost_or_doubled_when_the_backup_is_made_beside_loads(site: Site) -> None:
    stop = threading.Event()
    errors: list[BaseException] = []

    def load_and_send() -> None:
        destination = site.warehouse.connect()
        try:
            while not stop.is_set():
                site.send(5)
                site.cycle(destination)
        except BaseException as error:
            errors.append(error)
            raise
        finally:
            destination.close()

    loads = threading.Thread(target=load_and_send)
    loads.start()
    try:
        before = len(site.acknowledged)
        assert site.run("backup", "hot").exit_code == 0
    finally:
        stop.set()
        loads.join()
    assert errors == []
    assert site.server.stop() == 0
    site.load()
    assert sorted(site.warehouse.rows()) == site.acknowledged
    (site.folder / "data").rename(site.folder / "lost")
    assert site.run("restore", "hot").exit_code == 0
    waiting = [n for file in unprocessed(site.events) for n in numbers_of(file.path)]
    done = [n for file in archived_files(site.events) for n in numbers_of(file.path)]
    assert set(waiting) | set(done) >= set(range(before))
    with site.server.start():
        site.send(5)
        assert site.server.stop() == 0
    site.load()
    assert sorted(site.warehouse.rows()) == site.acknowledged


@pytest.mark.parametrize("command", ["run", "stream"])
def test_the_pipeline_refuses_when_a_restore_was_interrupted(tmp_path: Path, command: str) -> None:
    site = Site(tmp_path)
    (tmp_path / "data" / "restoring").mkdir(parents=True)
    refused = site.run("pipeline", command)
    assert (refused.exit_code, "headwater restore BACKUP" in refused.output) == (1, True)

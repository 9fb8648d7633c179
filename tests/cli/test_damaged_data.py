"""A data folder with a damaged file: commands change nothing, and a server starts in spite of it (G9)."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import shutil
from contextlib import closing
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.cli.main import cli
from headwater.cli.serve import Server
from headwater.clock import ManualClock
from headwater.graph.store.database import GraphDatabase
from headwater.log.files.archive import archive
from headwater.log.files.file_status import FileStatus
from headwater.log.files.incoming import Incoming
from headwater.log.files.layout import unprocessed
from headwater.log.queue.log import Log
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from headwater.log.rejects.store import NewReject, RejectStore
from headwater.log.streams import Queues, StreamCursor, identity_of
from headwater.settings import DestinationSettings, LogSettings, parse
from tests.gateway.running import run_bytes
from tests.graph.shop import shop
from tests.log.page_damage import damaged

NOW = 1_800_000_000.0
BODIES = [b'{"n":%d,"text":"%s"}' % (n, b"x" * 900) for n in range(40)]
COMMANDS = (
    "status",
    "status --json",
    "log stat",
    "log stat --json",
    "log verify",
    "log export",
    "rejects list",
    "rejects list --json",
    "rejects show 1",
    "pipeline verify",
    "lineage search o",
    "lineage show orders",
    "check",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every kind of file that a server and a pipeline keep."""
    folder = tmp_path_factory.mktemp("whole")
    data, events = folder / "data", folder / "data" / "events"
    log = Log.open(data / "log", LogSettings(partition_bytes=40_000))
    reader = log.reader("backend")
    for body in BODIES:
        log.append_wait([body])
    reader.finish([1, 2, 3, 7])
    log.close()
    rejects = RejectStore(data / "rejects.db", max_bytes=1 << 30)
    rejects.add("outlet:backend", [NewReject("422", body, position=n) for n, body in enumerate(BODIES)])
    rejects.close()
    incoming = Incoming(events, clock=ManualClock(NOW))
    for _ in range(3):
        incoming.append_wait("web", BODIES)
        incoming.rotate()
    first, second = unprocessed(events)[:2]
    for file in (first, second):
        status = FileStatus.load(file)
        status.mark("dwh", "t", True, rows=40)
        status.count("dwh", events=40, skipped=0, rejected=0)
        status.save()
    archive(first)
    incoming.close()
    failed = [EventError.of(b, "bad", destination_id="dwh", source="file:a", at=NOW) for b in BODIES[:5]]
    DestinationRejects(events).append("dwh", failed)
    queues = Queues(events, [DestinationSettings(id="now", type="duckdb", mode="stream")])
    queues.log("now").append_wait(BODIES)
    queues.close()
    queue = events / "queue.dst=now"
    StreamCursor(queue=identity_of(queue), position=3, archived=1).save(queue)
    graph = GraphDatabase(data / "graph")
    graph.ingest_received([(NOW, orjson.dumps(event)) for event in shop()], 5)
    graph.close()
    config = {
        "data_dir": "data",
        "gateway": {"port": 0},
        "graph": {"enabled": True},
        "tokens": [{"id": "web", "client_secret": "c", "server_secret": "s"}],
        "destinations": [
            {"id": "dwh", "type": "duckdb", "path": "w.duckdb", "table_name_template": "t"},
            {"id": "now", "type": "duckdb", "path": "n.duckdb", "table_name_template": "t", "mode": "stream"},
        ],
    }
    (folder / "headwater.yml").write_text(json.dumps(config))
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    """What must not change: all but SQLite's shared memory, and the locks of readers."""
    return {
        path: path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal", "lock"))
    }


def look(folder: Path) -> None:
    before = contents(folder)
    here = Path.cwd()
    os.chdir(folder)
    try:
        for command in COMMANDS:
            result = CliRunner().invoke(cli, command.split(), prog_name="headwater")
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise AssertionError(f"headwater {command}") from result.exception
            assert result.exit_code in (0, 1, 2), (command, result.output)
            assert "Traceback" not in result.output
            if command == "log export":
                assert set(result.stdout_bytes.splitlines()) <= set(BODIES)
    finally:
        os.chdir(here)
    assert contents(folder) == before


@settings(max_examples=2, deadline=None)
@given(st.integers(0), st.binary(min_size=6, max_size=18))
def test_commands_end_in_a_line_and_change_nothing_when_a_file_is_damaged(
    data: Path, tmp_path_factory: pytest.TempPathFactory, which: int, damage: bytes
) -> None:
    look_at_damage(data, tmp_path_factory, which, damage)


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(st.integers(0), st.binary(min_size=6, max_size=18))
def test_commands_end_in_a_line_and_change_nothing_when_any_file_is_damaged(
    data: Path, tmp_path_factory: pytest.TempPathFactory, which: int, damage: bytes
) -> None:
    look_at_damage(data, tmp_path_factory, which, damage)


def look_at_damage(data: Path, tmp_path_factory: pytest.TempPathFactory, which: int, damage: bytes) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    shutil.copytree(data, folder, dirs_exist_ok=True)
    files = [path for path in contents(folder / "data") if path.stat().st_size]
    victim = files[which % len(files)]
    if damage[0] == 255:
        victim.unlink()
    else:
        victim.write_bytes(damaged(victim.read_bytes(), damage))
    look(folder)
    shutil.rmtree(folder)


def test_commands_change_nothing_when_all_is_whole(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path, dirs_exist_ok=True)
    look(tmp_path)


SERVER = """
data_dir: {folder}
log_level: error
gateway: {{port: 0, shutdown_timeout_seconds: 2}}
outlets: [{{name: copy, type: file, path: {folder}/copy.ndjson}}]
tokens: [{{id: web, client_secret: c, server_secret: s}}]
destinations:
  - {{id: dwh, type: duckdb, path: w.duckdb, table_name_template: t}}
  - {{id: now, type: duckdb, path: n.duckdb, table_name_template: t, mode: stream}}
"""


async def serve_once(folder: Path) -> None:
    """A server starts on the folder, acknowledges an event of each kind, and stops."""
    server = Server(parse(SERVER.format(folder=folder)))

    def post(path: str, body: bytes) -> int:
        assert server._gateway is not None
        connection = http.client.HTTPConnection("127.0.0.1", server._gateway.port, timeout=20)
        with closing(connection):
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            with connection.getresponse() as answer:
                return answer.status

    try:
        await server.start()
        assert await asyncio.to_thread(post, "/api/v1/lineage", run_bytes()) == 200
        assert await asyncio.to_thread(post, "/api/v1/s2s/event?token=s", b'{"n": 1}') == 200
    finally:
        await server.close()


@pytest.mark.parametrize("times", [6, pytest.param(80, marks=pytest.mark.long)])
def test_a_server_starts_and_takes_events_when_a_file_is_damaged(
    data: Path, tmp_path: Path, times: int
) -> None:
    folder, copy = tmp_path / "data", tmp_path / "copy"
    shutil.copytree(data / "data", folder)
    asyncio.run(serve_once(folder))
    shutil.copytree(folder, copy)
    files = [path for path in contents(copy) if path.stat().st_size]
    dice = random.Random(times)
    for _ in range(times):
        victim = folder / dice.choice(files).relative_to(copy)
        damage = dice.randbytes(dice.choice((6, 12)))
        match dice.randrange(10):
            case 0:
                victim.unlink()
            case 1:
                victim.write_bytes(b"")
            case _:
                victim.write_bytes(damaged(victim.read_bytes(), damage))
        for _ in range(2):  # the second start is after whatever the first has set aside
            asyncio.run(serve_once(folder))
        shutil.rmtree(folder)
        shutil.copytree(copy, folder)

"""What goes wrong around a load: the reason is kept, the rest goes on, and nothing is lost or doubled."""

from __future__ import annotations

import os
import secrets
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import msgspec
import pytest

from headwater.log.rejects.destination_file import DestinationRejects
from headwater.pipeline.load_report import Report
from headwater.settings import Settings
from tests.parts.postgres import PostgresServer
from tests.pipeline.rig import Rig
from tests.pipeline.stream_rig import StreamRig, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Database:
    """A schema of a real Postgres, and a look at it."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.schema = f"test_{uuid.uuid4().hex}"

    @property
    def destination(self) -> dict[str, Any]:
        return {"type": "postgres", "options": {"url": self.server.url, "schema": self.schema}}

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        import psycopg

        found: list[tuple[Any, ...]] = []
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(f"SET search_path = {self.schema}".encode())
            for statement in statements:
                cursor = connection.execute(statement.encode())
                found = cursor.fetchall() if cursor.description else []
        return found


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return Database(postgres)


def test_the_rest_lands_when_a_destination_refuses_a_row(rig: Rig) -> None:
    with duckdb.connect(str(rig.database())) as connection:
        connection.execute("CREATE TABLE events (n BIGINT CHECK (n <> 13), note VARCHAR)")
    events = [{"n": 12}, {"n": 13, "note": "unlucky"}, {"n": 14}]
    report = rig.load(*events, adopt_tables=["events"])
    assert [row["n"] for row in rig.rows()] == [12, 14]
    [reject] = rig.rejects()
    assert "CHECK" in reject.error
    assert reject.event is not None
    assert b"unlucky" in bytes(reject.event)
    [done] = report.files[0].destinations
    assert (done.events, done.rows, done.rejected) == (3, 2, 1)
    assert report.files[0].archived


def test_a_load_is_whole_and_once_when_its_connection_breaks_in_the_middle(
    rig: Rig, database: Database
) -> None:
    settings = rig.settings(database.destination)
    rig.file([{"n": 0}])
    assert rig.cycle(settings).is_complete
    database.run(
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF new.n = 50 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; "
        "RETURN new; END $$",
        "CREATE TRIGGER die BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION die()",
    )
    path = rig.file([{"n": n} for n in range(1, 101)])
    report = rig.cycle(settings)
    assert not report.is_complete
    # the reason is where `headwater status` finds it, and none of the rows is
    assert rig.status(path).pairs["dwh", "events"].error
    assert database.run("SELECT count(*) FROM events") == [(1,)]
    database.run("DROP TRIGGER die ON events")
    assert rig.cycle(settings).is_complete
    assert database.run("SELECT count(*), count(DISTINCT n), sum(n) FROM events") == [(101, 101, 5050)]


def test_the_file_waits_and_is_loaded_once_when_the_server_is_stopped_and_started(rig: Rig) -> None:
    try:
        server = PostgresServer()
    except Exception as missing:
        pytest.skip(str(missing))
    with server:
        database = Database(server)
        settings = rig.settings(database.destination)
        path = rig.file([{"n": 1}])
        server.stop()
        report = rig.cycle(settings)
        assert not report.is_complete
        assert "no connection" in rig.status(path).pairs["dwh", "events"].error
        server.start()
        assert rig.cycle(settings).is_complete
        assert database.run("SELECT n FROM events") == [(1,)]


def test_every_row_is_there_once_when_two_pipelines_share_a_folder(rig: Rig, database: Database) -> None:
    settings = rig.settings(database.destination | {"table_name_template": "{{ t }}"})
    for number in range(4):
        rig.file([{"t": "events", "n": 10 * number + i} for i in range(10)])
    reports = at_once(rig, settings, settings)
    assert sum(file.archived for report in reports for file in report.files) == 4
    assert rig.waiting() == []
    assert database.run("SELECT count(*), count(DISTINCT n) FROM events") == [(40, 40)]


def test_every_row_and_column_is_there_when_two_pipelines_share_a_table(
    rig: Rig, database: Database, tmp_path: Path
) -> None:
    other = Rig(rig.spark, tmp_path / "other")
    for number in range(3):
        rig.file([{"n": number, f"left_{number}": "l"}])
        other.file([{"n": 100 + number, f"right_{number}": "r"}])
    locks = {"pipeline": {"lock": {"type": "postgres", "url": database.server.url}}}
    reports = at_once(
        rig, rig.settings(database.destination, **locks), other.settings(database.destination, **locks)
    )
    assert all(report.is_complete for report in reports), [report.errors for report in reports]
    assert database.run("SELECT count(*), count(DISTINCT n) FROM events") == [(6, 6)]
    found = database.run("SELECT count(left_0), count(left_1), count(left_2), count(right_2) FROM events")
    assert found == [(1, 1, 1, 1)]


def at_once(rig: Rig, *settings: Settings) -> list[Report]:
    """A cycle by each of the settings, all at the same time."""
    reports: list[Report] = []
    threads = [threading.Thread(target=lambda own=own: reports.append(rig.cycle(own))) for own in settings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports) == len(settings)
    return reports


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small tmpfs needs root and the right to mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("size", [4_000, 40_000], ids=["small file", "large file"])
def test_the_pair_waits_with_the_reason_when_the_staging_disk_is_full(
    rig: Rig, small_disk: Path, size: int
) -> None:
    settings = rig.settings({"table_name_template": "{{ t }}"})
    full = msgspec.structs.replace(
        settings, pipeline=msgspec.structs.replace(settings.pipeline, staging_dir=str(small_disk))
    )
    path = rig.file([{"t": "events", "n": n, "text": secrets.token_hex(256)} for n in range(size)])
    report = rig.cycle(full)
    assert not report.is_complete
    assert any("No space left" in error for error in report.errors), report.errors
    assert rig.waiting() == [path.name]
    assert list(small_disk.iterdir()) == []
    assert rig.cycle(settings).is_complete
    assert rig.sql("SELECT count(*), count(DISTINCT n) FROM events") == [(size, size)]


def test_rejects_are_kept_and_reported_when_their_destination_is_not_configured(rig: Rig) -> None:
    rig.load(b"torn")
    assert DestinationRejects(rig.folder / "events").request_replay("dwh", 1_800_000_000.0) == 1
    [waiting] = rig.waiting()
    report = rig.cycle(rig.settings({"id": "other"}))
    assert not report.is_complete
    assert any("dwh, a destination that is not configured" in error for error in report.errors)
    assert rig.waiting() == [waiting]
    assert rig.cycle().is_complete
    assert len(rig.rejects()) == 1


def test_the_other_tables_go_on_when_a_session_locks_one(rig: Rig, database: Database) -> None:
    import psycopg

    own = database.destination
    own["options"] |= {"lock_timeout_seconds": 0.2}
    settings = rig.settings(own | {"table_name_template": "{{ t }}"})
    rig.file([{"t": "a", "n": 0}, {"t": "b", "n": 0}])
    assert rig.cycle(settings).is_complete
    paths = [rig.file([{"t": "a", "n": n}, {"t": "b", "n": n}]) for n in (1, 2)]
    with psycopg.connect(database.server.url) as other:
        other.execute(f"LOCK TABLE {database.schema}.a IN ACCESS EXCLUSIVE MODE".encode())
        report = rig.cycle(settings)
        assert not report.is_complete
        # the reason is where `headwater status` finds it
        for path in paths:
            assert "lock timeout" in rig.status(path).pairs["dwh", "a"].error
            assert rig.status(path).is_done("dwh", "b")
        assert any("lock timeout" in error for error in report.errors)
        assert database.run("SELECT n FROM b ORDER BY n") == [(0,), (1,), (2,)]
    assert rig.rejects() == []
    assert rig.cycle(settings).is_complete
    assert database.run("SELECT n FROM a ORDER BY n") == [(0,), (1,), (2,)]


def test_a_streams_other_tables_come_first_when_a_session_locks_one(
    spark: SparkSession, tmp_path: Path, database: Database
) -> None:
    import psycopg

    own = database.destination
    own["options"] |= {"lock_timeout_seconds": 0.2}
    with StreamRig(spark, tmp_path) as rig:
        settings = rig.stream_settings(own | {"table_name_template": "{{ t }}"})
        rig.drained(settings, {"t": "a", "n": 0}, {"t": "b", "n": 0})
        end = rig.put(settings, *({"t": t, "n": n} for t in "ab" for n in (1, 2)))
        with psycopg.connect(database.server.url) as other:
            other.execute(f"LOCK TABLE {database.schema}.a IN ACCESS EXCLUSIVE MODE".encode())
            with rig.stream(settings):
                until(lambda: database.run("SELECT count(*) FROM b") == [(3,)], "the other table")
                until(lambda: "lock timeout" in rig.cursor().error, "the reason in the status")
                other.rollback()
                until(lambda: rig.cursor().position >= end, "the end of the queue")
        cursor = rig.cursor()
        assert (cursor.rows, cursor.rejected, cursor.missing, cursor.error) == (6, 0, 0, "")
        assert database.run("SELECT n FROM a ORDER BY n") == [(0,), (1,), (2,)]
        assert rig.rejects() == []

"""Stream mode: what is put into a queue becomes rows at once, exactly once, whatever happens on the way."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.log.files.layout import EventFolder
from headwater.log.rejects.destination_file import DestinationRejects
from headwater.log.streams import Planned, stream_folder
from tests.parts.postgres import PostgresServer
from tests.pipeline.stream_rig import StreamRig, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENT = "2026-11-16T10:00:00.123456Z"
IN_FIVES = {
    "pipeline": {"stream": {"trigger_seconds": 0.05, "max_retry_seconds": 0.5, "max_batch_events": 5}}
}


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path) -> Iterator[StreamRig]:
    with StreamRig(spark, tmp_path) as made:
        yield made


def test_events_become_rows_when_they_are_in_the_queue(rig: StreamRig) -> None:
    settings = rig.stream_settings()
    end = rig.put(settings, {"_timestamp": MOMENT, "user": {"id": 7}, "price": 1, "tags": ["a"]})
    with rig.stream(settings):
        until(lambda: rig.cursor().position == end)
        # while it runs: a new column, a value that does not fit, a bad line
        end = rig.put(settings, {"price": 2.5, "new": True}, b"[1]", {"price": "x"})
        until(lambda: rig.cursor().position == end)
    assert rig.types() == {
        "_timestamp": "TIMESTAMP",
        "user_id": "BIGINT",
        "price": "BIGINT",
        "tags": "VARCHAR",
        "new": "BOOLEAN",
        "_unmapped_data": "JSON",
    }
    assert [row.get("price") for row in rig.rows()] == [1, None, None]
    cursor = rig.cursor()
    assert (cursor.events, cursor.rows, cursor.rejected, cursor.unmapped) == (4, 3, 1, 2)
    assert (cursor.planned, cursor.missing, cursor.error) == (None, 0, "")
    [reject] = rig.rejects()
    assert reject.malformed_event == "[1]"
    assert reject.source.startswith("queue.dst=dwh/")
    assert reject.source.endswith(":3")
    # archived when it stops, and only then collected
    [(name, content)] = rig.archived().items()
    assert name.startswith("streaming-archive.dst=dwh-")
    assert len(content.splitlines()) == 4
    assert cursor.archived == end
    assert rig.queues is not None
    log = rig.queues.log("dwh")
    until(lambda: log.stat().readers[0].position == end)


def test_a_micro_batch_is_small_when_events_are_large(rig: StreamRig) -> None:
    stream = {"trigger_seconds": 0.05, "max_batch_bytes": 2500}
    settings = rig.stream_settings(pipeline={"stream": stream})
    cursor = rig.drained(
        settings, *({"n": n, "text": "x" * 1000} for n in range(7)), {"n": 7, "text": "y" * 9000}
    )
    assert sorted(row["n"] for row in rig.rows()) == list(range(8))
    assert (cursor.batches, cursor.rows, cursor.missing) == (5, 8, 0)  # 2, 2, 2, 1, and the large one


def test_nothing_is_doubled_when_a_crash_came_between_the_load_and_the_cursor(rig: StreamRig) -> None:
    settings = rig.stream_settings({"table_name_template": "{{ t }}"})
    end = rig.put(settings, {"t": "a", "n": 1}, {"t": "b", "n": 2}, {"n": 3}, b"bad")
    with rig.stream(settings):
        until(lambda: rig.cursor().position == end)
    # the cursor as it was before: planned, not finished
    queue = EventFolder(rig.folder / "events").queue("dwh")
    cursor = rig.cursor()
    again = type(cursor)(queue=cursor.queue, position=1, archived=1, planned=Planned(end))
    again.save(queue)
    after = rig.drained(settings, {"t": "a", "n": 4})
    assert (rig.rows("a"), rig.rows("b")) == ([{"t": "a", "n": 1}, {"t": "a", "n": 4}], [{"t": "b", "n": 2}])
    # the counts are the same as before, and the reject is one
    assert (after.events, after.rows, after.skipped, after.rejected) == (5, 3, 1, 1)
    assert len(rig.rejects()) == 1


def test_a_restart_goes_on_where_it_was_when_it_was_stopped(rig: StreamRig) -> None:
    settings = rig.stream_settings()
    for number in range(2):
        cursor = rig.drained(settings, {"n": number})
        assert (cursor.position, cursor.rows) == (number + 2, number + 1)
    assert rig.rows() == [{"n": 0}, {"n": 1}]
    assert len(rig.archived()) == 2


def test_the_others_are_served_and_it_catches_up_when_one_destination_is_down(rig: StreamRig) -> None:
    rig.database("down").mkdir()  # a folder where the file should be
    settings = rig.stream_settings({"id": "down"}, {"id": "up"})
    for id in ("down", "up"):
        rig.put(settings, {"a": 1}, id=id)
    with rig.stream(settings):
        until(lambda: rig.cursor("up").position == 2)
        until(lambda: "cannot be opened" in rig.cursor("down").error)
    # of the one everything is archived and may go, of the other nothing may
    assert rig.queues is not None
    up, down = (rig.queues.log(id) for id in ("up", "down"))
    until(lambda: up.stat().readers[0].position == 2)
    assert down.stat().readers[0].position == 1
    # it was stopped while it waited, and goes on with what it had begun
    assert rig.cursor("down").position == 1
    with rig.stream(settings):
        rig.database("down").rmdir()
        until(lambda: rig.cursor("down").position == 2)
    assert (rig.rows(id="up"), rig.rows(id="down")) == ([{"a": 1}], [{"a": 1}])
    assert rig.cursor("down").error == ""


def test_the_structure_is_read_again_when_a_changed_table_refuses_an_insert(rig: StreamRig) -> None:
    settings = rig.stream_settings()
    end = rig.put(settings, {"a": 1, "b": 2})
    with rig.stream(settings):
        until(lambda: rig.cursor().position == end)
        rig.sql("ALTER TABLE events DROP COLUMN b")
        end = rig.put(settings, {"a": 3, "b": 4})
        until(lambda: rig.cursor().position == end)
    assert rig.rows() == [{"a": 1}, {"a": 3, "b": 4}]
    assert rig.rejects() == []


def test_the_bad_rows_alone_are_rejects_when_the_destination_refuses_them(rig: StreamRig) -> None:
    rig.sql("CREATE TABLE events (n BIGINT CHECK (n <> 13))")
    settings = rig.stream_settings({"adopt_tables": ["events"]})
    cursor = rig.drained(settings, *({"n": n} for n in range(11, 16)))
    assert [row["n"] for row in rig.rows()] == [11, 12, 14, 15]
    assert (cursor.rows, cursor.rejected, cursor.missing) == (4, 1, 0)
    [reject] = rig.rejects()
    assert (bytes(reject.event), "CHECK" in reject.error) == (b'{"n": 13}', True)


@pytest.mark.parametrize("what", ["lost", "damaged", "restored"])
def test_nothing_is_doubled_or_lost_when_the_cursor_is_behind_the_ledger(rig: StreamRig, what: str) -> None:
    settings = rig.stream_settings({"table_name_template": "{{ t }}"}, **IN_FIVES)
    rig.drained(settings, *({"t": "a", "n": n} for n in range(7)))
    path = stream_folder(EventFolder(rig.folder / "events").queue("dwh")) / "cursor.json"
    early = path.read_bytes()
    rig.drained(settings, *({"t": "ab"[n % 2], "n": n} for n in range(7, 12)))
    if what == "lost":
        path.unlink()
    else:
        path.write_bytes(early if what == "restored" else b"{")
    # in one batch this time, so that no range of positions is what it was
    after = rig.drained(
        rig.stream_settings({"table_name_template": "{{ t }}"}), {"t": "b", "n": 12}, {"n": 13}
    )
    assert sorted(row["n"] for row in rig.rows("a")) == [*range(7), 8, 10]
    assert sorted(row["n"] for row in rig.rows("b")) == [7, 9, 11, 12]
    assert (after.position, after.rows, after.skipped, after.missing) == (15, 13, 1, 0)


@pytest.mark.parametrize("is_cursor_newer", [False, True], ids=["with its cursor", "beside a newer cursor"])
def test_no_event_is_lost_or_doubled_when_the_queue_is_an_earlier_copy(
    rig: StreamRig, is_cursor_newer: bool
) -> None:
    settings = rig.stream_settings({"table_name_template": "{{ t }}"}, **IN_FIVES)
    queue = EventFolder(rig.folder / "events").queue("dwh")
    rig.drained(settings, *({"t": "ab"[n % 2], "n": n} for n in range(12)))
    rig.stop_gateway()
    shutil.copytree(queue, rig.folder / "copy")
    rig.drained(settings, *({"t": "ab"[n % 2], "n": n} for n in range(100, 112)))
    rig.stop_gateway()
    cursor = (stream_folder(queue) / "cursor.json").read_bytes()
    shutil.rmtree(queue)
    shutil.copytree(rig.folder / "copy", queue)
    if is_cursor_newer:
        (stream_folder(queue) / "cursor.json").write_bytes(cursor)
    after = rig.drained(settings, *({"t": "ab"[n % 2], "n": n} for n in range(200, 215)))
    found = sorted(row["n"] for table in "ab" for row in rig.rows(table))
    assert found == [*range(12), *range(100, 112), *range(200, 215)]
    assert (after.position, after.missing) == (28, 0)
    archived = b"\n".join(rig.archived().values())
    assert all(archived.count(b'"n": %d}' % n) == 1 for n in found)


def test_a_micro_batch_under_way_is_finished_when_the_stream_is_stopped(
    rig: StreamRig, postgres: PostgresServer
) -> None:
    import psycopg

    schema = f"test_{uuid.uuid4().hex}"
    options = {"url": postgres.url, "schema": schema}
    settings = rig.stream_settings({"type": "postgres", "options": options})
    rig.drained(settings, {"n": 0})
    streams = rig.stream(settings)
    with psycopg.connect(postgres.url) as other, psycopg.connect(postgres.url, autocommit=True) as looking:
        other.execute(f"LOCK TABLE {schema}.events".encode())  # to the end of the transaction
        end = rig.put(settings, {"n": 1})
        with streams:
            waiting = f"SELECT 1 FROM pg_locks WHERE NOT granted AND relation = '{schema}.events'::regclass"
            until(lambda: bool(looking.execute(waiting.encode()).fetchall()), "the insert")
            streams.streams["dwh"].stop()
            assert streams.streams["dwh"].is_alive
            other.rollback()
        found = looking.execute(f"SELECT n FROM {schema}.events ORDER BY n".encode()).fetchall()
    assert found == [(0,), (1,)]
    cursor = rig.cursor()
    assert (cursor.position, cursor.archived, cursor.planned) == (end, end, None)


def test_each_event_is_one_row_when_a_destination_is_in_both_modes(rig: StreamRig) -> None:
    settings = rig.stream_settings({"mode": "both", "primary_key": ["id"]})
    events = [{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "a", "m": 3}]
    rows = [{"id": "a", "n": 1, "m": 3}, {"id": "b", "n": 2}]
    rig.drained(settings, *events)
    assert sorted(rig.rows(), key=lambda row: str(row["id"])) == rows
    rig.file(events)
    assert rig.cycle(settings).is_complete
    assert sorted(rig.rows(), key=lambda row: str(row["id"])) == rows
    assert sorted(name.split(".")[0] for name in rig.archived()) == ["incoming", "streaming-archive"]


def test_rejects_are_loaded_by_the_stream_when_they_are_replayed_after_the_fix(rig: StreamRig) -> None:
    broken = rig.stream_settings({"table_name_template": "e_{{ at | date('%Y') }}"})
    assert rig.drained(broken, {"at": "soon"}).rejected == 1
    assert DestinationRejects(rig.folder / "events").request_replay("dwh", 1_800_000_000.0) == 1
    fixed = rig.stream_settings({"table_name_template": "fixed"})
    assert rig.cycle(fixed).files == []  # it is not for a cycle of batch mode
    with rig.stream(fixed):
        until(lambda: rig.waiting() == [])
    assert rig.rows("fixed") == [{"at": "soon"}]


def test_events_are_counted_as_missing_when_the_queue_has_lost_them(rig: StreamRig) -> None:
    settings = rig.stream_settings()
    assert rig.put(settings, {"a": 1}) == 2
    rig.stop_gateway()
    queue = EventFolder(rig.folder / "events").queue("dwh")
    for path in queue.glob("*.db"):
        path.write_bytes(b"")
    cursor = rig.drained(settings, {"a": 2})
    assert (cursor.position, cursor.rows, cursor.missing) == (3, 1, 1)
    assert rig.rows() == [{"a": 2}]


def test_a_new_queue_is_not_taken_for_the_old_one_when_it_was_removed(rig: StreamRig) -> None:
    settings = rig.stream_settings()
    rig.drained(settings, {"a": 1})
    rig.stop_gateway()
    queue = EventFolder(rig.folder / "events").queue("dwh")
    queue.rename(queue.with_name("old"))
    rig.drained(settings, {"a": 2})  # position 1 again, and not a load that the ledger knows
    assert rig.rows() == [{"a": 1}, {"a": 2}]

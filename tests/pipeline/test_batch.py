"""Batch mode: from complete files to tables, statuses and the archive."""

from __future__ import annotations

import fcntl
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.destinations.base import load_destination
from headwater.destinations.column_types import Kind
from headwater.destinations.table import Column, table_of
from headwater.log.checked_json import checked
from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import unprocessed
from headwater.log.rejects.destination_file import DestinationRejects
from headwater.pipeline.batch import cycle
from headwater.pipeline.load import load_id
from tests.pipeline.rig import Rig

MOMENT = "2026-11-16T10:00:00.123456Z"


def test_events_become_rows_when_a_complete_file_is_there(rig: Rig) -> None:
    events = [
        {"_timestamp": MOMENT, "user": {"id": 7, "name": "Ann"}, "price": 1, "tags": ["a"], "new": True},
        {"_timestamp": MOMENT, "user": {"id": 8}, "price": 2.5},
    ]
    path = rig.file(events)
    report = rig.cycle()
    assert rig.types() == {
        "_timestamp": "TIMESTAMP",
        "user_id": "BIGINT",
        "user_name": "VARCHAR",
        "price": "DOUBLE",
        "tags": "VARCHAR",
        "new": "BOOLEAN",
    }
    time = datetime(2026, 11, 16, 10, 0, 0, 123456)  # noqa: DTZ001
    assert rig.rows() == [
        {"_timestamp": time, "user_id": 7, "user_name": "Ann", "price": 1.0, "tags": '["a"]', "new": True},
        {"_timestamp": time, "user_id": 8, "price": 2.5},
    ]
    assert report.is_complete
    [done] = report.files[0].destinations
    assert (done.events, done.rows, done.skipped, done.rejected) == (2, 2, 0, 0)
    # rotated to the archive, as it was, with its status
    assert rig.waiting() == []
    assert rig.archived() == {f"{path.name}.gz": "\n".join(map(json.dumps, events)).encode()}
    assert rig.cycle().files == []


def test_events_go_where_their_token_is_wanted_when_there_are_several_destinations(rig: Rig) -> None:
    settings = rig.settings(
        {"id": "all"}, {"id": "web", "only_keys": ["web"]}, {"id": "other", "only_keys": ["x", "y"]}
    )
    rig.file([{"a": 1}], token="web")
    rig.file([{"b": 2}], token="x")
    assert rig.cycle(settings).is_complete
    assert [rig.rows(id="all"), rig.rows(id="web"), rig.rows(id="other")] == [
        [{"a": 1}, {"b": 2}],
        [{"a": 1}],
        [{"b": 2}],
    ]


def test_a_file_is_archived_when_no_destination_wants_it(rig: Rig) -> None:
    rig.file([{"a": 1}])
    assert rig.cycle(rig.settings({"only_keys": ["x"]})).is_complete
    assert len(rig.archived()) == 1


def test_each_event_goes_to_its_table_when_the_name_is_a_template(rig: Rig) -> None:
    events = [
        {"event_type": "Page View", "n": 1},
        {"event_type": "buy", "n": "x"},
        {"n": 3.5},
        {"event_type": "", "n": 4},
        b'{"event_type": "buy", "n": 5',
        b"[]",
        {"event_type": "Page View", "n": 6, "late": True},
    ]
    rig.file(events)
    report = rig.cycle(rig.settings({"table_name_template": "{{ event_type | lower | default('events') }}"}))
    assert rig.tables() == {"page_view", "buy", "events"}
    # the header is the table's own: a conflict in one is none in the other
    assert {table: rig.types(table)["n"] for table in rig.tables()} == {
        "page_view": "BIGINT",
        "buy": "VARCHAR",
        "events": "DOUBLE",
    }
    assert [row["n"] for row in rig.rows("page_view")] == [1, 6]
    [done] = report.files[0].destinations
    # an empty name is skipped; the numbers add up (G3)
    assert (done.events, done.rows, done.skipped, done.rejected) == (7, 4, 1, 2)
    assert sorted(reject.malformed_event for reject in rig.rejects()) == [
        "[]",
        '{"event_type": "buy", "n": 5',
    ]


def test_an_event_is_a_reject_when_its_template_fails(rig: Rig) -> None:
    rig.file([{"at": "soon", "eventn_ctx": {"event_id": "e1"}}, {"at": MOMENT}])
    report = rig.cycle(rig.settings({"table_name_template": "e_{{ at | date('%Y') }}"}))
    assert rig.tables() == {"e_2026"}
    [reject] = rig.rejects()
    assert (reject.event_id, reject.destination_id) == ("e1", "dwh")
    assert reject.event is not None
    assert json.loads(bytes(reject.event))["at"] == "soon"
    assert "not a time" in reject.error
    assert report.files[0].archived


def test_good_lines_land_when_bad_ones_are_between_them(rig: Rig) -> None:
    # the last line has no newline and is an event all the same
    rig.file([{"a": 1}, b"{torn", b"", b"null", b'{"a": 2} {"a": 3}', b'{"a":"\xff"}', {"a": 4}])
    report = rig.cycle()
    assert rig.rows() == [{"a": 1}, {"a": 4}]
    assert len(rig.rejects()) == 4
    assert all(
        reject.source.startswith("incoming.tok=web-2026-11-16T10-00-00.000.log:") for reject in rig.rejects()
    )
    [done] = report.files[0].destinations
    assert (done.events, done.rows, done.rejected) == (6, 2, 4)
    assert report.files[0].archived


def test_columns_are_added_and_values_kept_aside_when_later_batches_differ(rig: Rig) -> None:
    rig.load({"a": 1, "b": "x"})
    report = rig.load({"a": "many", "c": True}, {"a": 2.0}, {"a": True})
    assert rig.types() == {"a": "BIGINT", "b": "VARCHAR", "c": "BOOLEAN", "_unmapped_data": "JSON"}
    assert rig.rows() == [
        {"a": 1, "b": "x"},
        {"c": True, "_unmapped_data": '{"a":"many"}'},
        {"a": 2},
        {"a": 1},
    ]
    assert report.files[0].destinations[0].pairs[0].unmapped == 1


def test_the_row_lands_when_the_table_is_full(rig: Rig) -> None:
    rig.load({"a": 1, "b": 2, "c": 3, "d": "x"}, max_columns=3)
    assert rig.types() == {"a": "BIGINT", "b": "BIGINT", "_unmapped_data": "JSON"}
    [row] = rig.rows()
    assert json.loads(row["_unmapped_data"]) == {"c": 3, "d": "x"}


def test_the_last_event_wins_when_a_key_repeats(rig: Rig) -> None:
    key = {"primary_key": ["eventn_ctx_event_id"]}

    def event(id: str, **fields: object) -> dict[str, object]:
        return {"eventn_ctx": {"event_id": id}} | fields

    rig.load(event("e1", a=1, b="first"), event("e2", a=2), event("e1", a=3), **key)
    assert sorted(row["a"] for row in rig.rows()) == [2, 3]
    # only the columns that an event has are replaced
    rig.load(event("e1", a=4), event("e3", c=True), **key)
    rows = {row["eventn_ctx_event_id"]: row for row in rig.rows()}
    assert rows["e1"] == {"eventn_ctx_event_id": "e1", "a": 4, "b": "first"}
    assert set(rows) == {"e1", "e2", "e3"}


def test_a_table_is_made_without_its_key_when_its_first_batch_has_no_value_for_it(rig: Rig) -> None:
    assert rig.load({"a": 1}, primary_key=["id"]).is_complete
    assert rig.load({"a": 2, "id": "x"}, {"a": 3, "id": "x"}, primary_key=["id"]).is_complete
    assert sorted(row["a"] for row in rig.rows()) == [1, 3]


def test_the_mapping_is_applied_when_it_is_configured(rig: Rig) -> None:
    fields = [
        {"src": "/user/mail", "action": "remove"},
        {"src": "/price", "dst": "/money/value", "action": "move", "type": "DECIMAL(10,2)"},
        {"src": "/day", "action": "cast", "type": "DATE"},
        {"dst": "origin", "action": "constant", "value": "shop"},
        {"src": "/props", "action": "cast", "type": "JSON"},
    ]
    rig.load(
        {"user": {"mail": "a@b", "id": 1}, "price": 1.5, "day": "2026-11-16", "props": {"x": [1]}},
        {"user": {"id": 2}, "price": 1.505, "day": "someday"},
        mappings={"fields": fields},
    )
    assert rig.types() == {
        "user_id": "BIGINT",
        "day": "DATE",
        "props": "JSON",
        "money_value": "DECIMAL(10,2)",
        "origin": "VARCHAR",
        "_unmapped_data": "JSON",
    }
    first, second = rig.rows()
    assert (str(first["day"]), first["props"], first["origin"]) == ("2026-11-16", '{"x":[1]}', "shop")
    assert float(first["money_value"]) == 1.5
    # a price with more digits is not rounded
    assert json.loads(second["_unmapped_data"]) == {"day": "someday", "money_value": 1.505}


def test_a_pair_is_never_done_again_when_its_status_says_so(rig: Rig) -> None:
    path = rig.file([{"a": 1}])
    status = FileStatus(path.with_name(f"{path.name}.status"))
    status.mark("dwh", "events", True, rows=1)
    status.save()
    report = rig.cycle()
    assert report.files[0].destinations[0].pairs[0].skipped
    assert report.files[0].archived
    assert not rig.database().exists()


def test_nothing_is_doubled_when_the_ledger_knows_the_load(rig: Rig) -> None:
    # a crash between load and status: the status is lost, the ledger is not (G5)
    path = rig.file([{"a": 1}, b"bad", {"a": 2}])
    kept = path.read_bytes()
    assert rig.cycle().is_complete
    path.write_bytes(kept)
    report = rig.cycle()
    assert rig.rows() == [{"a": 1}, {"a": 2}]
    [done] = report.files[0].destinations
    assert (done.events, done.rows, done.rejected) == (3, 2, 1)
    # the same line is one reject, however often it is written
    assert len(rig.rejects()) == 1


def test_the_load_id_depends_on_the_events_when_a_name_is_used_again(rig: Rig) -> None:
    path = rig.file([{"a": 1}])
    [file] = unprocessed(rig.folder / "events")
    first = load_id(file.identity(), "dwh", "t")
    assert first == load_id(file.identity(), "dwh", "t")
    assert len({first, load_id(file.identity(), "dwh", "u"), load_id(file.identity(), "other", "t")}) == 3
    path.write_bytes(b'{"a": 2}')
    assert load_id(file.identity(), "dwh", "t") != first


def test_the_others_are_served_when_one_destination_is_down(rig: Rig) -> None:
    rig.database("down").mkdir()  # a folder where the file should be
    settings = rig.settings({"id": "down"}, {"id": "up"})
    path = rig.file([{"a": 1}])
    report = rig.cycle(settings)
    assert rig.rows(id="up") == [{"a": 1}]
    assert not report.is_complete
    assert any("down" in error for error in report.errors)
    # the reason stands in the status, and the file waits
    pairs = rig.status(path).pairs
    assert pairs["up", "events"].uploaded
    assert not pairs["down", "events"].uploaded
    assert "cannot be opened" in pairs["down", "events"].error
    assert rig.waiting() == [path.name]

    rig.database("down").rmdir()
    assert rig.cycle(settings).is_complete
    assert (rig.rows(id="up"), rig.rows(id="down")) == ([{"a": 1}], [{"a": 1}])


def test_tables_are_known_without_routing_when_a_destination_stays_down(rig: Rig) -> None:
    rig.database("down").mkdir()
    settings = rig.settings({"id": "down", "table_name_template": "{{ t }}"})
    path = rig.file([{"t": "x"}, {"t": "y"}])
    for _ in range(2):
        assert not rig.cycle(settings).is_complete
        assert set(rig.status(path).pairs) == {("down", "x"), ("down", "y")}


def test_another_pipelines_file_is_left_alone_when_it_holds_it(rig: Rig) -> None:
    path = rig.file([{"a": 1}])
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        report = rig.cycle()
    finally:
        os.close(fd)
    assert report.files[0].busy
    assert rig.waiting() == [path.name]


def test_the_cycle_goes_on_when_a_file_disappears(rig: Rig) -> None:
    gone = rig.file([{"a": 1}])
    rig.file([{"a": 2}])
    settings = rig.settings()

    def vanish(done: int, total: int) -> None:
        gone.unlink(missing_ok=True)

    from headwater.pipeline.batch.cycle import run_cycle

    report = run_cycle(settings, rig.spark, vanish)
    assert "not there any more" in report.files[0].error
    assert report.files[1].archived
    assert rig.rows() == [{"a": 2}]


def test_rejects_are_loaded_when_they_are_replayed_after_the_fix(rig: Rig) -> None:
    rig.file([{"at": "soon", "n": 1}])
    broken = rig.settings({"table_name_template": "e_{{ at | date('%Y') }}"}, {"id": "other"})
    rig.cycle(broken)
    assert len(rig.rejects()) == 1
    assert DestinationRejects(rig.folder / "events").request_replay("dwh", 1_800_000_000.0) == 1
    report = rig.cycle(rig.settings({"table_name_template": "fixed"}, {"id": "other"}))
    assert report.files[0].archived
    assert rig.rows("fixed") == [{"at": "soon", "n": 1}]
    # for that destination alone, and archived under its own name
    assert len(rig.rows(id="other")) == 1
    assert any(name.startswith("failed.dst=dwh-") for name in rig.archived())
    assert rig.rejects() == []


def test_a_users_table_is_used_as_it_is_when_it_exists(rig: Rig) -> None:
    settings = rig.settings()
    destination = load_destination(settings.destinations[0])
    destination.connect()
    destination.patch(table_of("events", [Column("a", Kind.STRING), Column("own", Kind.INT64)]))
    destination.close()
    rig.load({"a": 1.5, "b": 1})
    assert rig.rows() == [{"a": "1.5", "b": 1}]
    assert list(rig.types()) == ["a", "own", "b"]


def test_events_without_a_field_are_rejects_when_there_is_nothing_to_store(rig: Rig) -> None:
    report = rig.load({}, {"n": None})
    assert report.files[0].archived
    assert [reject.error for reject in rig.rejects()] == ["no field of the event becomes a column"] * 2
    assert rig.tables() == set()


def test_nothing_is_left_in_staging_when_a_cycle_ends(rig: Rig) -> None:
    left_over = rig.folder / "staging" / "cycle-dead"
    left_over.mkdir(parents=True)
    (left_over / "lock").touch()
    rig.load({"a": 1})
    assert list((rig.folder / "staging").iterdir()) == []


def test_the_folder_is_read_as_it_is_named_when_its_name_looks_like_a_pattern(
    rig: Rig, tmp_path: Path
) -> None:
    odd = Rig(rig.spark, tmp_path / "a[1] {b}*")
    odd.load({"a": 1})
    assert odd.rows() == [{"a": 1}]


@pytest.mark.parametrize("template", ["events", "{{ t }}"])
def test_the_pair_waits_when_staging_cannot_be_written(rig: Rig, template: str) -> None:
    # a file in the place of the folder that Spark would write to
    settings = msgspec.structs.replace(rig.settings({"table_name_template": template}))
    path = rig.file([{"t": "x"}])
    blocked = msgspec.structs.replace(
        settings,
        pipeline=msgspec.structs.replace(settings.pipeline, staging_dir="/proc/headwater"),
    )
    with pytest.raises(OSError, match="headwater"):
        rig.cycle(blocked)
    assert rig.waiting() == [path.name]
    assert rig.cycle(settings).is_complete


def test_files_are_rotated_every_five_minutes_when_nothing_else_is_configured(rig: Rig) -> None:
    assert rig.settings().events.rotation_minutes == 5


@pytest.mark.parametrize("template", ["{{ kind }}", "{% if false %}x{% endif %}"])
def test_every_event_is_skipped_when_the_template_gives_nothing(rig: Rig, template: str) -> None:
    rig.file([{"a": 1}, {"a": 2}])
    report = rig.cycle(rig.settings({"table_name_template": template}))
    [done] = report.files[0].destinations
    assert (done.events, done.rows, done.skipped, done.rejected) == (2, 0, 2, 0)
    assert report.files[0].archived
    assert rig.rejects() == []


def test_the_status_goes_to_the_archive_with_its_file_when_all_is_done(rig: Rig) -> None:
    rig.load({"a": 1}, b"bad")
    [path] = (rig.folder / "events" / "archive").glob("*/*.status")
    found = json.loads(checked(path.read_bytes()))
    assert found.pop("written")["lines"] == 2
    assert found == {
        "templates": {"dwh": "events"},
        "status": {"dwh/events": {"uploaded": True, "error": "", "rows": 1, "unmapped": 0}},
        "counts": {"dwh": {"events": 2, "skipped": 0, "rejected": 1}},
    }


def test_the_seconds_of_each_step_are_reported_when_a_cycle_ends(rig: Rig) -> None:
    report = rig.load({"a": 1})
    assert {"parse", "stage", "load", "archive"} <= report.times.seconds.keys()
    assert all(seconds >= 0 for seconds in report.times.seconds.values())


def test_a_large_file_gives_the_same_as_small_ones_when_it_is_split(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # over SMALL_BYTES lines are written by their tables first; below, one job routes and parses
    pad = "x" * 2_000
    events: list[Any] = [{"t": f"t{n % 3}", "n": n if n % 5 else str(n), "pad": pad} for n in range(900)]
    odd: list[Any] = [b"{torn", b"", {"t": "", "n": 1}]
    other = Rig(rig.spark, rig.folder / "small")
    rig.file([*events, *odd])
    for first in range(0, 900, 300):
        other.file(events[first : first + 300] + (odd if not first else []))
    template = {"table_name_template": "{{ t }}"}
    small = other.cycle(other.settings(template)).files
    monkeypatch.setattr(cycle, "SMALL_BYTES", 200_000)
    [large] = rig.cycle(rig.settings(template)).files
    assert large.archived
    assert other.tables() == rig.tables() == {"t0", "t1", "t2"}
    for table in rig.tables():
        query = f"SELECT * FROM {table} ORDER BY ALL"
        assert other.sql(query) == rig.sql(query)
    [whole] = large.destinations
    parts = [part for file in small for part in file.destinations]
    assert (whole.events, whole.skipped, whole.rejected) == (902, 1, 1)
    assert sum(part.events for part in parts) == whole.events
    assert (parts[0].skipped, parts[0].rejected) == (1, 1)


def test_the_report_names_the_columns_without_room_when_a_table_is_full(rig: Rig) -> None:
    report = rig.load({"a": 1, "often": 1}, {"often": 2, "rare": 1, "b": 1}, {"b": 2}, max_columns=3)
    assert report.without_room == {"dwh/events": ["a", "rare"]}
    assert rig.types().keys() == {"often", "b", "_unmapped_data"}


def test_normal_events_keep_their_columns_when_one_event_is_very_wide(rig: Rig) -> None:
    wide = {f"k{number:03}": number for number in range(900)}
    normal = [{"n": n, "text": f"{n}"} for n in range(3)]
    report = rig.load(*normal, wide, max_new_columns=20)
    # with `n` and `text`, which more events have; and `_unmapped_data`
    assert len(rig.types()) == 21
    assert {"n", "text"} <= rig.types().keys()
    assert len(report.without_room["dwh/events"]) == 100
    [kept] = rig.sql("SELECT json(_unmapped_data) FROM events WHERE _unmapped_data IS NOT NULL")
    assert len(json.loads(kept[0])) == 900 - 18
    rig.load({"n": 3, "late": 1}, {"n": 4, "late": 2}, max_new_columns=20)
    assert [row.get("late") for row in rig.rows()][-2:] == [1, 2]
    assert len(rig.types()) == 22


def test_sparks_page_names_step_and_file_when_a_file_is_loaded(rig: Rig) -> None:
    path = rig.file([{"kind": "a", "n": 1}])
    rig.cycle(rig.settings({"table_name_template": "{{ kind }}"}))
    context = rig.spark.sparkContext
    assert context.statusTracker().getJobIdsForGroup(path.name)
    assert context.getLocalProperty("spark.jobGroup.id") is None
    assert context.getLocalProperty("spark.job.description") is None

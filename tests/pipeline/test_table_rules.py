"""Which tables events may name: not those of others, the listed ones, and not too many."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from headwater.errors import SettingsError
from headwater.pipeline.load_report import Report
from headwater.pipeline.steps.route import Router
from headwater.pipeline.steps.table_rules import TableRules
from headwater.pipeline.steps.template import Template
from tests.pipeline.rig import Rig
from tests.pipeline.stream_rig import StreamRig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEMPLATE = {"table_name_template": "{{ t }}"}


def counts(report: Report) -> tuple[int, int, int, int]:
    """Events, rows, skipped and rejected; the first is the sum of the others (G3)."""
    found = [each for file in report.files for each in file.destinations]
    for each in found:
        assert each.events == each.rows + each.skipped + each.rejected
    events, rows, skipped, rejected = (
        sum(getattr(each, name) for each in found) for name in ("events", "rows", "skipped", "rejected")
    )
    return events, rows, skipped, rejected


def reasons(rig: Rig) -> list[str]:
    return sorted({reject.error for reject in rig.rejects()})


@pytest.fixture
def foreign(rig: Rig) -> Rig:
    """The database has tables of another program, and a view."""
    with duckdb.connect(str(rig.database())) as connection:
        connection.execute("CREATE TABLE customers (id BIGINT PRIMARY KEY, name VARCHAR)")
        connection.execute("INSERT INTO customers VALUES (1, 'theirs')")
        connection.execute("CREATE TABLE \"Orders\" AS SELECT 1 AS id, 'theirs' AS name")
        connection.execute("CREATE VIEW shown AS SELECT * FROM customers")
    return rig


def test_tables_of_others_stay_as_they_are_when_browser_events_name_them(foreign: Rig) -> None:
    before = [foreign.sql(f'SELECT * FROM "{name}"') for name in ("customers", "Orders", "shown")]
    events = [
        {"t": name, "id": 1, "name": "changed", "load_id": "forged"}
        for name in ("customers", "Customers", "orders", "shown", "_headwater_loads", "_Headwater Tables")
    ]
    settings = foreign.settings(TEMPLATE)
    foreign.file([*events, b"{torn", b"", {"t": "ours", "id": 1}, {"t": ""}])
    report = foreign.cycle(settings)
    assert counts(report) == (9, 1, 1, 7)
    assert report.files[0].archived
    assert [foreign.sql(f'SELECT * FROM "{name}"') for name in ("customers", "Orders", "shown")] == before
    assert foreign.sql("SELECT DISTINCT table_name FROM _headwater_loads") == [("ours",)]
    assert len(foreign.rejects()) == 7
    found = "\n".join(reasons(foreign))
    assert "`adopt_tables: [customers]`" in found
    assert "'shown' is a view" in found
    assert "the table name _headwater_loads is reserved" in found


def test_rejects_are_loaded_when_the_table_is_adopted_and_they_are_replayed(foreign: Rig) -> None:
    foreign.file([{"t": "customers", "id": 1, "name": "ours"}, {"t": "customers", "id": 2}])
    assert counts(foreign.cycle(foreign.settings(TEMPLATE))) == (2, 0, 0, 2)
    from headwater.log.rejects.destination_file import DestinationRejects

    assert DestinationRejects(foreign.folder / "events").request_replay("dwh", time.time()) == 2
    report = foreign.cycle(foreign.settings(TEMPLATE | {"adopt_tables": ["custom*"]}))
    assert counts(report) == (2, 2, 0, 0)
    assert foreign.sql("SELECT id, name FROM customers ORDER BY id") == [(1, "ours"), (2, None)]


def test_the_table_is_named_in_the_status_of_a_stream_when_it_is_foreign(
    spark: SparkSession, tmp_path: Path
) -> None:
    with StreamRig(spark, tmp_path) as rig:
        with duckdb.connect(str(rig.database())) as connection:
            connection.execute("CREATE TABLE customers AS SELECT 1 AS id")
        settings = rig.stream_settings(TEMPLATE)
        events = [{"t": "customers", "id": 2}, {"t": "ours", "id": 3}, {"t": "_headwater_loads"}, {"t": ""}]
        cursor = rig.drained(settings, *events)
        assert (cursor.rows, cursor.skipped, cursor.rejected, cursor.missing) == (1, 1, 2, 0)
        assert rig.rows("customers") == [{"id": 1}]
        assert rig.rows("ours") == [{"t": "ours", "id": 3}]
        assert any("adopt_tables" in reason for reason in reasons(rig))


LISTED = {"tables": ["page_*", "order"], "reserved_tables": ["page_secret"]}
NAMED: dict[str, tuple[str, str]] = {
    "order": ("order", ""),
    "Page View": ("page_view", ""),
    "orders": ("", "the table orders is not in `tables` of the destination dwh"),
    "page_secret": ("", "the table name page_secret is reserved"),
    "pages": ("", "the table pages is not in `tables` of the destination dwh"),
    "_headwater_keys": ("", "the table name _headwater_keys is reserved"),
    "": ("", ""),
}


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("default", ["", "other"])
def test_only_listed_tables_are_written_when_there_is_a_list(
    rig: Rig, default: str, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if size == "large":
        monkeypatch.setattr("headwater.pipeline.batch.cycle.SMALL_BYTES", 0)
    rig.file([*({"t": name, "n": n} for n, name in enumerate(NAMED)), b"{torn", b""])
    report = rig.cycle(rig.settings(TEMPLATE | LISTED | ({"unlisted_tables": default} if default else {})))
    unlisted = {name for name, (_, reason) in NAMED.items() if "not in `tables`" in reason}
    tables = {table for table, _ in NAMED.values() if table}
    assert rig.tables() == tables | ({default} if default else set())
    rejected = [
        reason for name, (_, reason) in NAMED.items() if reason and not (default and name in unlisted)
    ]
    assert counts(report) == (8, 2 + (2 if default else 0), 1, len(rejected) + 1)
    found = {json.loads(bytes(each.event))["t"]: each.error for each in rig.rejects() if each.event}
    assert found == {
        name: reason for name, (_, reason) in NAMED.items() if reason and not (default and name in unlisted)
    }


def test_a_constant_name_is_refused_when_it_is_reserved() -> None:
    for template, rules in (
        ("_headwater_loads", TableRules("dwh")),
        ("Orders", TableRules("dwh", reserved=("order*",))),
        ("{{ t }}", TableRules("dwh", unlisted="_headwater_x")),
    ):
        with pytest.raises(SettingsError, match="is reserved"):
            Router(Template(template), max_identifier_length=63, rules=rules)


@pytest.mark.parametrize("size", ["small", "large"])
def test_events_of_further_tables_are_rejects_when_a_file_has_too_many(
    rig: Rig, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if size == "large":
        monkeypatch.setattr("headwater.pipeline.batch.cycle.SMALL_BYTES", 0)
    names = ["a", "a", "b", "b", "c"]
    rig.file([*({"t": name} for name in names), b"{torn", b""])
    report = rig.cycle(rig.settings(TEMPLATE | {"max_tables_per_load": 2}))
    assert rig.tables() == {"a", "b"}
    assert counts(report) == (6, 4, 0, 2)
    assert any("max_tables_per_load" in reason for reason in reasons(rig))


def test_new_tables_wait_as_rejects_when_an_hour_has_had_enough(rig: Rig) -> None:
    settings = rig.settings(TEMPLATE | {"max_new_tables_per_hour": 2})
    rig.file([{"t": name, "n": n} for n, name in enumerate("abc")])
    assert counts(rig.cycle(settings)) == (3, 2, 0, 1)
    [reject] = rig.rejects()
    assert "max_new_tables_per_hour" in reject.error
    # tables that exist are not counted, in this cycle or the next
    rig.file([{"t": name, "n": n} for n, name in enumerate("abcd")])
    assert counts(rig.cycle(settings)) == (4, 2, 0, 2)
    rig.sql("UPDATE _headwater_tables SET created_seconds = created_seconds - 3601")
    rig.file([{"t": name, "n": n} for n, name in enumerate("cd")])
    assert counts(rig.cycle(settings)) == (2, 2, 0, 0)


def test_the_load_is_not_rejected_when_the_ledger_has_it_though_the_table_is_not_ours_any_more(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash came between load and record; then a view took the table's place."""
    from headwater.pipeline.batch.file_in_cycle import FileInCycle

    rig.file([{"n": 1}])
    with monkeypatch.context() as patched:
        patched.setattr(FileInCycle, "record", _die)
        with pytest.raises(_Died):
            rig.cycle()
    rig.sql("ALTER TABLE events RENAME TO kept; CREATE VIEW events AS SELECT * FROM kept")
    assert counts(rig.cycle()) == (1, 1, 0, 0)
    assert rig.rejects() == []


class _Died(BaseException):
    """Ends a cycle, as a signal would end the process."""


def _die(*_: Any) -> None:
    raise _Died

"""No name that an event can have reaches a table that Headwater did not create (G12)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.destinations.column_types import Kind
from headwater.destinations.table import Column, table_of
from headwater.errors import WarehouseError
from headwater.pipeline.steps.batch_schema import table_name
from headwater.testing.destinations import Subject, staged_load
from tests.destinations.test_duckdb import DuckDBSubject
from tests.destinations.test_postgres import PostgresSubject
from tests.parts.postgres import PostgresServer

FOREIGN = ("customers", "Orders", "straße", "select", 'a "quoted" name', "shown")
LEDGER = ("_headwater_loads", "_headwater_tables")
LOOKALIKE = str.maketrans({"s": "ſ", "o": "ｏ", "e": "е", "k": "K", "_": "＿", "ß": "ẞ", "i": "İ"})

Change = Callable[[str], str]
CHANGES: list[Change] = [
    str.upper,
    str.lower,
    str.title,
    str.swapcase,
    str.casefold,
    lambda name: f'"{name}"',
    lambda name: f"`{name}`",
    lambda name: f"[{name}]",
    lambda name: f"main.{name}",
    lambda name: f'main"."{name}',
    lambda name: f" {name}\t",
    lambda name: f"{name}\0",
    lambda name: f"{name}\u200b",
    lambda name: f"{name};--",
    lambda name: f"{name}/**/",
    lambda name: name.replace("_", "-"),
    lambda name: name.translate(LOOKALIKE),
    lambda name: name * 40,
    lambda name: name + " " * 300,
    lambda name: name[:-1],
    lambda name: table_name(name, 63),
]

names = st.one_of(
    st.builds(
        lambda name, changes: _changed(name, changes),
        st.sampled_from(FOREIGN + LEDGER),
        st.lists(st.sampled_from(CHANGES), max_size=3),
    ),
    st.text(max_size=80),
)


def _changed(name: str, changes: list[Change]) -> str:
    for change in changes:
        name = change(name)
    return name


@pytest.fixture(params=["duckdb", "postgres"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    made: Subject
    if request.param == "duckdb":
        made = DuckDBSubject(tmp_path)
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        made = PostgresSubject(server)
    made.destination.connect()
    for name in FOREIGN[:-1]:
        quoted = name.replace('"', '""')
        made.run(f'CREATE TABLE "{quoted}" (id bigint PRIMARY KEY, load_id text)')
        made.run(f"INSERT INTO \"{quoted}\" VALUES (1, 'theirs')")
    made.run("CREATE VIEW shown AS SELECT id, load_id FROM customers")
    yield made
    made.close()


def seen(subject: Subject) -> dict[str, str]:
    """The text of every foreign table, and of the structure of the ledger."""
    found = {name: _text(subject.rows(name)) for name in FOREIGN}
    return found | {name: _text([*map(list, subject.rows(name)[:1])]) for name in LEDGER}


def _text(value: Any) -> str:
    return json.dumps(value, default=str)


def try_names(subject: Subject, folder: Path, names: list[str]) -> None:
    """Tries to store rows under these names; fails if a table of another program or the ledger changes."""
    destination = subject.destination
    made = destination.patch(table_of("ours", [Column("id", Kind.INT64)]))
    destination.load(staged_load(folder, made, [{"id": 1}]))
    before = seen(subject)
    entered = {row["load_id"] for row in subject.rows("_headwater_loads")}
    for name in names:
        for each in dict.fromkeys((name, table_name(name, 63))):
            wanted = table_of(each, [Column("id", Kind.INT64), Column("load_id", Kind.STRING)], ["id"])
            for table in (wanted, table_of(each, [*wanted.columns.values(), Column("new", Kind.BOOL)])):
                load = staged_load(folder, table, [{"id": 1, "load_id": "forged"}])
                try:
                    destination.patch(table)
                    entered.add(destination.load(load).id)
                except WarehouseError:
                    pass  # the name is refused
    assert seen(subject) == before
    assert {row["load_id"] for row in subject.rows("_headwater_loads")} == entered


def searched(examples: int) -> Callable[[Any], Any]:
    """Many lists of names."""
    relaxed = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    lists = given(names=st.lists(names, min_size=1, max_size=12))
    return lambda test: settings(max_examples=examples, deadline=None, suppress_health_check=relaxed)(
        lists(test)
    )


@searched(5)
def test_foreign_tables_stay_as_they_are_when_events_name_them(
    subject: Subject, tmp_path: Path, names: list[str]
) -> None:
    try_names(subject, tmp_path, names)


@pytest.mark.long
@searched(150)
def test_foreign_tables_stay_as_they_are_when_many_events_name_them(
    subject: Subject, tmp_path: Path, names: list[str]
) -> None:
    try_names(subject, tmp_path, names)

"""Values move from `_unmapped_data` exactly, or stay there with their bytes."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headwater.destinations.base import Destination
from headwater.destinations.column_types import Kind
from headwater.destinations.duckdb import DuckDBDestination, DuckDBSettings
from headwater.destinations.postgres import PostgresDestination, PostgresSettings
from headwater.destinations.sql.heal import kind_of_token, value_for
from headwater.destinations.sql.sql_destination import SqlDestination
from headwater.destinations.table import UNMAPPED, Column, table_of
from headwater.errors import TableRefused
from tests.parts.postgres import PostgresServer

MANY = 10_000


@pytest.fixture(params=["duckdb", "postgres"])
def destination(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlDestination]:
    made: SqlDestination
    if request.param == "duckdb":
        made = DuckDBDestination("dwh", DuckDBSettings(path=str(tmp_path / "dwh.duckdb")))
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        made = PostgresDestination("dwh", PostgresSettings(url=server.url, schema=f"test_{uuid.uuid4().hex}"))
    made.connect()
    yield made
    made.close()


def create(
    destination: SqlDestination, kinds: dict[str, Kind], *rows: dict[str, Any], key: tuple[str, ...] = ()
) -> None:
    """A table `t` with rows; texts are SQL literals of the values, `_unmapped_data` is JSON text."""
    columns = [*(Column(name, kind) for name, kind in kinds.items()), Column(UNMAPPED, Kind.JSON)]
    destination.patch(table_of("t", columns, key))
    for row in rows:
        names = destination.dialect.listed(row)
        values = ", ".join(destination.dialect.literal(str(value)) for value in row.values())
        destination.execute(f"INSERT INTO {destination.relation('t')} ({names}) VALUES ({values})")


def rows(destination: SqlDestination, *names: str) -> list[tuple[Any, ...]]:
    columns = ", ".join(f"CAST({destination.dialect.quoted(name)} AS varchar)" for name in names)
    first = destination.dialect.quoted("id")
    return destination.execute(f"SELECT {columns} FROM {destination.relation('t')} ORDER BY {first}")


def test_values_move_and_the_others_keep_their_bytes_when_their_column_takes_them_now(
    destination: SqlDestination,
) -> None:
    create(
        destination,
        {"id": Kind.INT64, "note": Kind.STRING, "n": Kind.INT64, "flag": Kind.BOOL},
        {"id": 1, UNMAPPED: '{"note":1.10,"other":12345678901234567890123.4500}'},
        {"id": 2, UNMAPPED: '{"note":"it\'s é","n":7,"flag":true}'},
        {"id": 3, "note": "newer", UNMAPPED: '{"note":"older"}'},
        {"id": 4, UNMAPPED: '{"n":0.5,"note":null}'},
        {"id": 5},
    )
    healed = destination.heal("t", widen=False, max_rows=10)
    assert (healed.rows, healed.values) == (2, 4)
    assert healed.left == {"other": 1, "note": 2, "n": 1}
    found = rows(destination, "note", "n", "flag", UNMAPPED)
    assert [row[:3] for row in found] == [
        ("1.10", None, None),
        ("it's é", "7", "true"),
        ("newer", None, None),
        (None, None, None),
        (None, None, None),
    ]
    texts = [row[3] and row[3].replace(": ", ":") for row in found]
    assert texts[0] == '{"other":12345678901234567890123.4500}'
    assert texts[1] is None
    assert json.loads(texts[2]) == {"note": "older"}
    # it may be repeated
    assert destination.heal("t", widen=False, max_rows=10).values == 0


def test_columns_are_widened_and_keep_their_values_when_all_values_are_to_move(
    destination: SqlDestination,
) -> None:
    create(
        destination,
        {"id": Kind.INT64, "a": Kind.INT64, "b": Kind.INT64, "c": Kind.FLOAT64, "at": Kind.TIMESTAMP},
        {"id": 1, "a": 5, "b": 5, "c": 1.5, "at": "2026-11-16 10:00:00.5"},
        {"id": 2, UNMAPPED: '{"a":0.5,"b":"five","c":123456789012345678901234567890.1,"at":"noon"}'},
        key=("id",),
    )
    healed = destination.heal("t", widen=True, max_rows=10)
    assert (healed.values, healed.left) == (4, {})
    assert healed.widened == {"a": Kind.FLOAT64, "b": Kind.STRING, "c": Kind.STRING, "at": Kind.STRING}
    found = rows(destination, "a", "b", "c", "at", UNMAPPED)
    assert [Decimal(row[0]) for row in found] == [5, Decimal("0.5")]
    assert [row[1:] for row in found] == [
        ("5", "1.5", "2026-11-16T10:00:00.500000Z", None),
        ("five", "123456789012345678901234567890.1", "noon", None),
    ]
    table = destination.table("t")
    assert table is not None
    assert table.primary_key == ("id",)


def test_a_column_becomes_text_when_a_double_would_change_a_stored_integer(
    destination: SqlDestination,
) -> None:
    create(destination, {"id": Kind.INT64, "n": Kind.INT64}, {"id": 1, "n": (1 << 53) + 1})
    made = destination.widen("t", {"n": Kind.FLOAT64}, max_rows=10)
    [(value,)] = rows(destination, "n")
    assert Decimal(value) == (1 << 53) + 1
    is_double = destination.capabilities.types[Kind.FLOAT64] == "DOUBLE"
    assert made.columns["n"].kind is (Kind.STRING if is_double else Kind.FLOAT64)


def test_nothing_changes_when_the_table_is_larger_than_the_limit(destination: SqlDestination) -> None:
    stored = [{"id": n, UNMAPPED: '{"n":"x"}'} for n in range(3)]
    create(destination, {"id": Kind.INT64, "n": Kind.INT64}, *stored)
    with pytest.raises(TableRefused, match="has 3 rows"):
        destination.heal("t", widen=True, max_rows=2)
    assert rows(destination, "n", UNMAPPED)[0][0] is None
    assert destination.heal("t", widen=True, max_rows=3).values == 3


def test_a_table_of_another_program_is_not_changed_when_it_is_to_be_healed(
    destination: SqlDestination,
) -> None:
    json_type = destination.capabilities.types[Kind.JSON]
    destination.execute(f"CREATE TABLE {destination.relation('t')} (id bigint, {UNMAPPED} {json_type})")
    with pytest.raises(TableRefused, match="did not create it"):
        destination.heal("t", widen=False, max_rows=10)


def test_the_command_is_refused_when_a_type_cannot_move_values(tmp_path: Path) -> None:
    class Other(DuckDBDestination):
        row_id = ""

    other = Other("dwh", DuckDBSettings(path=str(tmp_path / "other.duckdb")))
    other.connect()
    with pytest.raises(TableRefused, match="cannot move values"):
        other.heal("t", widen=False, max_rows=10)
    with pytest.raises(TableRefused, match="cannot be widened"):
        Destination.widen(other, "t", {}, max_rows=10)
    other.close()


def test_a_value_is_never_changed_when_a_column_takes_it() -> None:
    source = random.Random(16)
    tokens = [_number(source) for _ in range(MANY)]
    tokens += ['"x"', '"1"', '"\\u0000"', '"\\ud800"', "[1.10,2]", "true", "null", '{"a":1}', "1e999999999"]
    for token in tokens:
        for kind in (Kind.BOOL, Kind.INT64, Kind.FLOAT64, Kind.STRING, Kind.TIMESTAMP):
            for is_decimal in (False, True):
                text = value_for(token.encode(), kind, is_decimal=is_decimal)
                if text is None:
                    continue
                if kind is Kind.STRING:
                    assert text == (json.loads(token) if token.startswith('"') else token)
                elif kind is Kind.BOOL:
                    assert token in ("true", "false")
                elif kind is Kind.FLOAT64 and not is_decimal:
                    assert Decimal(repr(float(text))) == Decimal(token)
                else:
                    assert Decimal(text) == Decimal(token)
                    assert kind is not Kind.INT64 or text.lstrip("-").isdigit()
                    if is_decimal and kind is Kind.FLOAT64:
                        whole, _, fraction = text.lstrip("-").partition(".")
                        assert len(whole) <= 20
                        assert len(fraction.rstrip("0")) <= 18


def test_every_number_has_a_kind_that_takes_it_when_it_is_looked_at() -> None:
    source = random.Random(17)
    for _ in range(MANY):
        token = _number(source).encode()
        kind = kind_of_token(token)
        assert kind is not None
        assert value_for(token, kind, is_decimal=False) is not None


def _number(source: random.Random) -> str:
    whole = str(source.getrandbits(source.choice([1, 8, 53, 63, 64, 90])))
    fraction = f".{source.getrandbits(source.choice([1, 30, 70]))}" if source.random() < 0.5 else ""
    exponent = f"{source.choice('eE')}{source.choice(['', '+', '-'])}{source.randrange(30)}"
    return f"{source.choice(['', '-'])}{whole}{fraction}{exponent if source.random() < 0.3 else ''}"

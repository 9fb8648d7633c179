"""What must be done to a table is decided without asking a database."""

from __future__ import annotations

import msgspec
import pytest

from headwater.destinations.column_types import Kind
from headwater.destinations.table import Column, Patch, Table, check_names, check_sql_type, diff, table_of
from headwater.errors import TableRefused

A, B, C = (Column(name, Kind.INT64) for name in "abc")


def test_all_columns_are_made_when_there_is_no_table() -> None:
    patch = diff(None, table_of("t", [A, B], ["a"]))
    assert patch == Patch(create=True, add=(A, B), set_key=("a",))
    assert patch


def test_only_what_is_missing_is_added_when_a_table_exists() -> None:
    assert diff(table_of("t", [A, C]), table_of("t", [A, B])) == Patch(add=(B,))
    assert not diff(table_of("t", [A, C]), table_of("t", [A]))


def test_a_column_is_there_when_it_differs_in_case_only_and_the_product_folds() -> None:
    upper = Column("A", Kind.STRING)
    assert not diff(table_of("t", [A]), table_of("t", [upper]), folds_case=True)
    assert diff(table_of("t", [A]), table_of("t", [upper])) == Patch(add=(upper,))


@pytest.mark.parametrize(
    ("have", "users", "want", "expected"),
    [
        ((), (), ("a",), Patch(set_key=("a",))),
        (("a",), (), ("a",), Patch()),
        (("a",), (), (), Patch(drop_key=True)),
        (("a",), (), ("b",), Patch(drop_key=True, set_key=("b",))),
        (("a", "b"), (), ("b", "a"), Patch()),
        ((), ("a",), (), Patch()),
        ((), ("a",), ("a",), Patch()),
        ((), ("a",), ("b",), Patch(set_key=("b",))),
        (("b",), ("a",), ("a",), Patch(drop_key=True)),
        (("a",), (), ("c",), Patch()),
        ((), (), ("c",), Patch()),
    ],
)
def test_a_key_is_ours_to_change_and_a_users_is_not_when_they_differ(
    have: tuple[str, ...], users: tuple[str, ...], want: tuple[str, ...], expected: Patch
) -> None:
    existing = Table("t", {"a": A, "b": B}, have, users)
    assert diff(existing, table_of("t", [A, B], want)) == expected


def test_a_key_is_left_out_when_a_new_table_lacks_its_column() -> None:
    assert diff(None, table_of("t", [A], ["k"])) == Patch(create=True, add=(A,))


def test_rows_go_by_the_users_key_when_none_is_configured() -> None:
    table = Table("t", {"a": A}, (), ("a",))
    assert table.key == ("a",)
    assert msgspec.structs.replace(table, primary_key=("b",)).key == ("b",)


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 11, "é" * 6])
def test_a_name_is_refused_when_it_cannot_be_kept_whole(name: str) -> None:
    with pytest.raises(TableRefused):
        check_names(table_of(name, [A]), 10)
    with pytest.raises(TableRefused):
        check_names(table_of("t", [Column(name, Kind.BOOL)]), 10)


@pytest.mark.parametrize(
    "text",
    [
        "text",
        "numeric(38,18)",
        "character varying(65535)",
        "timestamp with time zone",
        "LowCardinality(Nullable(String))",
        "DateTime64(3, 'Europe/Berlin')",
        "Enum8('a' = 1, 'it;s' = 2)",
        "integer[]",
        "STRUCT(a INTEGER, b VARCHAR)",
        "public.mood",
    ],
)
def test_a_type_passes_when_it_is_one(text: str) -> None:
    assert check_sql_type(f" {text} ") == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text; DROP TABLE t",
        "text, x int",
        "text) , (",
        "text -- comment",
        "text /* */",
        "numeric(38",
        "numeric)38(",
        "Enum8('a)",
        "text DEFAULT 'a\\'",
        "text = 1",
        '"quoted"',
        "int\0",
    ],
)
def test_a_type_is_refused_when_it_could_be_more(text: str) -> None:
    with pytest.raises(ValueError, match="not an SQL type"):
        check_sql_type(text)

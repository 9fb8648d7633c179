"""Names of columns: one rule, the same in every batch."""

from __future__ import annotations

import msgspec
import pytest

from headwater.destinations.base import destination_class
from headwater.destinations.postgres import PostgresDestination
from headwater.pipeline.steps.batch_schema import column_name, table_name
from headwater.pipeline.steps.field_tree import parse_pointer, pointer

POSTGRES = PostgresDestination.capabilities
ASCII = msgspec.structs.replace(POSTGRES, any_letters=False)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        pytest.param(("eventn_ctx", "user", "id"), "eventn_ctx_user_id", id="nested"),
        pytest.param(("late field",), "late_field", id="space"),
        pytest.param(("a-b.c/d~e",), "a_b_c_d_e", id="special"),
        pytest.param(("userId",), "userid", id="case"),
        pytest.param(("2nd",), "2nd", id="digit"),
        pytest.param(("a", ""), "a__unnamed", id="empty"),
        pytest.param(("x'; DROP TABLE t --",), "x___drop_table_t___", id="hostile"),
    ],
)
def test_special_characters_become_underscores_when_a_path_is_named(path: tuple[str, ...], name: str) -> None:
    assert column_name(path, POSTGRES) == name


def test_names_stay_apart_when_they_are_cut() -> None:
    long = ["k" * 10_000, "k" * 9_999 + "x", "k" * 64]
    names = [column_name((each,), POSTGRES) for each in long]
    assert all(len(name) == 63 for name in names)
    assert len(set(names)) == 3
    assert names == [column_name((each,), POSTGRES) for each in long]


KEYS = ("名前", "住所", "имя", "a\u202eb", "a\u202fb", "é", "è")


def test_names_stay_apart_when_a_product_has_ascii_names_alone() -> None:
    names = {column_name((each,), ASCII) for each in KEYS}
    assert len(names) == len(KEYS)
    assert all(name.isascii() for name in names)


def test_names_are_readable_when_the_product_allows_letters_of_every_script() -> None:
    names = [column_name((each,), POSTGRES) for each in KEYS]
    assert [name for name, key in zip(names, KEYS, strict=True) if name == key] == [*KEYS[:3], "é", "è"]
    assert len({*names}) == len(KEYS)
    assert column_name(("Straße", "Größe in m²"), POSTGRES) == "straße_größe_in_m²"
    assert column_name(("e\u0301",), POSTGRES) == "é"
    # neither a letter that becomes two, nor a lone surrogate, is taken for another name
    assert len({column_name((each,), POSTGRES) for each in ("İ", "i", "\ud800", "_")}) == 4


def test_names_have_whole_letters_when_they_are_cut() -> None:
    for length in range(60, 70):
        name = column_name(("名" * length,), POSTGRES)
        assert 60 <= len(name.encode()) <= 63
        assert name.startswith("名" * 17)
        assert name[-9] == "_"


def test_our_own_columns_are_not_taken_when_an_event_has_their_names() -> None:
    for taken in ("_unmapped_data", "_headwater_row", "_headwater_keyless", "_Headwater_Row"):
        assert column_name((taken,), POSTGRES).startswith(f"{taken.lower()}_")


@pytest.mark.parametrize(
    "type", ["bigquery", "clickhouse", "delta", "duckdb", "postgres", "redshift", "snowflake"]
)
def test_an_event_names_no_system_column_when_a_product_has_some(type: str) -> None:
    capabilities = destination_class(type).capabilities
    prefixed = [f"{prefix}x" for prefix in capabilities.reserved_prefixes]
    for each in [*capabilities.reserved_columns, *prefixed]:
        for key in (each, each.upper()):
            name = column_name((key,), capabilities)
            assert name not in capabilities.reserved_columns
            assert not name.startswith(capabilities.reserved_prefixes)
            assert name == column_name((key,), capabilities)


def test_a_table_has_one_name_when_its_letters_have_ascii_forms_in_lower_case() -> None:
    # lower() makes an ASCII letter of both, in Python and in Java, but not the same of each
    assert table_name("\u212aey", 63) not in ("key", table_name("Key", 63))
    assert table_name("Key", 63) == "key"


def test_a_pointer_reads_back_when_keys_have_slashes_dots_and_tildes() -> None:
    path = ("a/b", "c~d", "e.f", "~1")
    assert parse_pointer(pointer(path)) == path
    assert parse_pointer("/a~1b/c~0d/e.f/~01") == path


def test_the_leading_slash_may_be_missing_when_a_field_is_named() -> None:
    # `dst` may be a field name without leading slash
    assert parse_pointer("just_field_name") == ("just_field_name",)
    assert parse_pointer("/") == ()

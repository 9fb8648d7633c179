"""Names of columns: one rule, the same in every batch."""

from __future__ import annotations

import pytest

from headwater.pipeline.steps.batch_schema import column_name, sanitise
from headwater.pipeline.steps.field_tree import parse_pointer, pointer


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
    assert column_name(path, 63) == name


def test_names_stay_apart_when_they_are_cut() -> None:
    long = ["k" * 10_000, "k" * 9_999 + "x", "k" * 64]
    names = [column_name((each,), 63) for each in long]
    assert all(len(name) == 63 for name in names)
    assert len(set(names)) == 3
    assert names == [column_name((each,), 63) for each in long]


def test_names_stay_apart_when_their_letters_are_of_another_script() -> None:
    names = {column_name((each,), 63) for each in ("名前", "住所", "имя", "a\u202eb", "a\u202fb", "é", "è")}
    assert len(names) == 7
    assert all(name.isascii() for name in names)


def test_our_own_columns_are_not_taken_when_an_event_has_their_names() -> None:
    for taken in ("_unmapped_data", "_headwater_row"):
        assert sanitise(taken, 63).startswith(f"{taken}_")


def test_a_pointer_reads_back_when_keys_have_slashes_dots_and_tildes() -> None:
    path = ("a/b", "c~d", "e.f", "~1")
    assert parse_pointer(pointer(path)) == path
    assert parse_pointer("/a~1b/c~0d/e.f/~01") == path


def test_the_leading_slash_may_be_missing_when_a_field_is_named() -> None:
    # `dst` may be a field name without leading slash
    assert parse_pointer("just_field_name") == ("just_field_name",)
    assert parse_pointer("/") == ()

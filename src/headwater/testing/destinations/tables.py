"""Tables are made and patched; names from outside are only names (G12)."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import msgspec
import pytest

from headwater.destinations.column_types import Kind
from headwater.destinations.locks import FileLocks
from headwater.destinations.table import UNMAPPED, Column, table_of
from headwater.errors import DestinationUnavailable, TableRefused
from headwater.testing.destinations.subject import KINDS, Subject, Suite, by, load, table

HOSTILE = [
    "robert'); DROP TABLE t; --",
    'quote " and "" two',
    "back`tick",
    "semi;colon /* comment */",
    "rtl \u202e mark \u200f",
    "percent %s %(a)s {b} ?",
    "back\\slash",
    "select",
    "UPPER lower",
    "日本語",
]


class TableTests(Suite):
    """`connect`, `close`, `table` and `patch`."""

    def test_connect_and_close_may_be_repeated_when_already_done(self, subject: Subject) -> None:
        subject.destination.connect()
        subject.destination.close()
        subject.destination.close()
        with pytest.raises(DestinationUnavailable):
            subject.destination.table("t")
        subject.destination.connect()
        assert subject.destination.table("t") is None

    def test_connect_says_that_a_retry_helps_when_the_database_is_not_there(self, subject: Subject) -> None:
        destination = subject.unreachable()
        with pytest.raises(DestinationUnavailable) as caught:
            destination.connect()
        assert caught.value.retryable
        assert destination.id in str(caught.value)
        destination.close()

    def test_own_settings_are_described_when_there_are_any(self, subject: Subject) -> None:
        schema = msgspec.json.schema(type(subject.destination).Settings)
        fields = next(iter(schema["$defs"].values())).get("properties", {})
        assert [name for name, field in fields.items() if not field.get("description")] == []

    def test_a_table_has_the_products_types_when_it_is_created(self, subject: Subject) -> None:
        columns = [Column(f"a_{kind.lower()}", kind) for kind in KINDS] + [Column(UNMAPPED, Kind.JSON)]
        made = subject.destination.patch(table_of("types", columns))
        types = subject.destination.capabilities.types
        assert {name: self.bare_type(column.sql_type) for name, column in made.columns.items()} == {
            column.name: types[column.kind] for column in columns
        }
        assert {name: column.kind for name, column in made.columns.items()} == {
            column.name: column.kind for column in columns
        }
        assert subject.destination.table("types") == made

    def test_there_is_no_structure_when_there_is_no_table(self, subject: Subject) -> None:
        assert subject.destination.table("nowhere") is None

    def test_columns_are_added_and_none_is_dropped_when_a_table_is_patched(
        self, subject: Subject, staging: Path
    ) -> None:
        first = subject.destination.patch(table("t", a=Kind.INT64, b=Kind.STRING))
        load(subject, staging, first, [{"a": 1, "b": "x"}])
        second = subject.destination.patch(table("t", c=Kind.FLOAT64, a=Kind.INT64))
        assert list(second.columns) == ["a", "b", "c"]
        load(subject, staging, second, [{"c": 2.5}])
        assert by(subject.rows("t"), "a", "b", "c") == [(1, "x", None), (None, None, 2.5)]

    def test_nothing_changes_when_a_table_is_patched_again(self, subject: Subject) -> None:
        wanted = table_of("t", [Column("a", Kind.INT64), Column("k", Kind.STRING)], ["k"])
        first = subject.destination.patch(wanted)
        assert subject.destination.patch(wanted) == first

    def test_the_types_of_columns_stay_when_other_ones_are_wanted(self, subject: Subject) -> None:
        first = subject.destination.patch(table("t", a=Kind.INT64))
        assert subject.destination.patch(table("t", a=Kind.STRING)) == first

    def test_many_columns_are_made_when_a_table_is_wide(self, subject: Subject, staging: Path) -> None:
        names = [f"column_{i}" for i in range(300)]
        made = subject.destination.patch(table("wide", **dict.fromkeys(names, Kind.STRING)))
        assert list(made.columns) == names
        load(subject, staging, made, [{name: name for name in names}])
        assert subject.rows("wide") == [{name: name for name in names}]

    def test_two_patches_agree_when_they_come_at_once(self, subject: Subject, tmp_path: Path) -> None:
        locks, errors = FileLocks(tmp_path / "locks"), []
        names = [f"c{i}" for i in range(6)]

        def patch(name: str) -> None:
            destination = subject.another()
            try:
                destination.connect()
                for column in (name, "shared"):
                    with locks.hold(destination.id, "t"):
                        destination.patch(table("t", **{column: Kind.INT64}))
            except Exception as error:
                errors.append(error)
            finally:
                destination.close()

        threads = [threading.Thread(target=patch, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        made = subject.destination.table("t")
        assert made is not None
        assert sorted(made.columns) == sorted([*names, "shared"])


class NameTests(Suite):
    """Hostile, long and impossible names."""

    @pytest.mark.parametrize("name", HOSTILE)
    def test_a_name_is_only_a_name_when_it_is_hostile(
        self, subject: Subject, staging: Path, name: str
    ) -> None:
        wanted = table_of(name, [Column(name, Kind.STRING), Column("plain", Kind.INT64)], [name])
        made, stored = subject.destination.patch(wanted), self.stored(name)
        assert set(made.columns) == {stored, "plain"}
        assert made.primary_key == (stored,)
        again = subject.destination.patch(
            table(name, plain=Kind.INT64, **{f"{name} 2": Kind.BOOL, name: Kind.STRING})
        )
        load(subject, staging, again, [{stored: name, "plain": 1}])
        assert by(subject.rows(stored), stored, "plain") == [(name, 1)]

    def test_a_value_is_only_a_value_when_it_is_hostile(self, subject: Subject, staging: Path) -> None:
        made = subject.destination.patch(table("t", n=Kind.INT64, v=Kind.STRING))
        load(subject, staging, made, [{"n": i, "v": value} for i, value in enumerate(HOSTILE)])
        assert by(subject.rows("t"), "n", "v") == list(enumerate(HOSTILE))

    def test_a_row_lands_when_a_value_has_a_nul(self, subject: Subject, staging: Path) -> None:
        made = subject.destination.patch(
            table_of("t", [Column("v", Kind.STRING), Column(UNMAPPED, Kind.JSON)])
        )
        load(subject, staging, made, [{"v": "a\0b", UNMAPPED: json.dumps({"x": "c\0d"})}, {"v": "fine"}])
        rows = subject.rows("t")
        assert len(rows) == 2
        [row] = [row for row in rows if row["v"] != "fine"]
        unmapped = row[UNMAPPED] if isinstance(row[UNMAPPED], str) else json.dumps(row[UNMAPPED])
        assert re.search(r"c\\+u0000d", unmapped)
        # a product whose texts have no NUL keeps its JSON beside the column
        assert row["v"] == "a\0b" or (row["v"] is None and re.search(r"a\\+u0000b", unmapped))

    def test_a_value_lands_whole_when_it_is_long(self, subject: Subject, staging: Path) -> None:
        made = subject.destination.patch(table("t", v=Kind.STRING))
        load(subject, staging, made, [{"v": "x" * 1_000_000}])
        assert [len(row["v"]) for row in subject.rows("t")] == [1_000_000]

    def test_names_do_not_meet_when_they_differ_in_their_last_character(self, subject: Subject) -> None:
        longest = subject.destination.capabilities.max_identifier_length
        names = ["c" * (longest - 1) + end for end in "ab"]
        made = subject.destination.patch(table("t" * longest, **dict.fromkeys(names, Kind.INT64)))
        assert list(made.columns) == names

    @pytest.mark.parametrize("name", ["", "nul \0", "x" * 10_000])
    def test_a_name_is_refused_when_it_would_be_cut_or_cannot_be(self, subject: Subject, name: str) -> None:
        with pytest.raises(TableRefused):
            subject.destination.patch(table("t", **{name: Kind.INT64}))
        with pytest.raises(TableRefused):
            subject.destination.patch(table(name, a=Kind.INT64))
        assert subject.destination.table("t") is None

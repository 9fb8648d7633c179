"""Names and values from outside are only names and values (G12)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.destinations.column_types import Kind
from headwater.destinations.table import UNMAPPED, Column, table_of
from headwater.errors import TableRefused
from headwater.testing.destinations.subject import Subject, Suite, by, load, table

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
        assert len(subject.rows("t")) == 2
        assert sorted(row["v"].replace("\0", "\ufffd") for row in subject.rows("t")) == ["a\ufffdb", "fine"]

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

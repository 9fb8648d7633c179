"""Only tables that Headwater created, or that the settings adopt, are written (G12)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headwater.destinations.column_types import Kind
from headwater.destinations.table import Column, table_of
from headwater.errors import TableNotAllowed, TableRefused
from headwater.testing.destinations.subject import Subject, Suite, by, keyed, load, staged_load, table

OWN_NAMES = [
    "_headwater_loads",
    "_headwater_tables",
    "_HEADWATER_LOADS",
    '"_headwater_loads"',
    "_headwater_other",
    "_ｈeadwater_loads",
]


class OwnershipTests(Suite):
    """Tables of other programs, views, and Headwater's own tables."""

    def _theirs(self, subject: Subject) -> None:
        subject.run((self.their_table or self.keyed_table).format("theirs"))
        subject.run(self.note_row.format("theirs"))

    def test_a_table_of_another_program_stays_as_it_is_when_an_event_names_it(
        self, subject: Subject, staging: Path
    ) -> None:
        self._theirs(subject)
        before = subject.rows("theirs")
        wanted = table_of("theirs", [Column("id", Kind.INT64), Column("note", Kind.STRING)], ["id"])
        with pytest.raises(TableNotAllowed, match="adopt_tables"):
            subject.destination.patch(wanted)
        with pytest.raises(TableNotAllowed):
            subject.destination.patch(table("theirs", extra=Kind.STRING))
        stolen = staged_load(staging, wanted, [{"id": 1, "note": "changed"}], id="stolen")
        with pytest.raises(TableNotAllowed):
            subject.destination.load(stolen)
        assert subject.rows("theirs") == before
        assert subject.destination.loaded(["stolen"]) == set()

    def test_a_table_is_adopted_when_the_settings_name_it(self, subject: Subject, staging: Path) -> None:
        self._theirs(subject)
        subject.destination.adopt_tables = ("other", "the*")
        made = subject.destination.patch(table("theirs", id=Kind.INT64, note=Kind.STRING))
        load(subject, staging, made, [{"id": 2, "note": "ours"}])
        assert by(subject.rows("theirs"), "id", "note") == [(1, "theirs"), (2, "ours")]

    def test_a_table_stays_ours_when_the_destination_is_opened_again(
        self, subject: Subject, staging: Path
    ) -> None:
        load(subject, staging, subject.destination.patch(keyed("t")), [{"k": "a", "v": 1}])
        another = subject.another()
        subject.destination.close()
        another.connect()
        try:
            another.load(staged_load(staging, another.patch(keyed("t")), [{"k": "a", "v": 2}]))
        finally:
            another.close()
            subject.destination.connect()
        assert by(subject.rows("t"), "k", "v") == [("a", 2)]

    def test_a_view_stays_as_it_is_when_an_event_names_it(self, subject: Subject, staging: Path) -> None:
        self._theirs(subject)
        subject.run(self.view.format("shown", "theirs"))
        subject.destination.adopt_tables = ("*",)
        wanted = table("shown", id=Kind.INT64, note=Kind.STRING)
        with pytest.raises(TableNotAllowed, match="view"):
            subject.destination.patch(wanted)
        with pytest.raises(TableNotAllowed, match="view"):
            subject.destination.load(staged_load(staging, wanted, [{"id": 2, "note": "changed"}]))
        assert by(subject.rows("theirs"), "id", "note") == [(1, "theirs")]

    @pytest.mark.parametrize("name", OWN_NAMES)
    def test_a_name_is_refused_when_it_is_one_of_headwaters_own(self, subject: Subject, name: str) -> None:
        subject.destination.adopt_tables = ("*",)
        with pytest.raises(TableRefused):
            subject.destination.patch(table(name, load_id=Kind.STRING))

    def test_new_tables_are_counted_when_they_are_created(self, subject: Subject) -> None:
        began = int(time.time())
        for name in ("t", "u"):
            subject.destination.patch(table(name, v=Kind.INT64))
        assert subject.destination.tables_created_since(began) == 2
        assert subject.destination.tables_created_since(int(time.time()) + 60) == 0

"""A load is stored once, and refused rows are returned."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headwater.destinations.base import Destination, Loaded
from headwater.destinations.column_types import Kind
from headwater.errors import LoadRefused
from headwater.testing.destinations.staging import staged_load
from headwater.testing.destinations.subject import Subject, Suite, by, load, table


class LoadTests(Suite):
    """The ledger (G5) and refusals (G6)."""

    def test_rows_are_stored_once_when_a_load_is_repeated(self, subject: Subject, staging: Path) -> None:
        made = subject.destination.patch(table("t", v=Kind.INT64))
        first = load(subject, staging, made, [{"v": 1}, {"v": 2}], id="file 1")
        assert first == Loaded(id="file 1", rows=2)
        assert load(subject, staging, made, [{"v": 1}, {"v": 2}], id="file 1") == Loaded(
            id="file 1", rows=2, already=True
        )
        assert by(subject.rows("t"), "v") == [(1,), (2,)]

    def test_a_load_is_remembered_when_the_destination_is_opened_again(
        self, subject: Subject, staging: Path
    ) -> None:
        made = subject.destination.patch(table("t", v=Kind.INT64))
        load(subject, staging, made, [{"v": 1}], id="it's")
        subject.destination.close()
        subject.destination.connect()
        assert subject.destination.loaded(["it's", "other"]) == {"it's"}
        assert subject.destination.loaded([]) == set()
        assert load(subject, staging, made, [{"v": 1}], id="it's").already
        assert by(subject.rows("t"), "v") == [(1,)]

    def test_loads_are_found_in_the_order_of_their_ids_when_a_stream_begins(
        self, subject: Subject, staging: Path
    ) -> None:
        if type(subject.destination).loaded_between is Destination.loaded_between:
            pytest.skip("not applicable: no loaded_between, so a stream's cursor must not be lost")
        made = subject.destination.patch(table("t", v=Kind.INT64))
        for id in ("0a09", "0a10", "0a1f", "0b00", "0910"):
            load(subject, staging, made, [{"v": 1}], id=id)
        assert subject.destination.loaded_between("0a10", "0ag") == {"0a10", "0a1f"}

    def test_totals_add_up_when_loads_were_made(self, subject: Subject, staging: Path) -> None:
        for name, count in (("t", 3), ("u", 2), ("t", 4)):
            made = subject.destination.patch(table(name, v=Kind.INT64))
            load(subject, staging, made, [{"v": i} for i in range(count)], id=f"{name}{count}")
        totals = subject.destination.totals()
        assert {name: (total.loads, total.rows) for name, total in totals.items()} == {
            "t": (2, 7),
            "u": (1, 2),
        }

    def test_all_files_are_loaded_when_there_are_several(self, subject: Subject, staging: Path) -> None:
        made = subject.destination.patch(table("t", v=Kind.INT64))
        result = load(subject, staging, made, [{"v": i} for i in range(10)], files=3)
        assert result.rows == 10
        assert by(subject.rows("t"), "v") == [(i,) for i in range(10)]

    def test_nothing_is_stored_but_the_entry_when_a_load_is_empty(
        self, subject: Subject, staging: Path
    ) -> None:
        made = subject.destination.patch(table("t", v=Kind.INT64))
        assert load(subject, staging, made, [], id="empty", kinds={"v": Kind.INT64}).rows == 0
        assert subject.destination.loaded(["empty"]) == {"empty"}
        assert subject.rows("t") == []

    def test_a_refused_row_is_set_aside_when_the_others_are_good(
        self, subject: Subject, staging: Path
    ) -> None:
        subject.run(self.strict_table.format("strict"))
        made = subject.destination.patch(table("strict", number=Kind.INT64, note=Kind.STRING))
        rows = [{"number": 13 if i in (4, 17) else 100 + i, "note": "x"} for i in range(20)]
        result = load(subject, staging, made, rows, id="with bad", first_row=100)
        assert result.rows == 18
        assert [row.row for row in result.refused] == [104, 117]
        assert all(row.reason for row in result.refused)
        assert sorted(row["number"] for row in subject.rows("strict")) == [
            100 + i for i in range(20) if i not in (4, 17)
        ]
        again = load(subject, staging, made, rows, id="with bad", first_row=100)
        assert again == msgspec.structs.replace(result, already=True)
        assert len(subject.rows("strict")) == 18

    def test_nothing_is_stored_when_too_many_rows_are_refused(self, subject: Subject, staging: Path) -> None:
        subject.run(self.strict_table.format("strict"))
        made = subject.destination.patch(table("strict", number=Kind.INT64, note=Kind.STRING))
        subject.destination.max_refused = 5
        rows = [{"number": 1, "note": "good"}] + [{"number": 13, "note": "bad"}] * 6
        with pytest.raises(LoadRefused):
            load(subject, staging, made, rows, id="refused")
        assert subject.rows("strict") == []
        assert subject.destination.loaded(["refused"]) == set()
        load(subject, staging, made, [{"number": 1, "note": "good"}], id="refused")
        assert len(subject.rows("strict")) == 1

    def test_a_load_is_refused_when_its_table_or_column_is_not_there(
        self, subject: Subject, staging: Path
    ) -> None:
        with pytest.raises(LoadRefused):
            load(subject, staging, table("t", v=Kind.INT64), [{"v": 1}], id="one")
        subject.destination.patch(table("t", v=Kind.INT64))
        with pytest.raises(LoadRefused):
            load(subject, staging, table("t", w=Kind.INT64), [{"w": 1}], id="one")
        assert subject.rows("t") == []
        assert subject.destination.loaded(["one"]) == set()

    def test_a_load_is_refused_when_its_file_is_not_there(self, subject: Subject, staging: Path) -> None:
        made = subject.destination.patch(table("t", v=Kind.INT64))
        request = staged_load(staging, made, [{"v": 1}], id="gone")
        Path(request.files[0]).unlink()
        with pytest.raises(LoadRefused):
            subject.destination.load(request)
        assert subject.destination.loaded(["gone"]) == set()

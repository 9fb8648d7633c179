"""A load is stored once, refused rows are returned, and rows are upserted by their key."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headwater.destinations.base import Destination, Loaded, StreamLoadId, parse_stream_id
from headwater.destinations.column_types import Kind
from headwater.destinations.table import Column, table_of
from headwater.errors import LoadRefused, TableRefused, WarehouseError
from headwater.testing.destinations.subject import Subject, Suite, by, keyed, load, staged_load, table


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

    def test_a_stream_has_the_same_positions_when_its_entries_are_folded(
        self, subject: Subject, staging: Path
    ) -> None:
        if type(subject.destination).fold_ledger is Destination.fold_ledger:
            pytest.skip("not applicable: the ledger is not folded")
        made = {name: subject.destination.patch(table(name, v=Kind.INT64)) for name in "tu"}
        digests = {"t": "1" * 16, "u": "2" * 16}
        ranges = [
            ("t", 1, 5),
            ("u", 1, 5),
            ("t", 5, 9),
            ("t", 9, 12),
            ("u", 9, 12),
            ("t", 20, 30),
            ("u", 30, 31),
        ]
        for name, first, end in ranges:
            id = str(StreamLoadId("a" * 32, end, first, digests[name]))
            load(subject, staging, made[name], [{"v": 1}, {"v": 2}], id=id)
        load(subject, staging, made["t"], [{"v": 1}], id="of a file")
        before = subject.destination.totals()
        assert subject.destination.fold_ledger(days=1) == 0  # they are not old
        assert subject.destination.fold_ledger(days=-1) == 3
        assert subject.destination.fold_ledger(days=-1) == 0
        found = [parse_stream_id(id) for id in subject.destination.loaded_between("a" * 32, "b")]
        assert sorted((parts.table[0], parts.first, parts.end) for parts in found if parts is not None) == [
            ("1", 1, 12),
            ("1", 20, 30),
            ("2", 1, 12),
            ("2", 30, 31),
        ]
        assert subject.destination.loaded(["of a file"])
        after = subject.destination.totals()
        assert {name: total.rows for name, total in after.items()} == {
            name: total.rows for name, total in before.items()
        }

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
        subject.destination.adopt_tables = ("strict",)
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
        subject.destination.adopt_tables = ("strict",)
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

    def test_a_load_fails_and_blames_no_row_when_its_file_is_not_there(
        self, subject: Subject, staging: Path
    ) -> None:
        made = subject.destination.patch(table("t", v=Kind.INT64))
        request = staged_load(staging, made, [{"v": 1}], id="gone")
        Path(request.files[0]).unlink()
        with pytest.raises((WarehouseError, OSError)) as caught:
            subject.destination.load(request)
        # rows of a load that is refused become rejects
        assert not isinstance(caught.value, (LoadRefused, TableRefused))
        assert subject.destination.loaded(["gone"]) == set()


class KeyTests(Suite):
    """Keys made, changed and left alone; the last row wins."""

    def test_the_last_row_wins_when_a_key_comes_again(self, subject: Subject, staging: Path) -> None:
        made = subject.destination.patch(keyed("t"))
        assert made.key == ("k",)
        load(subject, staging, made, [{"k": "a", "v": 1}, {"k": "b", "v": 2}])
        result = load(subject, staging, made, [{"k": "a", "v": 3}, {"k": "c", "v": 4}])
        assert result.rows == 2
        assert by(subject.rows("t"), "k", "v") == [("a", 3), ("b", 2), ("c", 4)]

    def test_the_last_row_wins_when_a_load_repeats_a_key(self, subject: Subject, staging: Path) -> None:
        made = subject.destination.patch(keyed("t"))
        rows = [{"k": "a", "v": i} for i in range(5)] + [{"k": "b", "v": 7}]
        load(subject, staging, made, rows, order=[3, 0, 4, 1, 2, 5])
        assert by(subject.rows("t"), "k", "v") == [("a", 2), ("b", 7)]

    def test_only_present_columns_change_when_a_row_is_replaced(
        self, subject: Subject, staging: Path
    ) -> None:
        made = subject.destination.patch(keyed("t", w=Kind.STRING))
        load(subject, staging, made, [{"k": "a", "v": 1, "w": "kept"}, {"k": "b", "v": 2, "w": "old"}])
        load(subject, staging, made, [{"k": "a", "v": 9}], kinds={"k": Kind.STRING, "v": Kind.INT64})
        load(subject, staging, made, [{"k": "b", "w": "new"}, {"k": "b", "v": 5}])
        assert by(subject.rows("t"), "k", "v", "w") == [("a", 9, "kept"), ("b", 5, "new")]

    def test_rows_are_appended_when_they_lack_a_part_of_the_key(
        self, subject: Subject, staging: Path
    ) -> None:
        made = subject.destination.patch(keyed("t"))
        load(subject, staging, made, [{"v": 1}, {"v": 1}, {"k": "a", "v": 1}])
        load(subject, staging, made, [{"v": 1}], kinds={"v": Kind.INT64})
        assert by(subject.rows("t"), "k", "v") == [("a", 1), (None, 1), (None, 1), (None, 1)]

    def test_a_key_of_two_columns_holds_when_values_could_run_together(
        self, subject: Subject, staging: Path
    ) -> None:
        wanted = table_of(
            "t", [Column("a", Kind.STRING), Column("b", Kind.STRING), Column("v", Kind.INT64)], ["a", "b"]
        )
        made = subject.destination.patch(wanted)
        rows = [{"a": "x", "b": "yz", "v": 1}, {"a": "xy", "b": "z", "v": 2}, {"a": "x", "b": "yz", "v": 3}]
        load(subject, staging, made, rows)
        assert by(subject.rows("t"), "a", "b", "v") == [("x", "yz", 3), ("xy", "z", 2)]

    def test_the_key_is_replaced_when_another_is_configured(self, subject: Subject, staging: Path) -> None:
        made = subject.destination.patch(keyed("t"))
        load(subject, staging, made, [{"k": "a", "v": 1}, {"k": "b", "v": 2}])
        changed = subject.destination.patch(table_of("t", made.columns.values(), ["v"]))
        assert changed.key == ("v",)
        load(subject, staging, changed, [{"k": "c", "v": 1}, {"k": "b", "v": 3}])
        assert by(subject.rows("t"), "k", "v") == [("b", 2), ("b", 3), ("c", 1)]

    def test_the_key_is_dropped_when_none_is_configured_any_more(
        self, subject: Subject, staging: Path
    ) -> None:
        made = subject.destination.patch(keyed("t"))
        load(subject, staging, made, [{"k": "a", "v": 1}])
        changed = subject.destination.patch(table_of("t", made.columns.values()))
        assert changed.key == ()
        load(subject, staging, changed, [{"k": "a", "v": 1}])
        assert by(subject.rows("t"), "k", "v") == [("a", 1), ("a", 1)]

    def test_a_key_is_made_when_its_column_comes_later(self, subject: Subject, staging: Path) -> None:
        made = subject.destination.patch(table_of("t", [Column("v", Kind.INT64)], ["k"]))
        load(subject, staging, made, [{"v": 1}, {"v": 1}])
        changed = subject.destination.patch(keyed("t"))
        assert changed.key == ("k",)
        load(subject, staging, changed, [{"k": "a", "v": 2}])
        load(subject, staging, changed, [{"k": "a", "v": 3}])
        assert by(subject.rows("t"), "k", "v") == [("a", 3), (None, 1), (None, 1)]

    def test_a_users_own_key_stays_when_none_is_configured(self, subject: Subject, staging: Path) -> None:
        subject.run(self.keyed_table.format("mine"))
        subject.destination.adopt_tables = ("mine",)
        made = subject.destination.patch(table("mine", id=Kind.INT64, note=Kind.STRING, extra=Kind.BOOL))
        assert (made.primary_key, made.users_key, made.key) == ((), ("id",), ("id",))
        load(subject, staging, made, [{"id": 1, "note": "a", "extra": True}, {"id": 2, "note": "b"}])
        load(subject, staging, made, [{"id": 1, "note": "c"}])
        assert by(subject.rows("mine"), "id", "note", "extra") == [(1, "c", True), (2, "b", None)]

    def test_a_users_own_key_is_used_when_it_is_the_configured_one(self, subject: Subject) -> None:
        subject.run(self.keyed_table.format("mine"))
        subject.destination.adopt_tables = ("mine",)
        made = subject.destination.patch(table_of("mine", [Column("id", Kind.INT64)], ["id"]))
        assert (made.primary_key, made.users_key, made.key) == ((), ("id",), ("id",))

    def test_no_row_is_missed_or_doubled_when_loads_are_large(self, subject: Subject, staging: Path) -> None:
        made = subject.destination.patch(keyed("t"))
        half = self.many_rows // 4
        first = [{"k": f"key {i}", "v": i} for i in range(2 * half)]
        second = [{"k": f"key {i}", "v": -i} for i in range(half, 4 * half)] + [{"v": 1}]
        for rows in (first, second, second):
            assert load(subject, staging, made, rows).rows == len(rows)
        found = {row["k"]: row["v"] for row in subject.rows("t") if row["k"] is not None}
        assert len(found) == 4 * half
        assert all(found[f"key {i}"] == (i if i < half else -i) for i in range(4 * half))
        assert len(subject.rows("t")) == 4 * half + 2

"""Rows are upserted by their key."""

from __future__ import annotations

from pathlib import Path

from headwater.destinations.column_types import Kind
from headwater.destinations.table import Column, table_of
from headwater.testing.destinations.subject import Subject, Suite, by, keyed, load, table


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
        made = subject.destination.patch(table("mine", id=Kind.INT64, note=Kind.STRING, extra=Kind.BOOL))
        assert (made.primary_key, made.users_key, made.key) == ((), ("id",), ("id",))
        load(subject, staging, made, [{"id": 1, "note": "a", "extra": True}, {"id": 2, "note": "b"}])
        load(subject, staging, made, [{"id": 1, "note": "c"}])
        assert by(subject.rows("mine"), "id", "note", "extra") == [(1, "c", True), (2, "b", None)]

    def test_a_users_own_key_is_used_when_it_is_the_configured_one(self, subject: Subject) -> None:
        subject.run(self.keyed_table.format("mine"))
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

"""Values come back as they were, or are kept beside their row."""

from __future__ import annotations

import datetime as dt
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from headwater.destinations.column_types import Kind
from headwater.destinations.table import UNMAPPED, Column, table_of
from headwater.testing.destinations.subject import KINDS, Subject, Suite, by, load, parsed, table

SAMPLE: dict[Kind, list[Any]] = {
    Kind.BOOL: [True, False],
    Kind.INT64: [0, -1, 2**63 - 1, -(2**63)],
    Kind.FLOAT64: [0.0, -2.5, 19.99, 1234567.125, 1e-9],
    Kind.STRING: [
        "",
        " ",
        "NULL",
        "Grüße",
        "日本語",
        "\U0001f600",
        "a\nb\tc\r\n",
        "\"q\" \\ 's' ,;",
        "\\N",
        "\\.",
    ],
    Kind.TIMESTAMP: [
        dt.datetime(2026, 11, 16, 10, 0, 0, 123456, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
        dt.datetime(2099, 12, 31, tzinfo=dt.UTC),
    ],
}


class ValueTests(Suite):
    """All kinds, all pairs of them, and explicit types."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_values_come_back_as_they_were_when_they_are_loaded(
        self, subject: Subject, staging: Path, kind: Kind
    ) -> None:
        made = subject.destination.patch(table("t", n=Kind.INT64, v=kind))
        values = [*SAMPLE[kind], None]
        load(subject, staging, made, [{"n": i, "v": value} for i, value in enumerate(values)])
        assert by(subject.rows("t"), "n", "v") == list(enumerate(values))

    @pytest.mark.parametrize(("existing", "staged"), [*product(KINDS, KINDS)], ids=lambda kind: str(kind))
    def test_every_row_lands_when_a_column_has_another_kind(
        self, subject: Subject, staging: Path, existing: Kind, staged: Kind
    ) -> None:
        made = subject.destination.patch(table("t", n=Kind.INT64, v=existing))
        values = SAMPLE[staged]
        rows = [{"n": i, "v": value} for i, value in enumerate(values)]
        result = load(subject, staging, made, rows, kinds={"n": Kind.INT64, "v": staged})
        found = {row["n"]: row for row in subject.rows("t")}
        assert len(found) == len(values)
        lost = [i for i, value in enumerate(values) if found[i]["v"] is None]
        assert result.unmapped == len(lost)
        for i in lost:
            assert "v" in parsed(found[i][UNMAPPED]), "a value is neither in its column nor unmapped"

    def test_an_explicit_type_is_made_and_cast_to_when_it_is_given(
        self, subject: Subject, staging: Path
    ) -> None:
        made = subject.destination.patch(table_of("t", [Column("v", Kind.STRING, self.small_integer)]))
        assert made.columns["v"].sql_type.lower() == self.small_integer.lower()
        result = load(subject, staging, made, [{"v": "12"}], kinds={"v": Kind.STRING})
        assert (result.rows, result.unmapped) == (1, 0)
        assert by(subject.rows("t"), "v") == [(12,)]

    def test_a_value_goes_to_unmapped_when_the_explicit_type_does_not_take_it(
        self, subject: Subject, staging: Path
    ) -> None:
        made = subject.destination.patch(
            table_of("t", [Column("n", Kind.INT64), Column("v", Kind.STRING, self.small_integer)])
        )
        rows = [{"n": i, "v": value} for i, value in enumerate(["12", "many", "70000", None])]
        result = load(subject, staging, made, rows, kinds={"n": Kind.INT64, "v": Kind.STRING})
        assert (result.rows, result.unmapped, result.refused) == (4, 2, ())
        found = {row["n"]: row for row in subject.rows("t")}
        assert [found[i]["v"] for i in range(4)] == [12, None, None, None]
        assert [parsed(found[i][UNMAPPED]) for i in range(4)] == [{}, {"v": "many"}, {"v": "70000"}, {}]

    def test_unmapped_values_are_kept_beside_each_other_when_there_are_several(
        self, subject: Subject, staging: Path
    ) -> None:
        made = subject.destination.patch(
            table_of("t", [Column("v", Kind.STRING, self.small_integer), Column(UNMAPPED, Kind.JSON)])
        )
        rows = [{"v": "many", UNMAPPED: json.dumps({"other": [1, "x"]})}]
        load(subject, staging, made, rows, kinds={"v": Kind.STRING, UNMAPPED: Kind.JSON})
        assert [parsed(row[UNMAPPED]) for row in subject.rows("t")] == [{"other": [1, "x"], "v": "many"}]

    def test_a_type_is_refused_when_it_is_more_than_a_type(self, subject: Subject) -> None:
        with pytest.raises(ValueError, match="not an SQL type"):
            subject.destination.patch(table_of("t", [Column("v", Kind.STRING, "text); DROP TABLE t; --")]))
        assert subject.destination.table("t") is None

"""The parts of the conformance suite for products whose tables know no rule but NOT NULL."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from headwater.destinations.column_types import Kind
from headwater.errors import LoadRefused
from headwater.testing.destinations import DestinationConformance, Subject
from headwater.testing.destinations.subject import load, table

__all__ = ["OnlyNotNull"]


class OnlyNotNull(DestinationConformance):
    """A CHECK is not enforced, or there is none: rows are refused for a number that is missing."""

    stand_in: ClassVar[str]
    """Where it runs: see stand_ins.py."""
    many_rows = 4_000
    strict_table = "CREATE TABLE {} (number bigint NOT NULL, note text)"

    def test_a_refused_row_is_set_aside_when_the_others_are_good(
        self, subject: Subject, staging: Path
    ) -> None:
        subject.run(self.strict_table.format("strict"))
        subject.destination.adopt_tables = ("strict",)
        made = subject.destination.patch(table("strict", number=Kind.INT64, note=Kind.STRING))
        rows = [{"number": None if i in (4, 9) else 100 + i, "note": "x"} for i in range(12)]
        result = load(subject, staging, made, rows, id="with bad", first_row=100)
        assert result.rows == 10
        assert [row.row for row in result.refused] == [104, 109]
        assert all(row.reason for row in result.refused)
        good = [100 + i for i in range(12) if i not in (4, 9)]
        assert sorted(row["number"] for row in subject.rows("strict")) == good
        again = load(subject, staging, made, rows, id="with bad", first_row=100)
        assert again == msgspec.structs.replace(result, already=True)
        assert len(subject.rows("strict")) == 10

    def test_nothing_is_stored_when_too_many_rows_are_refused(self, subject: Subject, staging: Path) -> None:
        subject.run(self.strict_table.format("strict"))
        subject.destination.adopt_tables = ("strict",)
        made = subject.destination.patch(table("strict", number=Kind.INT64, note=Kind.STRING))
        subject.destination.max_refused = 2
        rows = [{"number": 1, "note": "good"}] + [{"number": None, "note": "bad"}] * 3
        kinds = {"number": Kind.INT64, "note": Kind.STRING}
        with pytest.raises(LoadRefused):
            load(subject, staging, made, rows, id="refused", kinds=kinds)
        assert subject.rows("strict") == []
        assert subject.destination.loaded(["refused"]) == set()
        load(subject, staging, made, [{"number": 1, "note": "good"}], id="refused")
        assert len(subject.rows("strict")) == 1

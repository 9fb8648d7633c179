"""How a table is divided into partitions: `partition_by` of the settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from headwater.destinations.lake.rows import Dialect
from headwater.errors import SettingsError

_FORM = re.compile(r"(?:(years|months|days|hours)\(\s*)?([A-Za-z0-9_]+)\s*(\))?")


class PartitionField(NamedTuple):
    """A column, or a period of a column of times."""

    column: str
    transform: str
    """`years`, `months`, `days` or `hours`; empty: the column itself."""

    @property
    def name(self) -> str:
        """The column that has the partition's value."""
        return f"{self.column}_{self.transform[:-1]}" if self.transform else self.column

    def sql(self, dialect: Dialect, staged: str | None) -> str:
        """SQL of the start of the period; NULL if the rows do not have the column `staged`."""
        type = "VARCHAR" if self.transform == "hours" else "DATE"
        if staged is None:
            return f"CAST(NULL AS {type})"
        moment = f"TRY_CAST({dialect.staged(staged)} AS TIMESTAMP)"
        if self.transform == "hours":
            return f"strftime({moment}, '%Y-%m-%d-%H')"
        return f"CAST(date_trunc('{self.transform[:-1]}', {moment}) AS DATE)"


def parse_partitions(destination: str, fields: Sequence[str]) -> tuple[PartitionField, ...]:
    """The fields of `partition_by`."""
    found = []
    for text in fields:
        match = _FORM.fullmatch(text.strip())
        if match is None or bool(match[1]) != bool(match[3]):
            raise SettingsError(
                [
                    f"`partition_by` of the destination {destination} has {text!r}; write a column, or "
                    "years(column), months(column), days(column) or hours(column)"
                ]
            )
        found.append(PartitionField(match[2], match[1] or ""))
    return tuple(found)

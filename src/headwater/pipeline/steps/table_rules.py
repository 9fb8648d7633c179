"""The tables that a template may name: those that the settings list, and none that they reserve.

The names come from events, so they are checked as they stand after sanitising, in the pass that routes the
lines. The destination itself checks that an existing table is its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from headwater.destinations.table import OWN_PREFIX, is_reserved
from headwater.errors import SettingsError
from headwater.pipeline.steps.convert import literal
from headwater.settings import DestinationSettings, Settings

REJECT = "reject"


@dataclass(frozen=True)
class TableRules:
    """The rules of one destination."""

    destination_id: str = ""
    listed: tuple[str, ...] = ()
    unlisted: str = REJECT
    reserved: tuple[str, ...] = ()
    max_tables: int = 1_000

    @classmethod
    def of(cls, settings: DestinationSettings) -> TableRules:
        return cls(
            settings.id,
            settings.tables,
            settings.unlisted_tables,
            settings.reserved_tables,
            settings.max_tables_per_load,
        )

    def check(self, name: str) -> None:
        """Raise SettingsError if a name that the settings give, this or the default table, is reserved."""
        for each in (name, self.unlisted):
            if is_reserved(each) or (self.reserved and _pattern(self.reserved).fullmatch(each)):
                key = "table_name_template" if each == name else "unlisted_tables"
                raise SettingsError(
                    [f"the table name `{each}` is reserved; change `{key}` or `reserved_tables`"],
                    source=f"destination {self.destination_id}",
                )

    def sql(self, table: str, reason: str) -> tuple[str, str]:
        """SQL of the table of an event by the rules, and of the reason why it has none.

        `table` is SQL of the sanitised name, empty for none, and `reason` of why it is empty.
        """
        default = "''"
        unlisted = ""
        if self.listed:
            unlisted = f"{table} != '' AND NOT {table} RLIKE {literal(_pattern(self.listed).pattern)}"
            if self.unlisted != REJECT:
                default = literal(self.unlisted)
        reserved = f"startswith({table}, '{OWN_PREFIX}')"
        if self.reserved:
            reserved += f" OR {table} RLIKE {literal(_pattern(self.reserved).pattern)}"
        is_reserved = f"({table} != '' AND ({reserved}))"
        reasons = [
            f"WHEN {reason} IS NOT NULL THEN {reason}",
            f"WHEN {is_reserved} THEN {self._reserved(table)}",
        ]
        tables = [f"WHEN {is_reserved} THEN ''"]
        if unlisted:
            tables.append(f"WHEN {unlisted} THEN {default}")
            if self.unlisted == REJECT:
                reasons.append(f"WHEN {unlisted} THEN {self._unlisted(table)}")
        return f"CASE {' '.join(tables)} ELSE {table} END", f"CASE {' '.join(reasons)} END"

    @property
    def too_many(self) -> str:
        """The reason of events whose table is one too many in a file."""
        return (
            f"the template gives more than {self.max_tables} tables in one file; "
            "see `max_tables_per_load` of the destination"
        )

    def _reserved(self, table: str) -> str:
        return f"concat('the table name ', {table}, ' is reserved')"

    def _unlisted(self, table: str) -> str:
        added = literal(f" is not in `tables` of the destination {self.destination_id}")
        return f"concat('the table ', {table}, {added})"


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    """The regular expression of patterns; it means the same in Java, where `$` lets a newline through."""
    parts = (name.replace("*", "[a-z0-9_]*").replace("?", "[a-z0-9_]") for name in names)
    return re.compile(rf"^(?:{'|'.join(parts)})(?![\s\S])")


def open_to_browsers(settings: Settings, destination: DestinationSettings, *, is_constant: bool) -> bool:
    """Whether the fields of events that anyone can send name the tables of a destination, without a list."""
    if is_constant or destination.tables:
        return False
    return any(token.client_secret and destination.wants(token.id) for token in settings.tokens)

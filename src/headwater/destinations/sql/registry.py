"""The registry: a table beside the ledger that names the tables which Headwater may write.

The transaction that creates a table also registers it. A table that an earlier release has loaded is in the
ledger, and is registered when it is first written again. Every other existing table is another program's: it
is written only if `adopt_tables` names it (G12).
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.destinations.column_types import Kind
from headwater.destinations.sql.dialect import Dialect

REGISTRY = "_headwater_tables"

_COLUMNS = {"table_name": Kind.STRING, "origin": Kind.STRING, "created_seconds": Kind.INT64}


class Registry:
    """Statements on the registry of one destination."""

    def __init__(self, relation: str, ledger: str, dialect: Dialect) -> None:
        self.relation, self._ledger, self._sql = relation, ledger, dialect

    def column_definitions(self, types: Mapping[Kind, str]) -> list[str]:
        """Names and types of the columns."""
        return [f"{self._sql.quoted(name)} {types[kind]}" for name, kind in _COLUMNS.items()]

    def has(self, name: str) -> str:
        """Returns a row if the table is registered."""
        return self._named(self.relation, name)

    def has_load(self, *names: str) -> str:
        """Returns a row if the ledger has a load of the table, under any of its names."""
        return self._named(self._ledger, *names)

    def insert(self, name: str, origin: str, created_seconds: int = 0) -> str:
        """Registers a table; `created_seconds` is the Unix time at which Headwater created it."""
        columns = self._sql.listed(_COLUMNS)
        values = f"{self._sql.literal(name)}, {self._sql.literal(origin)}, {created_seconds}"
        return f"INSERT INTO {self.relation} ({columns}) VALUES ({values})"

    def created_since(self, seconds: int) -> str:
        """Returns how many tables Headwater has created since a Unix time."""
        return (
            f"SELECT count(*) FROM {self.relation} WHERE {self._sql.quoted('created_seconds')} >= {seconds}"
        )

    def _named(self, relation: str, *names: str) -> str:
        found = ", ".join(map(self._sql.literal, dict.fromkeys(names)))
        return f"SELECT 1 FROM {relation} WHERE {self._sql.quoted('table_name')} IN ({found}) LIMIT 1"

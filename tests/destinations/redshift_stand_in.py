"""Postgres in the place of Redshift: what it is given, and what stands in for what it lacks.

Every statement is read by sqlglot's Redshift dialect first, and must have none of the parts that Postgres
takes and Redshift does not. Then it runs on a real Postgres, unchanged except for two things:

    COPY ... FORMAT AS PARQUET   the very objects that the destination put into the object store are read from
                                 there, and their rows copied in by position, as Redshift does
    TRY_CAST                     asked of Postgres by its own function, pg_input_is_valid
"""

from __future__ import annotations

import re
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import sqlglot
from sqlglot import exp

from headwater.destinations.postgres import csv_chunks
from headwater.destinations.redshift import RedshiftDestination, RedshiftSettings
from tests.parts.object_store import ObjectStore

__all__ = ["PostgresAsRedshift", "check", "on_postgres"]

# what Redshift does not have, though its dialect is derived from one that does
LACKING = (exp.OnConflict, exp.Returning, exp.Filter, exp.ArrayAgg, exp.Merge, exp.JSONObjectAgg)
# statements that sqlglot passes on without reading them
UNREAD = ("SET TIME ZONE", "LOCK TABLE")
_COPY = re.compile(r"COPY (\S+) FROM '(s3://[^']+)' IAM_ROLE default FORMAT AS PARQUET")


def check(statement: str) -> None:
    """Fails where Redshift would not take the statement."""
    if statement.startswith(UNREAD):
        return
    (read,) = sqlglot.parse(statement, read="redshift")
    assert read is not None, statement
    assert not isinstance(read, exp.Command), f"sqlglot cannot read {statement}"
    found = [type(node).__name__ for node in read.find_all(*LACKING)]
    assert not found, f"Redshift has no {found}: {statement}"
    assert len(re.findall(r"ADD COLUMN", statement)) <= 1, "Redshift adds one column at a time"


class PostgresAsRedshift(RedshiftDestination):
    """The destination, on the stand-in."""

    store: ClassVar[ObjectStore]
    seen: ClassVar[set[str]] = set()
    """First words of the statements that were checked."""

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        check(statement)
        self.seen.add(statement.split(maxsplit=1)[0])
        if found := _COPY.fullmatch(statement):
            self._copy_in(*found.groups())
            return []
        return super().execute(without_try_cast(statement))

    def _copy_in(self, table: str, url: str) -> None:
        where = urlsplit(url)
        for name in self.store.objects(where.path.strip("/")):
            with self.store.filesystem().open_input_file(f"{where.hostname}/{name}") as file:
                rows = pq.read_table(file)
            with self.ready().cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv)".encode()) as copy:
                for chunk in csv_chunks(rows.to_batches(), rows.column_names):
                    copy.write(chunk)


def on_postgres(options: dict[str, Any]) -> PostgresAsRedshift:
    """A destination for a process of its own; `store_port` is where the object store listens."""
    store = ObjectStore()
    store.port = options["store_port"]
    PostgresAsRedshift.store = store
    settings = {name: value for name, value in options.items() if name != "store_port"}
    return PostgresAsRedshift("dwh", RedshiftSettings(**settings))


def without_try_cast(statement: str) -> str:
    """The statement with each TRY_CAST(value AS type) in Postgres' words; the innermost first."""
    while (start := statement.rfind("TRY_CAST(")) >= 0:
        end, depth, place = start + len("TRY_CAST("), 1, 0
        while depth:
            depth += {"(": 1, ")": -1}.get(statement[end], 0)
            if depth == 1 and statement.startswith(" AS ", end):
                place = end
            end += 1
        value, type = statement[start + len("TRY_CAST(") : place], statement[place + 4 : end - 1]
        cast = f"CASE WHEN pg_input_is_valid({value}, '{type}') THEN ({value})::{type} END"
        statement = f"{statement[:start]}({cast}){statement[end:]}"
    return statement

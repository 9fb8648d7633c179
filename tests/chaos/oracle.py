"""Compares the rows of the destinations with the acknowledged events."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headwater.log.rejects.destination_file import DestinationRejects
from tests.chaos.load import TABLES, Id, event

__all__ = ["Verdict", "have_same_rows", "judge", "rejected_ids", "rows_of_duckdb", "rows_of_postgres"]


def checked(row: dict[str, Any]) -> tuple[Any, ...]:
    """What is compared, value by value."""
    return (row["sender"], row["number"], row["text"], float(row["amount"]), bool(row["flag"]))


def expected(id: Id) -> tuple[Any, ...]:
    found = event(*id)
    return checked(found | {"flag": found["nested"]["flag"]})


class Verdict(NamedTuple):
    """What the oracle found for one destination."""

    destination: str
    rows: int
    lost: int
    doubled: int
    changed: int
    strange: int
    checksum: str

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.doubled or self.changed or self.strange)


def judge(destination: str, rows: Sequence[tuple[Any, ...]], acknowledged: set[Id], sent: set[Id]) -> Verdict:
    counts = Counter((row[0], row[1]) for row in rows)
    changed = [row for row in rows if row != expected((row[0], row[1]))]
    digest = hashlib.sha256(repr(sorted(rows)).encode()).hexdigest()
    return Verdict(
        destination,
        len(rows),
        len(acknowledged - counts.keys()),
        sum(count - 1 for count in counts.values()),
        len(changed),
        len(counts.keys() - sent),
        digest[:16],
    )


SELECT = "SELECT sender, number, text, amount, nested_flag FROM {}"


def rows_of_duckdb(path: Path) -> list[tuple[Any, ...]]:
    import duckdb

    with duckdb.connect(str(path), read_only=True) as connection:
        found = [row for table in TABLES for row in connection.execute(SELECT.format(table)).fetchall()]
    return [_row(row) for row in found]


def rows_of_postgres(url: str) -> list[tuple[Any, ...]]:
    import psycopg

    # the destination's default schema, or the one that the loop names
    with psycopg.connect(url, options="-c search_path=headwater,public") as connection:
        found = [row for table in TABLES for row in connection.execute(SELECT.format(table)).fetchall()]
    return [_row(row) for row in found]


def _row(row: Sequence[Any]) -> tuple[Any, ...]:
    return checked(dict(zip(("sender", "number", "text", "amount", "flag"), row, strict=True)))


def have_same_rows(verdicts: Sequence[Verdict]) -> bool:
    """Print and return whether all destinations have the same rows."""
    same = len({verdict.checksum for verdict in verdicts}) == 1
    print("all destinations have the same rows" if same else "THE DESTINATIONS DIFFER")
    return same


def rejected_ids(events_dir: Path, destination: str) -> list[Id]:
    """The events in the rejects of a destination."""
    rejects = DestinationRejects(events_dir).read(destination)
    found = [json.loads(reject.line()) for reject in rejects]
    return [(event["sender"], event["number"]) for event in found]

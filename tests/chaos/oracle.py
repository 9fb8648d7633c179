"""Compares the rows of the destinations with the acknowledged events."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from headwater.log.rejects.destination_file import DestinationRejects
from tests.chaos.load import TABLES, Id, event

__all__ = ["Verdict", "have_same_rows", "judge", "rejected_ids", "rows_of_duckdb", "rows_of_postgres"]


def checked(row: dict[str, Any]) -> tuple[Any, ...]:
    """What is compared, value by value."""
    plain = (row["sender"], row["number"], row["text"], float(row["amount"]), bool(row["flag"]))
    return (*plain, as_number(row["drift"]))


def as_number(value: Any) -> str:
    """A drifting value as one text, whatever the type of its column: `true`, 1 and `1.0` are the same."""
    text = str(value).lower()
    number = Decimal({"true": "1", "false": "0"}.get(text, text))
    return f"{number:f}".rstrip("0").rstrip(".") if "." in f"{number:f}" else f"{number:f}"


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


def rows_of_duckdb(path: Path) -> list[tuple[Any, ...]]:
    import duckdb

    with duckdb.connect(str(path), read_only=True) as connection:
        return [row for table in TABLES for row in _rows(connection.execute(f"SELECT * FROM {table}"))]


def rows_of_postgres(url: str) -> list[tuple[Any, ...]]:
    import psycopg

    # the destination's default schema, or the one that the loop names
    with psycopg.connect(url, options="-c search_path=headwater,public") as connection:
        return [
            row for table in TABLES for row in _rows(connection.execute(f"SELECT * FROM {table}".encode()))
        ]


def _rows(found: Any) -> Iterator[tuple[Any, ...]]:
    names = [column[0] for column in found.description]
    for values in found.fetchall():
        row = dict(zip(names, values, strict=True))
        aside = row.get("_unmapped_data") or {}
        if isinstance(aside, str):
            aside = json.loads(aside)
        drift = row["drift"] if row["drift"] is not None else aside["drift"]
        yield checked(row | {"flag": row["nested_flag"], "drift": drift})


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

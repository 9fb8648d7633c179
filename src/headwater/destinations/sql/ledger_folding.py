"""Folds the ledger's entries of a stream: adjoining ranges of positions become one entry.

A stream enters a load every few seconds, without an end. The entry of several loads has the positions of
all of them in its id, so the ledger still knows which positions a table has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headwater.destinations.base import StreamLoadId, parse_stream_id


class Entry(NamedTuple):
    """An entry of the ledger, without the rows that were refused."""

    id: str
    table: str
    rows: int
    unmapped: int
    refused: int


class Folded(NamedTuple):
    """An entry, and those that it replaces."""

    entry: Entry
    replaced: list[str]


def fold(entries: Iterable[Entry]) -> list[Folded]:
    """The entries that replace others, each for one source and table.

    Between two loads of a table there may be positions without an event for it. They are part of the new
    entry if loads of other tables cover them: a stream loads all tables of a range before the next range.
    """
    by_source: dict[str, list[tuple[StreamLoadId, Entry]]] = {}
    for entry in entries:
        if (parts := parse_stream_id(entry.id)) is not None:
            by_source.setdefault(parts.source, []).append((parts, entry))
    return [folded for loads in by_source.values() for folded in _folded(loads)]


def _folded(loads: list[tuple[StreamLoadId, Entry]]) -> list[Folded]:
    """Folds the loads of one source."""
    loads.sort(key=lambda load: (load[0].first, load[0].end))
    run, end = 0, -1
    groups: dict[tuple[int, str, str], list[tuple[StreamLoadId, Entry]]] = {}
    for parts, entry in loads:
        if parts.first > end:
            run += 1  # positions that no load covers: nothing is known of them
        end = max(end, parts.end)
        groups.setdefault((run, parts.table, entry.table), []).append((parts, entry))
    joined = [_joined(group) for group in groups.values() if len(group) > 1]
    # an entry that contains all others, of a cursor that went back, stays as it is
    return [folded for folded in joined if folded.entry.id not in folded.replaced]


def _joined(group: list[tuple[StreamLoadId, Entry]]) -> Folded:
    parts, entries = [each for each, _ in group], [entry for _, entry in group]
    id = parts[0]._replace(first=parts[0].first, end=max(each.end for each in parts))
    rows, unmapped, refused = (sum(each) for each in zip(*(entry[2:] for entry in entries), strict=True))
    folded = Entry(str(id), entries[0].table, rows, unmapped, refused)
    return Folded(folded, [entry.id for entry in entries])

"""Links: which names are one dataset.

A `symlinks` facet says that its dataset has other names. Names that hang together by links, in either
direction and over any number of steps, are one dataset. The name that stands for them is the first, by
alphabet, of those that have a `symlinks` facet themselves: the place of the data rather than its alias. All
of this follows from the latest facets alone, so it does not matter when a link is learnt, and a facet that is
deleted or changed separates the names again.
"""

from __future__ import annotations

from collections.abc import Iterable

import apsw
import orjson

from headwater.graph.ingest.untrusted_json import identity, items, mapping
from headwater.graph.store.ids import dataset_id
from headwater.log.queue.sqlite import select

__all__ = ["relink"]

MAX_TARGETS = 100  # of one facet; more are passed over


def relink(connection: apsw.Connection, owners: Iterable[int]) -> None:
    """Bring the links of these names, and what follows from them, up to date with their facets."""
    changed: set[int] = set()
    for owner in owners:
        known = {
            target for (target,) in connection.execute("SELECT target FROM links WHERE owner = ?", (owner,))
        }
        wanted = _targets(connection, owner) - {owner}
        if known == wanted:
            continue
        connection.executemany(
            "DELETE FROM links WHERE owner = ? AND target = ?", ((owner, t) for t in known)
        )
        connection.executemany("INSERT INTO links VALUES (?, ?)", ((owner, t) for t in wanted))
        changed |= {owner, *known, *wanted}
    while changed:
        members = _together(connection, changed.pop())
        changed -= members
        _regroup(connection, members)


def _targets(connection: apsw.Connection, owner: int) -> set[int]:
    query = "SELECT value FROM facets WHERE owner = ? AND container = 0 AND key = 'symlinks' AND NOT deleted"
    found: set[int] = set()
    for (value,) in connection.execute(query, (owner,)):
        for item in list(items(mapping(orjson.loads(value)).get("identifiers")))[:MAX_TARGETS]:
            if (other := identity(item)) is not None:
                found.add(dataset_id(*other))
    return found


def _together(connection: apsw.Connection, start: int) -> set[int]:
    """All names that hang together with this one."""
    found, waiting = {start}, [start]
    query = "SELECT target FROM links WHERE owner = ?1 UNION SELECT owner FROM links WHERE target = ?1"
    while waiting:
        for (other,) in select(connection, query, waiting.pop()):
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


def _regroup(connection: apsw.Connection, members: set[int]) -> None:
    query = (
        "SELECT NOT EXISTS (SELECT 1 FROM links WHERE owner = id), namespace, name FROM names WHERE id = ?"
    )
    ranks = {id: row for id in members for row in connection.execute(query, (id,))}
    if ranks:
        first = min(ranks, key=lambda id: ranks[id])
        connection.executemany("UPDATE names SET dataset = ? WHERE id = ?", ((first, id) for id in ranks))

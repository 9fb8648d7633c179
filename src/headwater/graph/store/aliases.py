"""The grouping of names into datasets.

A `symlinks` facet lists other names of its dataset. Names that are connected by such links, in either
direction and over any number of steps, are one dataset. It is represented by the first name, in alphabetical
order, that has a `symlinks` facet: the location of the data rather than its alias. This follows from the
latest facets alone, so a link may arrive at any time, and deleting or changing a facet separates the names.
"""

from __future__ import annotations

from collections.abc import Iterable

import apsw
import orjson

from headwater.graph.ingest.untrusted_json import identity, items, mapping
from headwater.graph.store.ids import dataset_id
from headwater.log.queue.sqlite import select

MAX_ALIASES = 100  # of one facet; the rest is ignored


def update_aliases(connection: apsw.Connection, owners: Iterable[int]) -> None:
    """Bring the links of these names, and the datasets they form, up to date with their facets."""
    changed: set[int] = set()
    for owner in owners:
        before = {
            target for (target,) in connection.execute("SELECT target FROM aliases WHERE owner = ?", (owner,))
        }
        after = _listed_aliases(connection, owner) - {owner}
        if before == after:
            continue
        connection.execute("DELETE FROM aliases WHERE owner = ?", (owner,))
        connection.executemany("INSERT INTO aliases VALUES (?, ?)", ((owner, target) for target in after))
        changed |= {owner, *before, *after}
    while changed:
        names = _connected_names(connection, changed.pop())
        changed -= names
        _join(connection, names)


def _listed_aliases(connection: apsw.Connection, owner: int) -> set[int]:
    query = "SELECT value FROM facets WHERE owner = ? AND container = 0 AND key = 'symlinks' AND NOT deleted"
    found: set[int] = set()
    for (value,) in connection.execute(query, (owner,)):
        for item in list(items(mapping(orjson.loads(value)).get("identifiers")))[:MAX_ALIASES]:
            if (other := identity(item)) is not None:
                found.add(dataset_id(*other))
    return found


def _connected_names(connection: apsw.Connection, start: int) -> set[int]:
    found, waiting = {start}, [start]
    query = "SELECT target FROM aliases WHERE owner = ?1 UNION SELECT owner FROM aliases WHERE target = ?1"
    while waiting:
        for (other,) in select(connection, query, waiting.pop()):
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


def _join(connection: apsw.Connection, names: set[int]) -> None:
    """Make the names one dataset."""
    query = (
        "SELECT NOT EXISTS (SELECT 1 FROM aliases WHERE owner = id), namespace, name"
        " FROM dataset_names WHERE id = ?"
    )
    ranks = {id: row for id in names for row in connection.execute(query, (id,))}
    if ranks:
        first = min(ranks, key=lambda id: ranks[id])
        connection.executemany(
            "UPDATE dataset_names SET dataset = ? WHERE id = ?", ((first, id) for id in ranks)
        )

"""The grouping of names into datasets.

A `symlinks` facet lists other names of its dataset. Names that are connected by such links, in either
direction and over any number of steps, are one dataset. It is represented by the first name, in alphabetical
order, that lists others: the location of the data rather than its alias.

A link belongs to its producer, the namespace of the job that sent it, and holds until the same producer sends
the facet without it. A user's `separations` hold against all producers. Both are rows, from which the groups
follow, so links may arrive at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apsw
import orjson

from headwater.log.queue.sqlite import select

MAX_PRODUCERS = 100  # whose links of a name count, the latest
MAX_NAMES = 1_000  # of one dataset; a longer chain of links merges nothing (G8)

_STATEMENTS = (
    "SELECT producer, at, targets FROM link_statements WHERE owner = ? ORDER BY at DESC, producer LIMIT ?"
)


def update_aliases(connection: apsw.Connection, owners: Iterable[int]) -> None:
    """Bring the links of these names, and the datasets that they form, up to date with the statements."""
    changed: set[int] = set()
    for owner in owners:
        query = "SELECT target FROM aliases WHERE owner = ?"
        before = {target for (target,) in select(connection, query, owner)}
        after = _listed_aliases(connection, owner)
        if before == after:
            continue
        connection.execute("DELETE FROM aliases WHERE owner = ?", (owner,))
        connection.executemany("INSERT INTO aliases VALUES (?, ?)", ((owner, target) for target in after))
        changed |= {owner, *before, *after}
    regroup(connection, changed)


def regroup(connection: apsw.Connection, changed: set[int]) -> None:
    """Update the groups of all names that are connected with these."""
    changed = set(changed)
    while changed:
        start = changed.pop()
        names = _connected_names(connection, start)
        if len(names) > MAX_NAMES:
            # Its last group alone: each of the other groups has a changed name of its own.
            connection.execute(
                "UPDATE dataset_names SET dataset = id WHERE dataset ="
                " (SELECT dataset FROM dataset_names WHERE id = ?)",
                (start,),
            )
            continue
        changed -= names
        for group in _groups(connection, names):
            _join(connection, group)


def _listed_aliases(connection: apsw.Connection, owner: int) -> set[int]:
    rows = select(connection, _STATEMENTS, owner, MAX_PRODUCERS)
    known_at = max((at for producer, at, _ in rows if producer), default=None)
    found: set[int] = set()
    for producer, at, targets in rows:
        # An earlier release did not store producers; its links hold until any producer sends the facet.
        if producer or known_at is None or at > known_at:
            found.update(orjson.loads(targets))
    return found - {owner}


def _connected_names(connection: apsw.Connection, start: int) -> set[int]:
    """All names that links connect with one, or more than `MAX_NAMES` of them."""
    found, waiting = {start}, [start]
    query = "SELECT target FROM aliases WHERE owner = ?1 UNION SELECT owner FROM aliases WHERE target = ?1"
    while waiting and len(found) <= MAX_NAMES:
        for (other,) in select(connection, query, waiting.pop()):
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


def _groups(connection: apsw.Connection, names: set[int]) -> Iterator[set[int]]:
    """The names that are one dataset: connected, and not separated by a user."""
    links: dict[int, set[int]] = {name: set() for name in names}
    separated: set[tuple[int, int]] = set()
    for name in names:
        for (target,) in select(connection, "SELECT target FROM aliases WHERE owner = ?", name):
            links[name].add(target)
            links[target].add(name)
        separations = select(connection, "SELECT kept, apart FROM separations WHERE kept = ?", name)
        separated |= {(kept, apart) for kept, apart in separations if apart in names}
    for kept, apart in sorted(separated):
        with_kept = _reachable(links, kept, without=apart)
        for name in links[apart] & with_kept:
            links[apart].discard(name)
            links[name].discard(apart)
    left = set(names)
    while left:
        group = _reachable(links, left.pop())
        left -= group
        yield group


def _reachable(links: dict[int, set[int]], start: int, without: int | None = None) -> set[int]:
    found, waiting = {start}, [start]
    while waiting:
        for other in links[waiting.pop()]:
            if other not in found and other != without:
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

"""Names: finding what a text means, exactly or by search. No name is ever split by guessing at one separator.

Ids follow from the texts (`ids`), so each way to split a text is tried by one lookup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apsw

from headwater.errors import HeadwaterError
from headwater.graph.ingest.untrusted_json import iso
from headwater.graph.query.answers import Hit, Name
from headwater.graph.store.ids import Kind, dataset_id, field_id, job_id, kind_of
from headwater.log.queue.sqlite import select

__all__ = ["NotKnown", "find_column", "find_dataset", "find_job", "named", "search", "splits"]

CANDIDATES = 400  # of one kind that a search looks at before it sorts
SEPARATORS = "/:. #"


class NotKnown(HeadwaterError):
    """The graph knows nothing of this name."""


def find_dataset(connection: apsw.Connection, namespace: str, name: str) -> int:
    """The id of the dataset that has this name, also as an alias."""
    rows = select(connection, "SELECT dataset FROM names WHERE id = ?", dataset_id(namespace, name))
    if not rows:
        raise NotKnown(f"No dataset is called {name} in the namespace {namespace}.", hint=_HINT)
    return int(rows[0][0])


def find_job(connection: apsw.Connection, namespace: str, name: str) -> int:
    """The id of the job of this name."""
    id = job_id(namespace, name)
    if not select(connection, "SELECT 1 FROM jobs WHERE id = ?", id):
        raise NotKnown(f"No job is called {name} in the namespace {namespace}.", hint=_HINT)
    return id


def find_column(connection: apsw.Connection, dataset: int, column: str) -> int:
    """The id of the field, which some name of the dataset must have."""
    query = "SELECT 1 FROM names n JOIN columns c ON c.name = n.id AND c.field = ?2 WHERE n.dataset = ?1"
    id = field_id(column)
    if not select(connection, query, dataset, id):
        raise NotKnown(
            f"The dataset has no column {column}.", hint="Ask for the dataset to see those it has."
        )
    return id


_HINT = "Search for a part of the name."


def splits(text: str) -> Iterator[tuple[str, str]]:
    """All ways in which a text may be a namespace and a name, with or without a separator in between."""
    for place, character in enumerate(text):
        if character in SEPARATORS:
            yield text[:place], text[place + 1 :]
            yield text[:place], text[place:]
            yield text[: place + 1], text[place + 1 :]


def named(connection: apsw.Connection, text: str) -> tuple[int, str | None]:
    """The dataset, and the column if there is one, that a person means by one text.

    Tried in turn: the whole as a dataset, then all before a dot as a dataset and the rest as its column. A
    dataset may be given by its name alone, by namespace and name, or by the end of its name.
    """
    exact = _exact(connection, text)
    if len(exact) == 1:
        return exact.pop(), None
    if not exact:
        dots = [place for place, character in enumerate(text) if character == "."]
        for place in reversed(dots):
            owners = _having(connection, _exact(connection, text[:place]), text[place + 1 :])
            if len(owners) == 1:
                return owners.pop(), text[place + 1 :]
            exact |= owners
        for end, column in [(text, None), *((text[:place], text[place + 1 :]) for place in reversed(dots))]:
            found = _ending(connection, end)
            if column is not None:
                found = _having(connection, found, column)
            if len(found) == 1:
                return found.pop(), column
            exact |= found
    if not exact:
        raise NotKnown(
            f"Nothing in the graph is called {text}.", hint="`headwater lineage search` finds parts."
        )
    some = sorted(" ".join(pair) for id in list(exact)[:10] for pair in _pairs(connection, [id]).values())
    raise NotKnown(
        f"{len(exact)} datasets may be meant by {text}.",
        hint="Give the namespace too, before the name: " + "; ".join(some),
    )


def _exact(connection: apsw.Connection, text: str) -> set[int]:
    rows = select(connection, "SELECT DISTINCT dataset FROM names WHERE name = ? LIMIT 50", text)
    found = {int(dataset) for (dataset,) in rows}
    for namespace, name in splits(text):
        for (dataset,) in select(
            connection, "SELECT dataset FROM names WHERE id = ?", dataset_id(namespace, name)
        ):
            found.add(int(dataset))
    return found


def _ending(connection: apsw.Connection, text: str) -> set[int]:
    """Datasets one of whose names ends with the text, as a part of its own."""
    found: set[int] = set()
    for id in _matches(connection, text, Kind.DATASET):
        for dataset, name in select(connection, "SELECT dataset, name FROM names WHERE id = ?", id):
            before, whole, _ = name.rpartition(text)
            if whole and name.endswith(text) and (not before or before[-1] in SEPARATORS):
                found.add(int(dataset))
    return found


def _having(connection: apsw.Connection, datasets: Iterable[int], column: str) -> set[int]:
    found = set()
    for dataset in datasets:
        try:
            find_column(connection, dataset, column)
        except NotKnown:
            continue
        found.add(dataset)
    return found


def _pairs(connection: apsw.Connection, ids: Iterable[int]) -> dict[int, tuple[str, str]]:
    return {
        id: (namespace, name)
        for id in ids
        for namespace, name in select(connection, "SELECT namespace, name FROM names WHERE id = ?", id)
    }


# --- search ------------------------------------------------------------------------------------------


def search(
    connection: apsw.Connection,
    text: str,
    *,
    kinds: Iterable[str] = ("dataset", "job", "column"),
    namespace: str = "",
    limit: int = 50,
) -> list[Hit]:
    """Datasets, jobs and columns whose names hold all words of the text, the closest first.

    For no text at all: the datasets and jobs that events mentioned last.
    """
    text = text.strip()
    if not text:
        return _latest(connection, set(kinds), namespace, limit)
    found: dict[tuple[Any, ...], tuple[tuple[Any, ...], Hit]] = {}
    for hit in _hits(connection, text, set(kinds)):
        if namespace and hit.namespace != namespace:
            continue
        key = (hit.kind, hit.namespace, hit.name, hit.column)
        rank = _rank(hit, text.lower())
        if key not in found or rank < found[key][0]:
            found[key] = (rank, hit)
    return [hit for _, hit in sorted(found.values(), key=lambda pair: pair[0])[:limit]]


def _latest(connection: apsw.Connection, kinds: set[str], namespace: str, limit: int) -> list[Hit]:
    found = []
    for kind, table, which in (("dataset", "names", "dataset = id"), ("job", "jobs", "1")):
        if kind in kinds:
            query = (
                f"SELECT namespace, name, last_at FROM {table} WHERE {which}"  # noqa: S608
                " AND ?1 IN ('', namespace) ORDER BY last_at DESC LIMIT ?2"
            )
            found += [(row[2], kind, *row[:2]) for row in select(connection, query, namespace, limit)]
    found.sort(key=lambda row: (-row[0], row[1:]))
    return [Hit(kind, space, name, None, None, iso(at)) for at, kind, space, name in found[:limit]]


def _rank(hit: Hit, text: str) -> tuple[Any, ...]:
    shown = (hit.column or (hit.alias.name if hit.alias else hit.name)).lower()
    last = max((shown.rpartition(separator)[2] for separator in "/."), key=len, default=shown)
    closeness = 0 if shown == text else 1 if last == text else 2 if shown.startswith(text) else 3
    order = {"dataset": 0, "job": 1, "column": 2}[hit.kind]
    return closeness, order, len(shown), hit.namespace, hit.name, hit.column or ""


def _hits(connection: apsw.Connection, text: str, kinds: set[str]) -> Iterator[Hit]:
    if "dataset" in kinds:
        query = (
            "SELECT n.namespace, n.name, r.namespace, r.name, r.last_at FROM names n"
            " JOIN names r ON r.id = n.dataset WHERE n.id = ?"
        )
        for id in _matches(connection, text, Kind.DATASET):
            for namespace, name, *main, last_at in select(connection, query, id):
                alias = Name(namespace, name) if [namespace, name] != main else None
                yield Hit("dataset", main[0], main[1], None, alias, iso(last_at))
    if "job" in kinds:
        query = "SELECT namespace, name, last_at FROM jobs WHERE id = ?"
        for id in _matches(connection, text, Kind.JOB):
            for namespace, name, last_at in select(connection, query, id):
                yield Hit("job", namespace, name, None, None, iso(last_at))
    if "column" in kinds:
        query = (
            "SELECT r.namespace, r.name, f.text, r.last_at FROM fields f JOIN columns c ON c.field = f.id"
            " JOIN names n ON n.id = c.name JOIN names r ON r.id = n.dataset WHERE f.id = ? LIMIT ?"
        )
        for id in _matches(connection, text, Kind.FIELD):
            for namespace, name, column, last_at in select(connection, query, id, CANDIDATES):
                yield Hit("column", namespace, name, column, None, iso(last_at))


_SHORT = {
    Kind.DATASET: "SELECT id FROM names WHERE name LIKE ?1 ESCAPE '\\' LIMIT ?2",
    Kind.JOB: "SELECT id FROM jobs WHERE name LIKE ?1 ESCAPE '\\' LIMIT ?2",
    Kind.FIELD: "SELECT id FROM fields WHERE text LIKE ?1 ESCAPE '\\' LIMIT ?2",
}
_SAME = {
    Kind.DATASET: "SELECT id FROM names WHERE name = ?1 LIMIT ?2",
    Kind.JOB: "SELECT id FROM jobs WHERE name = ?1 LIMIT ?2",
    Kind.FIELD: "SELECT id FROM fields WHERE id = ?1 LIMIT ?2",
}


def _matches(connection: apsw.Connection, text: str, kind: Kind) -> list[int]:
    """Ids of this kind whose text holds each word; words under three letters must begin it."""
    words = text.replace("\0", " ").split()
    if not words:
        return []
    same = field_id(text) if kind is Kind.FIELD else text
    found = {int(id): None for (id,) in select(connection, _SAME[kind], same, CANDIDATES)}
    long = [word for word in words if len(word) >= 3]
    if long:
        match = " ".join('"' + word.replace('"', '""') + '"' for word in long)
        query = "SELECT rowid FROM search WHERE search MATCH ? AND rowid & 3 = ? LIMIT ?"
        rows = select(connection, query, match, int(kind), CANDIDATES)
    else:
        escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        rows = select(connection, _SHORT[kind], f"{escaped}%", CANDIDATES)
    found |= {int(id): None for (id,) in rows}
    return [id for id in found if kind_of(id) is kind]

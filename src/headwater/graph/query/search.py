"""Full-text search over names of datasets, jobs and columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apsw

from headwater.graph.ingest.untrusted_json import iso
from headwater.graph.query.answers import Name, SearchResult
from headwater.graph.store.ids import Kind, field_id, kind_of
from headwater.log.queue.sqlite import select

CANDIDATES = 400  # of one kind that are read before they are sorted


def search(
    connection: apsw.Connection,
    text: str,
    *,
    kinds: Iterable[str],
    namespace: str,
    limit: int,
) -> list[SearchResult]:
    """Datasets, jobs and columns whose names contain all words of the text, the closest first.

    Without a text: the datasets and jobs that events mentioned last.
    """
    text = text.strip()
    if not text:
        return _recent(connection, set(kinds), namespace, limit)
    found: dict[tuple[Any, ...], tuple[tuple[Any, ...], SearchResult]] = {}
    for result in _results(connection, text, set(kinds)):
        if namespace and result.namespace != namespace:
            continue
        key = (result.kind, result.namespace, result.name, result.column)
        rank = _rank(result, text.lower())
        if key not in found or rank < found[key][0]:
            found[key] = (rank, result)
    return [result for _, result in sorted(found.values(), key=lambda pair: pair[0])[:limit]]


def _recent(connection: apsw.Connection, kinds: set[str], namespace: str, limit: int) -> list[SearchResult]:
    found = []
    for kind, table, which in (("dataset", "dataset_names", "dataset = id"), ("job", "jobs", "1")):
        if kind in kinds:
            query = (
                f"SELECT namespace, name, last_at FROM {table} WHERE {which}"  # noqa: S608
                " AND ?1 IN ('', namespace) ORDER BY last_at DESC LIMIT ?2"
            )
            found += [(row[2], kind, *row[:2]) for row in select(connection, query, namespace, limit)]
    found.sort(key=lambda row: (-row[0], row[1:]))
    return [SearchResult(kind, space, name, None, None, iso(at)) for at, kind, space, name in found[:limit]]


def _rank(result: SearchResult, text: str) -> tuple[Any, ...]:
    shown = (result.column or (result.alias.name if result.alias else result.name)).lower()
    last = max((shown.rpartition(separator)[2] for separator in "/."), key=len, default=shown)
    closeness = 0 if shown == text else 1 if last == text else 2 if shown.startswith(text) else 3
    order = {"dataset": 0, "job": 1, "column": 2}[result.kind]
    return closeness, order, len(shown), result.namespace, result.name, result.column or ""


def _results(connection: apsw.Connection, text: str, kinds: set[str]) -> Iterator[SearchResult]:
    if "dataset" in kinds:
        query = (
            "SELECT n.namespace, n.name, r.namespace, r.name, r.last_at FROM dataset_names n"
            " JOIN dataset_names r ON r.id = n.dataset WHERE n.id = ?"
        )
        for id in matching_ids(connection, text, Kind.DATASET):
            for namespace, name, *main, last_at in select(connection, query, id):
                alias = Name(namespace, name) if [namespace, name] != main else None
                yield SearchResult("dataset", main[0], main[1], None, alias, iso(last_at))
    if "job" in kinds:
        query = "SELECT namespace, name, last_at FROM jobs WHERE id = ?"
        for id in matching_ids(connection, text, Kind.JOB):
            for namespace, name, last_at in select(connection, query, id):
                yield SearchResult("job", namespace, name, None, None, iso(last_at))
    if "column" in kinds:
        query = (
            "SELECT r.namespace, r.name, f.text, r.last_at FROM fields f JOIN columns c ON c.field = f.id"
            " JOIN dataset_names n ON n.id = c.name JOIN dataset_names r ON r.id = n.dataset"
            " WHERE f.id = ? LIMIT ?"
        )
        for id in matching_ids(connection, text, Kind.FIELD):
            for namespace, name, column, last_at in select(connection, query, id, CANDIDATES):
                yield SearchResult("column", namespace, name, column, None, iso(last_at))


_TABLES = {
    Kind.DATASET: ("dataset_names", "name"),
    Kind.JOB: ("jobs", "name"),
    Kind.FIELD: ("fields", "text"),
}


def matching_ids(connection: apsw.Connection, text: str, kind: Kind) -> list[int]:
    """Ids of this kind whose name contains each word; words under three letters must begin it."""
    words = text.replace("\0", " ").split()
    if not words:
        return []
    table, column = _TABLES[kind]
    same = ("id", field_id(text)) if kind is Kind.FIELD else (column, text)  # fields have no index of texts
    query = f"SELECT id FROM {table} WHERE {same[0]} = ? LIMIT ?"  # noqa: S608
    found = {int(id): None for (id,) in select(connection, query, same[1], CANDIDATES)}
    long = [word for word in words if len(word) >= 3]
    if long:
        match = " ".join('"' + word.replace('"', '""') + '"' for word in long)
        query = "SELECT rowid FROM search WHERE search MATCH ? AND rowid & 3 = ? LIMIT ?"
        rows = select(connection, query, match, int(kind), CANDIDATES)
    else:
        escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        query = f"SELECT id FROM {table} WHERE {column} LIKE ? ESCAPE '\\' LIMIT ?"  # noqa: S608
        rows = select(connection, query, f"{escaped}%", CANDIDATES)
    found |= {int(id): None for (id,) in rows}
    return [id for id in found if kind_of(id) is kind]

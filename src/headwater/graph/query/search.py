"""Full-text search over names of datasets, jobs and columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apsw

from headwater.graph.ingest.untrusted_json import iso
from headwater.graph.query.answers import Name, SearchResult
from headwater.graph.store.ids import Kind, field_id, kind_of
from headwater.log.queue.sqlite import select

CANDIDATES = 400  # of one kind, the closest
MATCHES = 20_000  # of one kind, of which the closest are chosen


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
    for result in _results(connection, text, set(kinds), namespace):
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


def _results(
    connection: apsw.Connection, text: str, kinds: set[str], namespace: str
) -> Iterator[SearchResult]:
    if "dataset" in kinds:
        query = (
            "SELECT n.namespace, n.name, r.namespace, r.name, r.last_at FROM dataset_names n"
            " JOIN dataset_names r ON r.id = n.dataset WHERE n.id = ?"
        )
        for id in matching_ids(connection, text, Kind.DATASET, namespace):
            for space, name, *main, last_at in select(connection, query, id):
                alias = Name(space, name) if [space, name] != main else None
                yield SearchResult("dataset", main[0], main[1], None, alias, iso(last_at))
    if "job" in kinds:
        query = "SELECT namespace, name, last_at FROM jobs WHERE id = ?"
        for id in matching_ids(connection, text, Kind.JOB, namespace):
            for space, name, last_at in select(connection, query, id):
                yield SearchResult("job", space, name, None, None, iso(last_at))
    if "column" in kinds:
        query = (
            "SELECT r.namespace, r.name, f.text, r.last_at FROM fields f JOIN columns c ON c.field = f.id"
            " JOIN dataset_names n ON n.id = c.name JOIN dataset_names r ON r.id = n.dataset"
            " WHERE f.id = ?1 AND ?3 IN ('', r.namespace) LIMIT ?2"
        )
        for id in matching_ids(connection, text, Kind.FIELD):
            for space, name, column, last_at in select(connection, query, id, CANDIDATES, namespace):
                yield SearchResult("column", space, name, column, None, iso(last_at))


_TABLES = {
    Kind.DATASET: ("dataset_names", "name"),
    Kind.JOB: ("jobs", "name"),
    Kind.FIELD: ("fields", "text"),
}


def count_matches(connection: apsw.Connection, text: str, kind: Kind, namespace: str = "") -> int:
    """How many datasets or jobs have a name that contains all words of a text; without one, all of them."""
    table, _ = _TABLES[kind]
    counted = "DISTINCT t.dataset" if kind is Kind.DATASET else "*"
    where = _matches(text, kind, namespace)
    if where is None:
        where = f"{table} t WHERE :namespace IN ('', t.namespace)", {"namespace": namespace}
    rows, values = where
    query = f"SELECT count({counted}) FROM {rows}"  # noqa: S608
    found: list[tuple[Any, ...]] = connection.execute(query, values).fetchall()
    return int(found[0][0])


def matching_ids(connection: apsw.Connection, text: str, kind: Kind, namespace: str = "") -> list[int]:
    """Ids of this kind whose name contains all words, the closest first; at most `CANDIDATES`.

    The index has substrings of three characters, so a shorter word only narrows the names that have a longer
    one; a text of short words alone must begin the name.
    """
    where = _matches(text, kind, namespace)
    if where is None:
        return []
    rows, values = where
    table, column = _TABLES[kind]
    # fields have no index of texts
    same = "t.id = :id" if kind is Kind.FIELD else f"t.{column} = :text AND :namespace IN ('', t.namespace)"
    query = f"SELECT t.id FROM {table} t WHERE {same} LIMIT :candidates"  # noqa: S608
    found = dict.fromkeys(_ids(connection, query, values))
    closest = (
        f"lower(t.{column}) != lower(:text),"
        f" t.{column} NOT LIKE :after_dot ESCAPE '\\' AND t.{column} NOT LIKE :after_slash ESCAPE '\\',"
        f" length(t.{column}), t.{column}"
    )
    query = f"SELECT t.id FROM {rows} ORDER BY {closest} LIMIT :candidates"  # noqa: S608
    found |= dict.fromkeys(_ids(connection, query, values))
    return [id for id in found if kind_of(id) is kind]


def _matches(text: str, kind: Kind, namespace: str) -> tuple[str, dict[str, Any]] | None:
    """Rows `t` of the table whose name contains all words, with the values; None without a word."""
    long, short = match_expression(text)
    if not (long or short):
        return None
    table, column = _TABLES[kind]
    values: dict[str, Any] = {
        "text": text,
        "id": field_id(text),
        "namespace": namespace,
        "match": long,
        "kind": int(kind),
        "matches": MATCHES,
        "candidates": CANDIDATES,
        "beginning": f"{pattern_escaped(text)}%",
        "after_dot": f"%.{pattern_escaped(text)}",
        "after_slash": f"%/{pattern_escaped(text)}",
    }
    conditions = [] if kind is Kind.FIELD else [":namespace IN ('', t.namespace)"]
    if long:
        rows = (
            "(SELECT rowid AS id FROM search WHERE search MATCH :match AND rowid & 3 = :kind LIMIT :matches)"  # noqa: S608
            f" AS m CROSS JOIN {table} t ON t.id = m.id"
        )
        searched = f"t.{column}" if kind is Kind.FIELD else f"t.namespace || char(10) || t.{column}"
        for number, word in enumerate(short):
            values[f"word{number}"] = f"%{pattern_escaped(word)}%"
            conditions.append(f"{searched} LIKE :word{number} ESCAPE '\\'")
    else:
        rows = f"{table} t"
        conditions.append(f"t.{column} LIKE :beginning ESCAPE '\\'")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return rows + where, values


def match_expression(text: str) -> tuple[str, list[str]]:
    """The words of a text: an expression of the index for the long ones, and the short ones."""
    words = text.replace("\0", " ").split()
    long = [word for word in words if len(word) >= 3]
    short = [word for word in words if len(word) < 3]
    return " ".join('"' + word.replace('"', '""') + '"' for word in long), short


def _ids(connection: apsw.Connection, query: str, values: dict[str, Any]) -> list[int]:
    rows: list[tuple[Any, ...]] = connection.execute(query, values).fetchall()
    return [id for (id,) in rows]


def pattern_escaped(text: str) -> str:
    """The text as a part of a pattern of LIKE."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")

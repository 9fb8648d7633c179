"""The catalogue: namespaces, and the datasets and jobs in them, filtered, sorted, and in pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import apsw
import msgspec
import orjson

from headwater.formats.json_decoder import json_decoder
from headwater.graph.ingest.untrusted_json import iso, items, mapping, text
from headwater.graph.query.answers import CatalogueEntry, CataloguePage, NamespaceSummary
from headwater.graph.query.details import columns_of, dataset_nodes, state_name
from headwater.graph.query.names import NotFound
from headwater.graph.query.search import match_expression, pattern_escaped
from headwater.graph.store.database import rows_for
from headwater.graph.store.schema import Direction, State
from headwater.log.queue.sqlite import select

CatalogueKind = Literal["dataset", "job"]
Sort = Literal["name", "updated"]
StateFilter = Literal["", "failed", "complete", "running"]
MAX_SHOWN = 20  # owners, and tags, of one entry

_ROWS = {"dataset": "dataset_names t WHERE t.dataset = t.id", "job": "jobs t WHERE 1"}
# A dataset matches by any of its names.
_MATCHING = {
    "dataset": "SELECT n.dataset FROM search s CROSS JOIN dataset_names n ON n.id = s.rowid"
    " WHERE s.text MATCH :match",
    "job": "SELECT rowid FROM search WHERE search MATCH :match",
}
_STATES = {
    "failed": f"r.level = 2 AND r.state > {State.COMPLETE:d}",
    "complete": f"r.level = 2 AND r.state = {State.COMPLETE:d}",
    "running": "r.level = 1",
}
# The latest run of a job, or the latest that wrote one of the names of a dataset.
_IN_STATE = {
    "dataset": "EXISTS (SELECT 1 FROM dataset_names n WHERE n.dataset = t.id AND (SELECT {} FROM runs r"  # noqa: S608
    f" WHERE r.id = (SELECT run FROM run_datasets WHERE name = n.id AND direction = {Direction.OUTPUT:d}"
    " ORDER BY at DESC LIMIT 1)))",
    "job": "(SELECT {} FROM runs r WHERE r.job = t.id ORDER BY r.last_at DESC, r.uuid DESC LIMIT 1)",
}
# Paths, not operators: an element that is no object has no name, and is no error.
_FACET = {
    "dataset": "EXISTS (SELECT 1 FROM dataset_names n JOIN facets f ON f.owner = n.id AND {}"
    " WHERE n.dataset = t.id)",
    "job": "EXISTS (SELECT 1 FROM facets f WHERE f.owner = t.id AND {})",
}
_OWNER = (
    "f.container = 0 AND f.key = 'ownership' AND NOT f.deleted AND EXISTS (SELECT 1 FROM"
    " json_each(f.value, '$.owners') o WHERE json_extract(f.value, o.fullkey || '.name') = :owner)"
)
_TAG = (
    "f.container = 0 AND f.key = 'tags' AND NOT f.deleted AND EXISTS (SELECT 1 FROM"
    " json_each(f.value, '$.tags') g WHERE json_extract(f.value, g.fullkey || '.key') = :tag"
    " OR json_extract(f.value, g.fullkey || '.key') || ': '"
    " || json_extract(f.value, g.fullkey || '.value') = :tag)"
)
_ORDER = {"name": "t.namespace, t.name", "updated": "t.last_at DESC, t.id DESC"}
_AFTER = {
    "name": "(t.namespace, t.name) > (:after_0, :after_1)",
    "updated": "(t.last_at, t.id) < (:after_0, :after_1)",
}
_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # of SQLite
# Where a page begins, and the total that the first page counted: to count again takes a scan.
_CURSORS: dict[str, msgspec.json.Decoder[Any]] = {
    "name": json_decoder(tuple[str, str, _Integer]),
    "updated": json_decoder(tuple[_Integer, _Integer, _Integer]),
}

_NAMESPACES = (
    "SELECT namespace, sum(is_dataset), sum(NOT is_dataset) FROM"
    " (SELECT namespace, 1 AS is_dataset FROM dataset_names WHERE dataset = id"
    " UNION ALL SELECT namespace, 0 FROM jobs) WHERE namespace LIKE ?1 ESCAPE '\\'"
    " GROUP BY namespace ORDER BY count(*) DESC, namespace LIMIT ?2"
)


def namespaces(connection: apsw.Connection, limit: int, containing: str = "") -> list[NamespaceSummary]:
    """The namespaces that contain a text, the largest first."""
    pattern = f"%{pattern_escaped(containing)}%"
    return [NamespaceSummary(*row) for row in select(connection, _NAMESPACES, pattern, limit)]


def catalogue(
    connection: apsw.Connection,
    kind: CatalogueKind,
    *,
    namespace: str,
    words: str,
    state: StateFilter,
    owner: str = "",
    tag: str = "",
    sort: Sort,
    after: str,
    limit: int,
) -> CataloguePage:
    """A page of the datasets or jobs that match; `after` is `next_after` of the page before."""
    conditions, values = [_ROWS[kind]], dict[str, Any]()
    if namespace:
        conditions.append("t.namespace = :namespace")
        values["namespace"] = namespace
    long, short = match_expression(words)
    if long:
        conditions.append(f"t.id IN ({_MATCHING[kind]})")
        values["match"] = long
    for number, word in enumerate(short):
        conditions.append(f"t.namespace || char(10) || t.name LIKE :word_{number} ESCAPE '\\'")
        values[f"word_{number}"] = f"%{pattern_escaped(word)}%"
    if state:
        conditions.append(_IN_STATE[kind].format(_STATES[state]))
    for key, wanted, condition in (("owner", owner, _OWNER), ("tag", tag, _TAG)):
        if wanted:
            conditions.append(_FACET[kind].format(condition))
            values[key] = wanted
    where = " AND ".join(conditions)
    if after:
        try:
            first, second, total = _CURSORS[sort].decode(after)
        except msgspec.DecodeError:
            raise NotFound("No page begins there.", hint="Begin with the first page.") from None
        where += f" AND {_AFTER[sort]}"
        values |= {"after_0": first, "after_1": second}
    else:
        count = f"SELECT count(*) FROM {where}"  # noqa: S608
        counted: list[tuple[Any, ...]] = connection.execute(count, values).fetchall()
        total = counted[0][0]
    query = f"SELECT t.id, t.namespace, t.name, t.last_at FROM {where} ORDER BY {_ORDER[sort]} LIMIT :limit"  # noqa: S608
    rows: list[tuple[Any, ...]] = connection.execute(query, values | {"limit": limit + 1}).fetchall()
    next_after = None
    if len(rows) > limit:
        rows = rows[:limit]
        id, *name, last_at = rows[-1]
        next_after = msgspec.json.encode([*(name if sort == "name" else [last_at, id]), total]).decode()
    entries = {id: CatalogueEntry(kind, space, name, iso(last_at)) for id, space, name, last_at in rows}
    _describe(connection, kind, entries)
    return CataloguePage(list(entries.values()), total, next_after)


_LATEST_WRITE = (
    "SELECT n.dataset, r.uuid, r.level, r.state, r.state_at, coalesce(r.started_at, r.first_at), r.last_at"
    " FROM json_each(?1) CROSS JOIN dataset_names n ON n.dataset = value JOIN runs r ON r.id ="
    " (SELECT run FROM run_datasets WHERE name = n.id AND direction = ?2 ORDER BY at DESC LIMIT 1)"
    " ORDER BY r.last_at"
)
_LATEST_RUN = (
    "SELECT r.job, r.uuid, r.level, r.state, r.state_at, coalesce(r.started_at, r.first_at), r.last_at"
    " FROM json_each(?1) CROSS JOIN runs r ON r.id ="
    " (SELECT id FROM runs WHERE job = value ORDER BY last_at DESC, uuid DESC LIMIT 1)"
)
_ROWS_WRITTEN = (
    "SELECT n.dataset, i.rows FROM json_each(?1) CROSS JOIN dataset_names n ON n.dataset = value"
    " JOIN run_datasets i ON i.direction = ?2 AND i.name = n.id AND i.run = (SELECT run FROM run_datasets"
    " WHERE name = n.id AND direction = ?2 AND rows >= 0 ORDER BY at DESC LIMIT 1) ORDER BY i.at"
)
_DATASET_FACETS = (
    "SELECT n.dataset, f.key, f.value FROM json_each(?1) AS j"
    " CROSS JOIN dataset_names n ON n.dataset = j.value"
    " JOIN facets f ON f.owner = n.id AND f.container = 0 AND f.key IN ('ownership', 'tags')"
    " WHERE NOT f.deleted ORDER BY f.at"
)
_JOB_FACETS = (
    "SELECT f.owner, f.key, f.value FROM json_each(?1) AS j CROSS JOIN facets f ON f.owner = j.value"
    " AND f.container = 0 AND f.key IN ('ownership', 'tags') WHERE NOT f.deleted"
)


def described(connection: apsw.Connection, ids: Iterable[int]) -> dict[int, CatalogueEntry]:
    """The catalogue's entries of these datasets."""
    query = (
        "SELECT n.id, n.namespace, n.name, n.last_at FROM json_each(?1) AS j"
        " CROSS JOIN dataset_names n ON n.id = j.value"
    )
    rows = rows_for(connection, query, ids)
    entries = {id: CatalogueEntry("dataset", space, name, iso(at)) for id, space, name, at in rows}
    _describe(connection, "dataset", entries)
    return entries


def _describe(connection: apsw.Connection, kind: CatalogueKind, entries: dict[int, CatalogueEntry]) -> None:
    """Add to each entry what the tables beside its name have."""
    runs: list[tuple[Any, ...]]
    if kind == "dataset":
        for node in dataset_nodes(connection, dict.fromkeys(entries, 0)):
            entry = entries[int(node.key[1:], 16)]
            entry.writers, entry.readers = node.writers, node.readers
        for id, (known, omitted) in columns_of(connection, entries, 0).items():
            entries[id].columns = len(known) + omitted
        for id, count in rows_for(connection, _ROWS_WRITTEN, entries, int(Direction.OUTPUT)):
            entries[id].rows = count
        runs = rows_for(connection, _LATEST_WRITE, entries, int(Direction.OUTPUT))
    else:
        runs = rows_for(connection, _LATEST_RUN, entries)
    for id, uuid, level, state, state_at, began, last_at in runs:
        entry = entries[id]
        entry.run, entry.state, entry.run_at = uuid, state_name(level, state), iso(last_at)
        entry.seconds = max(0, state_at - began) / 1e6 if level == 2 else None
    for id, key, value in rows_for(
        connection, _DATASET_FACETS if kind == "dataset" else _JOB_FACETS, entries
    ):
        facet = mapping(orjson.loads(value))
        if key == "ownership":
            entries[id].owners = owners_of(facet)
        else:
            entries[id].tags = tags_of(facet)


def owners_of(facet: dict[str, Any]) -> list[str]:
    """The names of an `ownership` facet."""
    return _distinct(text(owner.get("name")) for owner in items(facet.get("owners")))


def tags_of(facet: dict[str, Any]) -> list[str]:
    """The tags of a `tags` facet, as `key: value`, or `key` where the value says no more."""
    found = []
    for tag in items(facet.get("tags")):
        key, value = text(tag.get("key")), text(tag.get("value"))
        found.append(f"{key}: {value}" if value and value.lower() != "true" else key)
    return _distinct(found)


def _distinct(texts: Iterable[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text][:MAX_SHOWN]

"""All details of one dataset, job or run, and the dataset and job nodes of all answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import msgspec
import orjson

from headwater.graph.ingest.facet_parsers import Field, unpack
from headwater.graph.ingest.untrusted_json import iso, mapping, micros, text
from headwater.graph.query.answers import (
    Change,
    Column,
    Dataset,
    DatasetNode,
    Job,
    JobNode,
    Link,
    Name,
    Run,
    RunDataset,
    RunSummary,
    Separation,
    Statistic,
    Summary,
    Version,
    id_of_key,
    key_of_dataset,
    key_of_job,
)
from headwater.graph.query.names import NotFound
from headwater.graph.store.database import rows_for
from headwater.graph.store.ids import WHOLE_DATASET
from headwater.graph.store.schema import NO_JOB_ID, Direction, State
from headwater.log.queue.sqlite import select

MAX_COLUMNS = 300  # of one dataset in a graph
MAX_GRAPH_COLUMNS = 30_000  # of all datasets in a graph
MAX_DETAILED_COLUMNS = 10_000  # in the details of a dataset
MAX_VERSION_BYTES = 4 * 1024 * 1024  # of the schemas in the details of a dataset
MAX_USERS = 1_000  # of a dataset, and datasets of a job
MAX_COUNTED = 100_000  # of those; the number of more is not counted
LATEST_JOBS = 1_000  # whose integrations are read
RUNS = 20  # the latest runs in the details of a job
POINTS = 200  # of a dataset's statistics
CHILDREN = 200
MAX_TREE = 300  # runs in the tree of a run
MAX_GENERATIONS = 20


# --- nodes -------------------------------------------------------------------------------------------


def state_name(level: int, state: int) -> str:
    """NEW, RUNNING, or the state in which the run ended."""
    return "NEW" if level <= 0 else "RUNNING" if level == 1 else State(state).name


_DATASETS = (
    "SELECT n.id, n.namespace, n.name, n.last_at FROM json_each(?1)"
    " CROSS JOIN dataset_names n ON n.id = value"
)
_USER_COUNTS = (
    "SELECT n.dataset, io.direction, count(DISTINCT io.job) FROM json_each(?1)"
    " CROSS JOIN dataset_names n ON n.dataset = value JOIN job_datasets io ON io.name = n.id GROUP BY 1, 2"
)
_JOBS = (
    "SELECT j.id, j.namespace, j.name, j.last_at, r.level, r.state FROM json_each(?1)"
    " CROSS JOIN jobs j ON j.id = value LEFT JOIN runs r ON r.id ="
    " (SELECT id FROM runs WHERE job = j.id ORDER BY last_at DESC, uuid DESC LIMIT 1)"
)


def dataset_nodes(
    connection: apsw.Connection, distances: dict[int, int], *, columns: bool = False
) -> list[DatasetNode]:
    """The datasets of these ids, nearest first."""
    found = {
        id: DatasetNode(key_of_dataset(id), namespace, name, distances[id], iso(last_at))
        for id, namespace, name, last_at in rows_for(connection, _DATASETS, distances)
    }
    for id, direction, count in rows_for(connection, _USER_COUNTS, distances):
        if direction == Direction.INPUT:
            found[id].readers = count
        else:
            found[id].writers = count
    if columns:
        most = min(MAX_COLUMNS, max(1, MAX_GRAPH_COLUMNS // max(1, len(found))))
        for id, (known, omitted) in columns_of(connection, found, most).items():
            found[id].columns, found[id].columns_omitted = known, omitted
    return sorted(found.values(), key=lambda node: (abs(node.distance), node.namespace, node.name))


def job_nodes(connection: apsw.Connection, ids: Iterable[int]) -> list[JobNode]:
    """The jobs of these ids, by name."""
    found = [
        JobNode(
            key_of_job(id), namespace, name, "" if level is None else state_name(level, state), iso(last_at)
        )
        for id, namespace, name, last_at, level, state in rows_for(connection, _JOBS, ids)
    ]
    return sorted(found, key=lambda node: (node.namespace, node.name))


def _jobs_by_id(connection: apsw.Connection, ids: Iterable[int]) -> dict[int, JobNode]:
    """The jobs of these ids; those that retention removed have no name."""
    ids = set(ids)
    found = {id: JobNode(key_of_job(id), "", "") for id in ids}
    return found | {id_of_key(node.key): node for node in job_nodes(connection, ids)}


# The schema that a writer reported last; without one, the schema that a reader reported last.
_SCHEMAS = (
    "SELECT dataset, fields FROM (SELECT n.dataset AS dataset, v.schema AS schema,"
    " row_number() OVER (PARTITION BY n.dataset"
    " ORDER BY v.written_at DESC, v.last_at DESC, v.schema DESC) AS n"
    " FROM json_each(?1) CROSS JOIN dataset_names n ON n.dataset = value JOIN versions v ON v.name = n.id)"
    " JOIN schemas ON schemas.id = schema WHERE n = 1"
)
_COLUMNS_IN_EDGES = (
    "SELECT DISTINCT n.dataset, f.text FROM json_each(?1) CROSS JOIN dataset_names n ON n.dataset = value"
    " JOIN columns c ON c.name = n.id AND c.field != ?2 JOIN fields f ON f.id = c.field"
    " WHERE EXISTS (SELECT 1 FROM edges WHERE target = c.id)"
    " OR EXISTS (SELECT 1 FROM edges WHERE source = c.id)"
    " ORDER BY f.text"
)


def columns_of(
    connection: apsw.Connection, ids: Iterable[int], most: int = MAX_DETAILED_COLUMNS
) -> dict[int, tuple[list[Column], int]]:
    """At most so many columns of each dataset, and how many more there are.

    Those of the current schema come in its order, then those that only edges have.
    """
    ids = list(ids)
    found: dict[int, list[Column]] = {id: [] for id in ids}
    omitted = dict.fromkeys(ids, 0)
    known: dict[int, set[str]] = {id: set() for id in ids}
    arguments = (orjson.dumps(ids).decode(),)
    for id, content in connection.execute(_SCHEMAS, arguments):  # one at a time: schemas can be large
        fields = unpack(content)
        found[id] = as_columns(fields[:most])
        omitted[id] = len(fields) - len(found[id])
        known[id] = {field.name for field in fields}
    for id, name in connection.execute(_COLUMNS_IN_EDGES, (*arguments, WHOLE_DATASET)):
        if name in known[id]:
            continue
        if len(found[id]) < most:
            found[id].append(Column(name))
        else:
            omitted[id] += 1
    return {id: (found[id], omitted[id]) for id in ids}


def as_columns(fields: Sequence[Field]) -> list[Column]:
    return [Column(field.name, field.type, field.description) for field in fields]


# --- datasets ----------------------------------------------------------------------------------------


def dataset(connection: apsw.Connection, id: int) -> Dataset:
    """The dataset of this id, under all its names."""
    query = (
        "SELECT namespace, name, first_at, last_at, id FROM dataset_names WHERE dataset = ?1"
        " ORDER BY id != ?1, namespace, name"
    )
    names = select(connection, query, id)
    users = {direction: _users(connection, _USERS, id, direction) for direction in Direction}
    columns, columns_omitted = columns_of(connection, [id])[id]
    versions, versions_omitted = _versions(connection, id)
    facets = [_facets(connection, [row[4] for row in names], container) for container in range(4)]
    return Dataset(
        key_of_dataset(id),
        names[0][0],
        names[0][1],
        [Name(*row[:2]) for row in names[1:]],
        iso(min(row[2] for row in names)),
        iso(max(row[3] for row in names)),
        columns,
        versions,
        job_nodes(connection, users[Direction.OUTPUT][0]),
        job_nodes(connection, users[Direction.INPUT][0]),
        statistics(connection, id, POINTS),
        facets[0],
        facets[1],
        facets[2],
        facets[3],
        _links(connection, [row[4] for row in names]),
        _separations(connection, [row[4] for row in names]),
        columns_omitted=columns_omitted,
        versions_omitted=versions_omitted,
        writers_omitted=users[Direction.OUTPUT][1],
        readers_omitted=users[Direction.INPUT][1],
    )


_LINKS = (
    "SELECT DISTINCT s.producer, n.namespace, n.name, t.namespace, t.name FROM json_each(?1) AS j"
    " CROSS JOIN link_statements s ON s.owner = j.value JOIN json_each(s.targets) AS target"
    " JOIN aliases a ON a.owner = s.owner AND a.target = target.value"
    " JOIN dataset_names n ON n.id = s.owner JOIN dataset_names t ON t.id = target.value"
    " ORDER BY 2, 3, 4, 5, 1 LIMIT ?2"
)
_SEPARATIONS = (
    "SELECT k.namespace, k.name, a.namespace, a.name FROM separations s"
    " JOIN dataset_names k ON k.id = s.kept JOIN dataset_names a ON a.id = s.apart"
    " WHERE s.kept IN (SELECT value FROM json_each(?1)) OR s.apart IN (SELECT value FROM json_each(?1))"
    " ORDER BY 1, 2, 3, 4 LIMIT ?2"
)


def _links(connection: apsw.Connection, names: list[int]) -> list[Link]:
    producers: dict[tuple[Name, Name], list[str]] = {}
    for producer, *ends in rows_for(connection, _LINKS, names, MAX_USERS):
        producers.setdefault((Name(*ends[:2]), Name(*ends[2:])), []).append(producer)
    return [Link(name, alias, found) for (name, alias), found in producers.items()]


def _separations(connection: apsw.Connection, names: list[int]) -> list[Separation]:
    rows = rows_for(connection, _SEPARATIONS, names, MAX_USERS)
    return [Separation(Name(*row[:2]), Name(*row[2:])) for row in rows]


_USERS = (
    "SELECT DISTINCT io.job FROM dataset_names n JOIN job_datasets io ON io.name = n.id"
    " WHERE n.dataset = ?1 AND io.direction = ?2 LIMIT ?3"
)


def _users(connection: apsw.Connection, query: str, id: int, direction: Direction) -> tuple[list[int], int]:
    """Jobs of a dataset, or datasets of a job, and how many more there are."""
    found = [user for (user,) in select(connection, query, id, int(direction), MAX_USERS)]
    if len(found) < MAX_USERS:
        return found, 0
    count = f"SELECT count(*) FROM ({query})"  # noqa: S608
    return found, select(connection, count, id, int(direction), MAX_COUNTED)[0][0] - MAX_USERS


_FACETS = (
    "SELECT f.key, f.value FROM json_each(?1) AS j CROSS JOIN facets f ON f.owner = j.value"
    " WHERE f.container = ?2 AND NOT f.deleted ORDER BY f.key, f.at, f.value"
)


def _facets(connection: apsw.Connection, owners: list[int], container: int = 0) -> dict[str, msgspec.Raw]:
    # if several aliases have the facet, the last one counts
    return {key: _facet(value) for key, value in rows_for(connection, _FACETS, owners, container)}


def _facet(value: bytes) -> msgspec.Raw:
    """The stored facet; ValueError if a damaged page made it anything else than JSON."""
    orjson.loads(value)
    return msgspec.Raw(value)


def _versions(connection: apsw.Connection, id: int) -> tuple[list[Version], int]:
    """The schemas of a dataset, newest first, each with its changes, and how many older ones are omitted."""
    query = (
        "SELECT v.schema, min(v.first_at), max(v.last_at), max(v.written_at), length(s.fields)"
        " FROM dataset_names n JOIN versions v ON v.name = n.id JOIN schemas s ON s.id = v.schema"
        " WHERE n.dataset = ? GROUP BY v.schema ORDER BY 2, 1"
    )
    rows = select(connection, query, id)
    current = max(rows, key=lambda row: (row[3], row[2], row[0]))[0] if rows else b""
    left, omitted = MAX_VERSION_BYTES, len(rows)
    while omitted and (omitted == len(rows) or left >= rows[omitted - 1][4]):
        omitted -= 1
        left -= rows[omitted][4]
    found: list[Version] = []
    before: list[Field] | None = None
    for schema, first_at, last_at, *_ in rows[omitted:]:
        content = select(connection, "SELECT fields FROM schemas WHERE id = ?", schema)
        fields = unpack(content[0][0])
        changed = _changes(before, fields) if before is not None else []
        is_current = schema == current
        found.append(
            Version(schema.hex(), iso(first_at), iso(last_at), is_current, as_columns(fields), changed)
        )
        before = fields
    return found[::-1], omitted


def _changes(before: Sequence[Field], after: Sequence[Field]) -> list[Change]:
    """Removed fields, then added and retyped fields in their order."""
    old = {field.name: field.type for field in before}
    new = {field.name: field.type for field in after}
    found = [Change("removed", name, before=type) for name, type in old.items() if name not in new]
    for name, type in new.items():
        if name not in old:
            found.append(Change("added", name, after=type))
        elif old[name] != type:
            found.append(Change("retyped", name, old[name], type))
    return found


def statistics(connection: apsw.Connection, id: int, limit: int) -> list[Statistic]:
    """The statistics that the latest runs reported about a dataset, newest first."""
    query = (
        "SELECT r.uuid, r.job, i.direction, r.level, r.state, i.at, i.rows, i.bytes, i.files"
        " FROM dataset_names n JOIN run_datasets i ON i.name = n.id JOIN runs r ON r.id = i.run"
        " WHERE n.dataset = ? ORDER BY i.at DESC, r.uuid LIMIT ?"
    )
    rows = select(connection, query, id, limit)
    jobs = _jobs_by_id(connection, (row[1] for row in rows))
    return [
        Statistic(
            uuid,
            jobs[job],
            Direction(direction).name.lower(),
            state_name(level, state),
            iso(at),
            *map(_reported, counts),
        )
        for uuid, job, direction, level, state, at, *counts in rows
    ]


def _reported(count: int) -> int | None:
    return count if count >= 0 else None


# --- jobs and runs -----------------------------------------------------------------------------------


def job(connection: apsw.Connection, id: int) -> Job:
    """The job of this id, with its latest runs."""
    query = "SELECT namespace, name, first_at, last_at FROM jobs WHERE id = ?"
    namespace, name, first_at, last_at = select(connection, query, id)[0]
    parents = select(connection, _PARENT_JOB, id)
    used = {direction: _users(connection, _DATASETS_OF_JOB, id, direction) for direction in Direction}
    return Job(
        key_of_job(id),
        namespace,
        name,
        iso(first_at),
        iso(last_at),
        _one_job(connection, parents[0][0] if parents else NO_JOB_ID),
        dataset_nodes(connection, dict.fromkeys(used[Direction.INPUT][0], 0)),
        dataset_nodes(connection, dict.fromkeys(used[Direction.OUTPUT][0], 0)),
        runs_of_job(connection, id, limit=RUNS),
        _facets(connection, [id]),
        used[Direction.INPUT][1],
        used[Direction.OUTPUT][1],
    )


def integrations(connection: apsw.Connection, without: str) -> set[str]:
    """The integrations that the latest jobs name in `jobType`, except those of one namespace."""
    query = (
        "SELECT f.value FROM (SELECT id, namespace FROM jobs ORDER BY last_at DESC LIMIT ?2) j"
        " CROSS JOIN facets f ON f.owner = j.id AND f.container = 0 AND f.key = 'jobType'"
        " WHERE NOT f.deleted AND j.namespace != ?1"
    )
    rows = select(connection, query, without, LATEST_JOBS)
    found = {text(mapping(orjson.loads(value)).get("integration")).upper() for (value,) in rows}
    return found - {""}


_PARENT_JOB = (
    "SELECT parent_job FROM runs WHERE job = ? AND parent_job != 0 ORDER BY last_at DESC, uuid DESC LIMIT 1"
)
_DATASETS_OF_JOB = (
    "SELECT DISTINCT n.dataset FROM job_datasets io JOIN dataset_names n ON n.id = io.name"
    " WHERE io.job = ?1 AND io.direction = ?2 LIMIT ?3"
)


def _one_job(connection: apsw.Connection, id: int) -> JobNode | None:
    return next(iter(job_nodes(connection, [id])), None)


_RUNS = (
    "SELECT id, uuid, job, level, state, state_at, started_at, first_at, last_at, parent, root, parent_job,"
    " root_job FROM runs"
)
_NEWEST_FIRST = "ORDER BY last_at DESC, uuid DESC LIMIT ? OFFSET ?"


def runs(connection: apsw.Connection, *, limit: int, offset: int = 0) -> list[RunSummary]:
    """All runs, newest first."""
    return _summaries(connection, select(connection, f"{_RUNS} {_NEWEST_FIRST}", limit, offset))


def runs_between(
    connection: apsw.Connection,
    after: int | None,
    before: int | None,
    *,
    newest_first: bool,
    limit: int,
    offset: int,
) -> tuple[list[tuple[RunSummary, dict[str, Any], list[tuple[str, str]], list[tuple[str, str]]]], int]:
    """The runs last mentioned in a period, each with its facets, inputs and outputs; and their number."""
    first, last = -(2**63) if after is None else after, 2**63 - 1 if before is None else before
    where = "WHERE last_at >= ?1 AND last_at < ?2"
    order = "DESC" if newest_first else "ASC"
    query = f"{_RUNS} {where} ORDER BY last_at {order}, uuid {order} LIMIT ?3 OFFSET ?4"
    rows = select(connection, query, first, last, limit, offset)
    total = select(connection, f"SELECT count(*) FROM runs {where}", first, last)[0][0]  # noqa: S608
    ids = [row[0] for row in rows]
    facets: dict[int, dict[str, Any]] = {id: {} for id in ids}
    query = (
        "SELECT f.run, f.key, f.value FROM json_each(?1) AS j CROSS JOIN run_facets f ON f.run = j.value"
        " WHERE NOT f.deleted"
    )
    for id, key, value in rows_for(connection, query, ids):
        facets[id][key] = orjson.loads(value)
    used: dict[tuple[int, int], list[tuple[str, str]]] = {}
    query = (
        "SELECT i.run, i.direction, n.namespace, n.name FROM json_each(?1) AS j"
        " CROSS JOIN run_datasets i ON i.run = j.value JOIN dataset_names n ON n.id = i.name"
    )
    for id, direction, *name in rows_for(connection, query, ids):
        used.setdefault((id, direction), []).append((name[0], name[1]))
    summaries = _summaries(connection, rows)
    found = [
        (run, facets[id], used.get((id, Direction.INPUT), []), used.get((id, Direction.OUTPUT), []))
        for run, id in zip(summaries, ids, strict=True)
    ]
    return found, total


def runs_of_job(connection: apsw.Connection, job: int, *, limit: int, offset: int = 0) -> list[RunSummary]:
    """The runs of a job, newest first."""
    query = f"{_RUNS} WHERE job = ? {_NEWEST_FIRST}"
    return _summaries(connection, select(connection, query, job, limit, offset))


def _summaries(connection: apsw.Connection, rows: list[tuple[Any, ...]]) -> list[RunSummary]:
    jobs = _jobs_by_id(connection, (row[2] for row in rows))
    facets: dict[int, dict[str, dict[str, Any]]] = {}
    query = (
        "SELECT f.run, f.key, f.value FROM json_each(?1) AS j CROSS JOIN run_facets f ON f.run = j.value"
        " WHERE f.key IN ('nominalTime', 'errorMessage') AND NOT f.deleted"
    )
    for id, key, value in rows_for(connection, query, (row[0] for row in rows)):
        facets.setdefault(id, {})[key] = mapping(orjson.loads(value))
    found = []
    for id, uuid, job, level, state, state_at, started_at, first_at, last_at, parent, root, *_ in rows:
        ended_at = state_at if level == 2 else None
        began = started_at if started_at is not None else first_at
        nominal = facets.get(id, {}).get("nominalTime", {})
        found.append(
            RunSummary(
                uuid,
                jobs[job],
                state_name(level, state),
                iso(started_at),
                iso(ended_at),
                max(0, ended_at - began) / 1e6 if ended_at is not None else None,
                iso(first_at),
                iso(last_at),
                iso(micros(nominal.get("nominalStartTime"))),
                iso(micros(nominal.get("nominalEndTime"))),
                text(facets.get(id, {}).get("errorMessage", {}).get("message")),
                parent,
                root,
            )
        )
    return found


def summary(connection: apsw.Connection) -> Summary:
    """The numbers of nodes in the graph, and the time of its latest event."""
    datasets, jobs, runs, columns, failed, *at = select(
        connection,
        "SELECT (SELECT count(*) FROM dataset_names WHERE dataset = id), (SELECT count(*) FROM jobs),"
        " (SELECT count(*) FROM runs), (SELECT count(*) FROM columns WHERE field != 0),"
        " (SELECT count(*) FROM jobs j WHERE (SELECT level = 2 AND state > 3 FROM runs WHERE job = j.id"
        " ORDER BY last_at DESC, uuid DESC LIMIT 1)),"
        " (SELECT max(last_at) FROM jobs), (SELECT max(last_at) FROM dataset_names)",
    )[0]
    latest = max((time for time in at if time is not None), default=None)
    return Summary(datasets, jobs, runs, columns, failed, iso(latest))


_ANCESTORS = (
    "WITH RECURSIVE up(uuid, parent, n) AS (SELECT uuid, parent, 0 FROM runs WHERE uuid = ?1 UNION ALL"
    " SELECT r.uuid, r.parent, n + 1 FROM up JOIN runs r ON r.uuid = up.parent"
    " WHERE n < ?2 AND up.parent != '')"
    " SELECT uuid FROM up ORDER BY n DESC LIMIT 1"
)
_DESCENDANTS = (
    "WITH RECURSIVE down(uuid, parent, n) AS (SELECT ?1, '', 0 UNION"
    " SELECT r.uuid, r.parent, n + 1 FROM down JOIN runs r ON r.parent = down.uuid AND r.parent != ''"
    " WHERE n < ?2 LIMIT ?3) SELECT uuid FROM down"
)


def run_tree(connection: apsw.Connection, uuid: str) -> tuple[list[RunSummary], bool]:
    """All runs of the tree that a run is in, parents first, and whether there may be more."""
    roots = select(connection, _ANCESTORS, uuid.lower(), MAX_GENERATIONS)
    root = roots[0][0] if roots else uuid.lower()
    uuids = [id for (id,) in select(connection, _DESCENDANTS, root, MAX_GENERATIONS, MAX_TREE)]
    query = f"{_RUNS} WHERE uuid IN (SELECT value FROM json_each(?1)) ORDER BY first_at, uuid"  # noqa: S608
    return _summaries(connection, rows_for(connection, query, uuids)), len(uuids) >= MAX_TREE


def run(connection: apsw.Connection, uuid: str) -> Run:
    """The run of this id."""
    rows = select(connection, f"{_RUNS} WHERE uuid = ?", uuid.lower())
    if not rows:
        raise NotFound(f"The graph has no run {uuid}.", hint="It may be older than `graph.retention_days`.")
    id, parent_job, root_job = rows[0][0], rows[0][11], rows[0][12]
    query = (
        "SELECT i.direction, n.dataset, i.rows, i.bytes, i.files FROM run_datasets i"
        " JOIN dataset_names n ON n.id = i.name WHERE i.run = ? ORDER BY i.reported_at LIMIT 5000"
    )
    used: dict[Direction, dict[int, list[int]]] = {direction: {} for direction in Direction}
    for direction, dataset, *counts in select(connection, query, id):
        used[Direction(direction)][dataset] = counts
    shown = {
        direction: [
            RunDataset(node, *map(_reported, counts_of[id_of_key(node.key)]))
            for node in dataset_nodes(connection, dict.fromkeys(counts_of, 0))
        ]
        for direction, counts_of in used.items()
    }
    children = f"{_RUNS} WHERE parent = ? AND parent != '' {_NEWEST_FIRST}"
    facets = select(connection, "SELECT key, value FROM run_facets WHERE run = ? AND NOT deleted", id)
    return Run(
        _summaries(connection, rows)[0],
        _one_job(connection, parent_job),
        _one_job(connection, root_job),
        shown[Direction.INPUT],
        shown[Direction.OUTPUT],
        _summaries(connection, select(connection, children, uuid.lower(), CHILDREN, 0)),
        {key: _facet(value) for key, value in facets},
    )

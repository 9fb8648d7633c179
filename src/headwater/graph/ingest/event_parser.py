"""A batch: what some events say, put together in memory before it is written in one transaction.

Events repeat themselves: the same job, the same datasets, the same facets, run after run. Here that costs a
comparison instead of a row. All of it grows by maxima, minima and unions, so the order of events is of no
consequence.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, TypeVar

import orjson

from headwater.graph.ingest import facet_parsers as lineage
from headwater.graph.ingest import facet_parsers as schemas
from headwater.graph.ingest.facet_cache import Edge, Memory
from headwater.graph.ingest.untrusted_json import canonical, count, identity, items, mapping, micros, text
from headwater.graph.store.ids import WHOLE, column_id, dataset_id, field_id, job_id
from headwater.graph.store.run_facts import NO_JOB, Direction, Report, RunFacts, State

__all__ = ["Batch"]

K = TypeVar("K")
V = TypeVar("V")

REMARKS = 3  # the container of what such a facet says beside its rows: what could not be followed (G11)
_IN_ROWS = frozenset({"fields", "dataset", "_producer", "_schemaURL", "_deleted"})
STRUCTURED = frozenset({"schema", "columnLineage", "lineage"})  # kept as rows, not as facets as well


class Batch:
    """Gathers events. `add` never raises: what cannot be read is counted and passed over (G6)."""

    def __init__(self, max_facet_bytes: int, memory: Memory | None = None) -> None:
        self._max_facet_bytes = max_facet_bytes
        self._memory = memory or Memory()
        self.events = 0
        self.unreadable = 0
        self.bytes = 0
        self.names: dict[int, tuple[str, str]] = {}
        self.jobs: dict[int, tuple[str, str]] = {}
        self.fields: dict[int, str] = {}
        self.columns: dict[int, tuple[int, int]] = {}
        self.schemas: dict[bytes, bytes] = {}
        self.spans: dict[int, list[int]] = {}  # of names and jobs
        self.runs: dict[str, RunFacts] = {}
        self.run_facets: dict[tuple[str, str], tuple[int, bool, bytes]] = {}
        self.facets: dict[tuple[int, int, str], tuple[int, bool, bytes]] = {}
        self.io: dict[tuple[int, int, int], list[int]] = {}
        self.run_io: dict[tuple[str, int, int], tuple[int, tuple[int, int, int, int]]] = {}
        self.versions: dict[tuple[int, bytes], list[int]] = {}
        self.edges: dict[Edge, list[Any]] = {}
        self.reports: dict[tuple[int, int, int], tuple[int, str]] = {}
        self.linked: set[int] = set()  # names whose symlinks were told
        # What is told again and again: by whom, and in which words; taken apart once, in `finish`.
        self._schemas: dict[tuple[int, bytes], list[Any]] = {}
        self._columns: dict[tuple[int, int, bytes], list[Any]] = {}

    def add(self, body: bytes) -> bool:
        """Take an event in; False where it is none."""
        self.events += 1
        self.bytes += len(body)
        try:
            event = orjson.loads(body)
        except orjson.JSONDecodeError:
            event = None
        if not self._event(mapping(event)):
            self.unreadable += 1
            return False
        return True

    def _event(self, event: dict[str, Any]) -> bool:
        if (at := micros(event.get("eventTime"))) is None:
            return False
        job, run = identity(event.get("job")), mapping(event.get("run"))
        if job is None:
            if (dataset := identity(event.get("dataset"))) is None:
                return False
            self._dataset(event["dataset"], dataset, at, NO_JOB, "", Direction.OUTPUT)
            return True
        uuid = text(run.get("runId")).lower()
        own = self._job(job, at)
        if uuid:
            self._run(uuid, run, own, at, event.get("eventType"))
        for key, direction, report in (
            ("inputs", Direction.INPUT, Report.INPUTS),
            ("outputs", Direction.OUTPUT, Report.OUTPUTS),
        ):
            for item in items(event.get(key)):
                if (dataset := identity(item)) is not None:
                    self._used(own, dataset, direction, at)
                    _later(self.reports, (0, own, report), (at, uuid))
                    self._dataset(item, dataset, at, own, uuid, direction)
        self._job_facets(own, mapping(event["job"].get("facets")), at, uuid)
        return True

    # --- jobs and runs -------------------------------------------------------------------------------

    def _job(self, job: tuple[str, str], at: int) -> int:
        id = job_id(*job)
        self.jobs[id] = job
        _widen(self.spans, id, at, at)
        return id

    def _job_facets(self, job: int, facets: dict[str, Any], at: int, uuid: str) -> None:
        self._facets(job, 0, facets, at)
        for entry in lineage.lineage_entries(mapping(facets.get("lineage"))):
            if entry.get("type") == "JOB":
                fed = identity(entry)
                into = self._job(fed, at) if fed is not None else job
                for source in items(entry.get("inputs")):
                    if source.get("type") != "JOB" and (dataset := identity(source)) is not None:
                        self._used(into, dataset, Direction.INPUT, at)
            elif (dataset := identity(entry)) is not None:
                self._used(job, dataset, Direction.OUTPUT, at)
                self._lineage(dataset, entry, at, job, uuid)

    def _run(self, uuid: str, run: dict[str, Any], job: int, at: int, kind: object) -> None:
        if (facts := self.runs.get(uuid)) is None:
            facts = self.runs[uuid] = RunFacts(at)
        facts.first_at = min(facts.first_at, at)
        facts.last_at = max(facts.last_at, at)
        state = State.__members__.get(kind, State.OTHER) if isinstance(kind, str) else State.OTHER
        if state is State.START and (facts.started_at is None or at < facts.started_at):
            facts.started_at = at
        facts.state = max(facts.state, (state.level, at, state))
        facts.job = max(facts.job, (at, job))
        for key, facet in mapping(run.get("facets")).items():
            if isinstance(facet, dict):
                self._facet(self.run_facets, (uuid, text(key)), facet, at)
        parent = mapping(mapping(run.get("facets")).get("parent"))
        if parent_run := text(mapping(parent.get("run")).get("runId")).lower():
            root = mapping(parent.get("root"))
            root_run = text(mapping(root.get("run")).get("runId")).lower()
            told = (at, parent_run, self._other(parent, at), root_run, self._other(root, at))
            facts.parent = max(facts.parent, told)

    def _other(self, of: dict[str, Any], at: int) -> int:
        """The job of a parent or root run."""
        job = identity(of.get("job"))
        return self._job(job, at) if job is not None else NO_JOB

    # --- datasets ------------------------------------------------------------------------------------

    def _name(self, dataset: tuple[str, str], first: int, last: int) -> int:
        id = dataset_id(*dataset)
        self.names[id] = dataset
        _widen(self.spans, id, first, last)
        return id

    def _used(self, job: int, dataset: tuple[str, str], direction: Direction, at: int) -> None:
        _widen(self.io, (job, direction, self._name(dataset, at, at)), at, at)

    def _dataset(
        self,
        item: dict[str, Any],
        dataset: tuple[str, str],
        at: int,
        job: int,
        uuid: str,
        direction: Direction,
    ) -> None:
        name = self._name(dataset, at, at)
        facets = mapping(item.get("facets"))
        extra = mapping(item.get("inputFacets" if direction is Direction.INPUT else "outputFacets"))
        self._facets(name, 0, facets, at)
        self._facets(name, direction, extra, at)
        if isinstance(schema := facets.get("schema"), dict):
            self._schema(name, schema, at, direction)
        if isinstance(told := facets.get("columnLineage"), dict):
            _later(self.reports, (name, job, Report.COLUMNS), (at, uuid))
            self._column_lineage(name, told, at, job)
            # told also where there is nothing, since that ends what was said before
            rest = {key: value for key, value in told.items() if key not in _IN_ROWS}
            self._facet(self.facets, (name, REMARKS, "columnLineage"), rest or {"_deleted": True}, at)
        if isinstance(told := facets.get("lineage"), dict):
            self._lineage(dataset, told, at, job, uuid)
        if isinstance(symlinks := facets.get("symlinks"), dict):
            self.linked.add(name)
            for target in items(symlinks.get("identifiers")):
                if (other := identity(target)) is not None:
                    self._name(other, at, at)
        if uuid:
            told_at = (at, *_statistics(facets, extra))
            key = (uuid, int(direction), name)
            before = self.run_io.get(key)
            statistics = told_at if told_at[1:] != _UNTOLD else _NEVER
            if before is None:
                self.run_io[key] = (at, statistics)
            else:
                self.run_io[key] = (max(at, before[0]), max(statistics, before[1]))

    def _schema(self, name: int, facet: dict[str, Any], at: int, direction: Direction) -> None:
        if (words := _words(facet)) is not None:
            noted = _note(self._schemas, (name, words), at, self._memory.schemas.get(words) or facet)
            written = at if direction is Direction.OUTPUT else 0
            noted[3:] = [max([written, *noted[3:]])]

    def _column_lineage(self, name: int, facet: dict[str, Any], at: int, job: int) -> None:
        if (words := _words(facet)) is not None:
            key = (name, job, words)
            known = self._memory.edges.get(key)
            _note(self._columns, key, at, facet if known is None else known)

    def finish(self) -> None:
        """Take apart what was noted; call it once, after the last `add`."""
        for (name, words), (first, last, told, written) in self._schemas.items():
            schema = told
            if isinstance(told, dict):
                schema = schemas.pack(schemas.flatten(told))
                self._memory.keep_schema(words, schema)
            self.schemas[schema[0]] = schema[1]
            if (name, schema[0]) not in self._memory.versions:
                for field in schemas.unpack(schema[1]):
                    self._column(name, field.name)
                self._memory.versions.add((name, schema[0]))
            span = self.versions.setdefault((name, schema[0]), [first, last, written])
            span[:] = min(span[0], first), max(span[1], last), max(span[2], written)
        for key, (first, last, told) in self._columns.items():
            name, job, _ = key
            edges = told
            if isinstance(told, dict):
                edges = []
                for tie in lineage.column_lineage(told):
                    source = self._name(tie.source, first, last)
                    edges.append((self._edge_key(name, tie, job), source, tie.description))
                self._memory.keep_edges(key, edges)
            for edge, source, description in edges:
                _widen(self.spans, source, first, last)
                self._edge(edge, description, first, last)

    def _lineage(self, dataset: tuple[str, str], entry: dict[str, Any], at: int, job: int, uuid: str) -> None:
        name = self._name(dataset, at, at)
        _later(self.reports, (name, job, Report.LINEAGE), (at, uuid))
        if entry.get("fields"):
            _later(self.reports, (name, job, Report.COLUMNS), (at, uuid))
        for tie in lineage.lineage(entry):
            if isinstance(tie, lineage.JobTie):
                if tie.job is not None:
                    self._used(self._job(tie.job, at), dataset, Direction.OUTPUT, at)
                continue
            if job != NO_JOB:
                self._used(job, tie.source, Direction.INPUT, at)
            else:
                self._name(tie.source, at, at)
            self._edge(self._edge_key(name, tie, job), tie.description, at, at)

    def _edge_key(self, target: int, tie: lineage.Tie, job: int) -> Edge:
        return (
            self._column(target, tie.target_field),
            self._column(dataset_id(*tie.source), tie.source_field),
            job,
            tie.type,
            tie.subtype,
            int(tie.masking),
        )

    def _edge(self, edge: Edge, description: str, first: int, last: int) -> None:
        if (span := self.edges.get(edge)) is None:
            self.edges[edge] = [first, last, description]
            return
        span[0] = min(span[0], first)
        span[1], span[2] = max((span[1], span[2]), (last, description))

    def _column(self, name: int, field: str | None) -> int:
        if field is None:
            known = WHOLE
        else:
            known = field_id(field)
            self.fields[known] = field
        id = column_id(name, known)
        self.columns[id] = (name, known)
        return id

    # --- facets --------------------------------------------------------------------------------------

    def _facets(self, owner: int, container: int, facets: dict[str, Any], at: int) -> None:
        for key, facet in facets.items():
            if key not in STRUCTURED and isinstance(facet, dict):
                self._facet(self.facets, (owner, container, text(key)), facet, at)

    def _facet(self, table: dict[K, tuple[int, bool, bytes]], key: K, facet: dict[str, Any], at: int) -> None:
        deleted = facet.get("_deleted") is True
        before = table.get(key)
        if before is None or before[0] <= at:
            _later(table, key, (at, deleted, canonical(facet, self._max_facet_bytes)))


_UNTOLD = (-1, -1, -1)
_NEVER = (-(2**63), *_UNTOLD)


def _words(facet: dict[str, Any]) -> bytes | None:
    """A digest to know the facet again by; None where it is nested too deeply to be one of ours."""
    try:
        return blake2b(orjson.dumps(facet), digest_size=16).digest()
    except orjson.JSONEncodeError:
        return None


def _statistics(facets: dict[str, Any], extra: dict[str, Any]) -> tuple[int, int, int]:
    """Rows, bytes and files, from whichever facet has them."""
    if not extra and "dataQualityMetrics" not in facets:
        return _UNTOLD
    rows = size = files = -1
    for facet in (
        extra.get("outputStatistics"),
        extra.get("inputStatistics"),
        extra.get("dataQualityMetrics"),
        facets.get("dataQualityMetrics"),
    ):
        told = mapping(facet)
        rows = rows if rows >= 0 else count(told.get("rowCount"))
        size = size if size >= 0 else count(told.get("size", told.get("bytes")))
        files = files if files >= 0 else count(told.get("fileCount"))
    return rows, size, files


def _widen(table: dict[K, list[int]], key: K, first: int, last: int) -> None:
    if (span := table.get(key)) is None:
        table[key] = [first, last]
        return
    if first < span[0]:
        span[0] = first
    if last > span[1]:
        span[1] = last


def _note(table: dict[K, list[Any]], key: K, at: int, told: Any) -> list[Any]:
    """The span in which a facet was told, and the facet, or what it was taken apart into before."""
    if (noted := table.get(key)) is None:
        noted = table[key] = [at, at, told]
    elif at < noted[0]:
        noted[0] = at
    elif at > noted[1]:
        noted[1] = at
    return noted


def _later(table: dict[K, V], key: K, value: V) -> None:
    before = table.get(key)
    if before is None or before < value:  # type: ignore[operator]
        table[key] = value

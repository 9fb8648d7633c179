"""Turns OpenLineage events into `GraphChanges`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import orjson

from headwater.graph.ingest import facet_parsers
from headwater.graph.ingest.untrusted_json import identity, iso, items, mapping, micros, text
from headwater.graph.store.changes import NO_PARENT, UNRESOLVED, Edge, GraphChanges
from headwater.graph.store.ids import dataset_id
from headwater.graph.store.schema import DAY, MAX_ALIASES, NO_JOB_ID, Direction, State, Statement

K = TypeVar("K")

_KEPT_AS_ROWS = frozenset({"fields", "dataset", "_producer", "_schemaURL", "_deleted"})
_STRUCTURED_FACETS = frozenset({"schema", "columnLineage", "lineage"})  # stored as rows only, not as facets

# Each limit corresponds to at most about 10 MB.
MAX_IDS = 100_000
MAX_EDGES = 30_000
MAX_SCHEMA_BYTES = 10_000_000
DESCRIPTION_OF_EDGE = 200  # characters that an edge may have on average

# Limits of one event (G8). The facet LEFT_OUT of its job or dataset counts what was beyond them.
MAX_DATASETS = 10_000
MAX_FACETS = 200  # of one job, run or dataset
MAX_FACET_BYTES = 4 * 1024 * 1024  # of all `schema`, `columnLineage` and `lineage` facets
LEFT_OUT = "headwaterLeftOut"

EARLIEST = 946_684_800_000_000  # 2000-01-01: an earlier time is that of a clock that was never set


class ParsedEdges(NamedTuple):
    """The edges of a facet, each with the name of its source and a description, and how many more it has."""

    edges: Sequence[tuple[Edge, int, str]]
    omitted: int


class FacetCache:
    """A cache of parsed facets, and of ids that have rows (G8).

    Most facets are repeated in every run, and then cost a hash. A part that grows too large is emptied as a
    whole. Everything here has rows in the tables too: removing rows, or rolling a batch back, must clear it.
    """

    def __init__(self) -> None:
        self.ids: set[int] = set()  # names, jobs, fields, columns that have rows
        self.schema_versions: set[tuple[int, bytes]] = set()  # names and schemas whose columns have rows
        self.schemas: dict[bytes, tuple[bytes, bytes, int]] = {}  # by the facet's hash: as `_finish_schema`
        self.edges: dict[tuple[int, int, bytes], ParsedEdges] = {}
        self._edges = self._schema_bytes = 0

    def keep_schema(self, facet_hash: bytes, schema: tuple[bytes, bytes, int]) -> None:
        """Remember the content of a `schema` facet."""
        self._schema_bytes += len(facet_hash) + len(schema[1]) + 200
        if self._schema_bytes > MAX_SCHEMA_BYTES:
            self.schemas.clear()
            self._schema_bytes = 0
        self.schemas[facet_hash] = schema

    def keep_edges(self, key: tuple[int, int, bytes], parsed: ParsedEdges) -> None:
        """Remember the edges of a `columnLineage` facet."""
        described = sum(len(description) for _, _, description in parsed.edges)
        self._edges += len(parsed.edges) + 1 + described // DESCRIPTION_OF_EDGE
        if self._edges > MAX_EDGES:
            self._clear_edges()
        self.edges[key] = parsed

    def trim(self) -> None:
        """Forget all ids if there are too many."""
        if len(self.ids) + len(self.schema_versions) > MAX_IDS:
            self.ids.clear()
            self.schema_versions.clear()
            self._clear_edges()  # cached edges come without columns, which need their rows once more

    def clear(self) -> None:
        """Forget everything."""
        self.ids.clear()
        self.schema_versions.clear()
        self.schemas.clear()
        self._schema_bytes = 0
        self._clear_edges()

    def _clear_edges(self) -> None:
        self.edges.clear()
        self._edges = 0


@dataclass(slots=True)
class RepeatedFacet:
    """The period in which a facet was reported, and the facet or its parsed form."""

    first_at: int
    last_at: int
    content: Any
    written_at: int = 0  # when a writer of the dataset last reported it


class EventParser:
    """Parses the events of one batch. Invalid events are counted and skipped (G6)."""

    def __init__(self, max_facet_bytes: int, cache: FacetCache) -> None:
        self.changes = GraphChanges(max_facet_bytes)
        self.events = 0
        self.invalid = 0
        self.mistimed = 0
        self.left_out: Counter[str] = Counter()  # parts beyond the limits, by kind
        self._cache = cache
        self._of_event: Counter[str] = Counter()  # those of the current event
        self._producer = ""
        self._datasets = self._facet_bytes = 0
        # By owner and hash; `finish` parses each once.
        self._schema_facets: dict[tuple[int, bytes], RepeatedFacet] = {}
        self._column_facets: dict[tuple[int, int, bytes], RepeatedFacet] = {}

    def parse(self, body: bytes, received_at: float) -> bool:
        """Add an event to the changes; False for an invalid one. Never raises."""
        self.events += 1
        try:
            event = orjson.loads(body)
        except orjson.JSONDecodeError:
            event = None
        if not self._event(mapping(event), int(received_at * 1_000_000)):
            self.invalid += 1
            return False
        return True

    def _event(self, event: dict[str, Any], received_at: int) -> bool:
        if (at := micros(event.get("eventTime"))) is None:
            return False
        job = identity(event.get("job"))
        dataset = identity(event.get("dataset")) if job is None else None
        if job is None and dataset is None:
            return False
        if not EARLIEST <= at <= received_at + DAY:
            # The latest report counts, so one from the year 9999 would count without end.
            self.mistimed += 1
            at = received_at
        self._of_event.clear()
        self._datasets = self._facet_bytes = 0
        if job is not None:
            self._producer = f"namespace:{job[0]}"
            owner = self._job_event(event, job, at)
        else:
            assert dataset is not None
            self._producer = f"producer:{text(event.get('producer'))}"
            self._dataset(event["dataset"], dataset, at, NO_JOB_ID, "", Direction.OUTPUT)
            owner = dataset_id(*dataset)
        if self._of_event:
            self.left_out.update(self._of_event)
            self._note(owner, 0, LEFT_OUT, at, self._of_event)
        return True

    def _note(self, owner: int, container: int, key: str, at: int, counts: dict[str, int]) -> None:
        """Record what was left out of an event, as a facet."""
        self.changes.add_facet(owner, container, key, {"eventTime": iso(at), **counts}, at)

    def _job_event(self, event: dict[str, Any], job: tuple[str, str], at: int) -> int:
        run = mapping(event.get("run"))
        uuid = text(run.get("runId")).lower()
        id = self.changes.add_job(job, at)
        if uuid:
            self._run(uuid, run, id, at, event.get("eventType"))
        for key, direction, statement in (
            ("inputs", Direction.INPUT, Statement.INPUTS),
            ("outputs", Direction.OUTPUT, Statement.OUTPUTS),
        ):
            for item in items(event.get(key)):
                if (dataset := identity(item)) is not None and self._has_room():
                    self.changes.add_job_dataset(id, dataset, direction, at)
                    self.changes.add_statement(0, id, statement, at, uuid)
                    self._dataset(item, dataset, at, id, uuid, direction)
        self._job_facets(id, mapping(event["job"].get("facets")), at, uuid)
        return id

    def _has_room(self) -> bool:
        """Whether the event may name another dataset; counts it."""
        if self._datasets >= MAX_DATASETS:
            self._of_event["datasets"] += 1
            return False
        self._datasets += 1
        return True

    def _takes(self, size: int) -> bool:
        """Whether the event may have another facet of this size that becomes rows; counts it."""
        if self._facet_bytes + size > MAX_FACET_BYTES:
            self._of_event["facets"] += 1
            return False
        self._facet_bytes += size
        return True

    def _first_facets(self, facets: dict[str, Any]) -> Iterable[tuple[str, Any]]:
        if len(facets) > MAX_FACETS:
            self._of_event["facets"] += len(facets) - MAX_FACETS
        return islice(facets.items(), MAX_FACETS)

    # --- jobs and runs -------------------------------------------------------------------------------

    def _job_facets(self, job: int, facets: dict[str, Any], at: int, uuid: str) -> None:
        self._facets(job, 0, facets, at)
        lineage = mapping(facets.get("lineage"))
        if lineage and not self._takes(_size(lineage)):
            return
        for entry in facet_parsers.lineage_entries(lineage):
            if not self._has_room():
                continue
            if entry.get("type") == "JOB":
                other = identity(entry)
                reader = self.changes.add_job(other, at) if other is not None else job
                for source in items(entry.get("inputs")):
                    if source.get("type") == "JOB" or (dataset := identity(source)) is None:
                        continue
                    if self._has_room():
                        self.changes.add_job_dataset(reader, dataset, Direction.INPUT, at)
            elif (dataset := identity(entry)) is not None:
                self.changes.add_job_dataset(job, dataset, Direction.OUTPUT, at)
                self._lineage_facet(dataset, entry, at, job, uuid)

    def _run(self, uuid: str, run: dict[str, Any], job: int, at: int, kind: object) -> None:
        state = State.__members__.get(kind, State.OTHER) if isinstance(kind, str) else State.OTHER
        facets = mapping(run.get("facets"))
        for key, facet in self._first_facets(facets):
            if isinstance(facet, dict):
                self.changes.add_run_facet(uuid, text(key), facet, at)
        self.changes.add_run(uuid, job, at, state, self._parent(mapping(facets.get("parent")), at))

    def _parent(self, facet: dict[str, Any], at: int) -> tuple[int, str, int, str, int]:
        parent_run = text(mapping(facet.get("run")).get("runId")).lower()
        if not parent_run:
            return NO_PARENT
        root = mapping(facet.get("root"))
        root_run = text(mapping(root.get("run")).get("runId")).lower()
        return at, parent_run, self._job_of(facet, at), root_run, self._job_of(root, at)

    def _job_of(self, parent: dict[str, Any], at: int) -> int:
        job = identity(parent.get("job"))
        return self.changes.add_job(job, at) if job is not None else NO_JOB_ID

    # --- datasets ------------------------------------------------------------------------------------

    def _dataset(
        self,
        item: dict[str, Any],
        dataset: tuple[str, str],
        at: int,
        job: int,
        uuid: str,
        direction: Direction,
    ) -> None:
        name = self.changes.add_dataset(dataset, at, at)
        facets = mapping(item.get("facets"))
        extra = mapping(item.get("inputFacets" if direction is Direction.INPUT else "outputFacets"))
        self._facets(name, 0, facets, at)
        self._facets(name, direction, extra, at)
        if isinstance(schema := facets.get("schema"), dict):
            self._schema_facet(name, schema, at, direction)
        if isinstance(columns := facets.get("columnLineage"), dict):
            self._column_lineage_facet(name, columns, at, job, uuid)
        if isinstance(lineage := facets.get("lineage"), dict) and self._takes(_size(lineage)):
            self._lineage_facet(dataset, lineage, at, job, uuid)
        if isinstance(symlinks := facets.get("symlinks"), dict):
            aliases = list(items(symlinks.get("identifiers"))) if symlinks.get("_deleted") is not True else []
            if len(aliases) > MAX_ALIASES:
                self._of_event["aliases"] += len(aliases) - MAX_ALIASES
            others = [other for alias in aliases[:MAX_ALIASES] if (other := identity(alias)) is not None]
            targets = [self.changes.add_dataset(other, at, at) for other in others]
            self.changes.add_links(name, self._producer, targets, at)
        if uuid:
            statistics = facet_parsers.statistics(facets, extra)
            self.changes.add_run_dataset(uuid, direction, name, at, statistics)

    def _schema_facet(self, name: int, facet: dict[str, Any], at: int, direction: Direction) -> None:
        if (hash := self._facet_hash(facet)) is not None:
            parsed = self._cache.schemas.get(hash)
            content = facet if parsed is None else parsed
            recorded = _record_facet(self._schema_facets, (name, hash), at, content)
            if direction is Direction.OUTPUT:
                recorded.written_at = max(recorded.written_at, at)

    def _column_lineage_facet(self, name: int, facet: dict[str, Any], at: int, job: int, uuid: str) -> None:
        self.changes.add_statement(name, job, Statement.COLUMNS, at, uuid)
        if (hash := self._facet_hash(facet)) is not None:
            key = (name, job, hash)
            parsed = self._cache.edges.get(key)
            _record_facet(self._column_facets, key, at, facet if parsed is None else parsed)
        # an empty rest is recorded too: it deletes the rest of an earlier facet
        rest = {key: value for key, value in facet.items() if key not in _KEPT_AS_ROWS}
        self.changes.add_facet(name, UNRESOLVED, "columnLineage", rest or {"_deleted": True}, at)

    def _lineage_facet(
        self, dataset: tuple[str, str], entry: dict[str, Any], at: int, job: int, uuid: str
    ) -> None:
        changes = self.changes
        name = changes.add_dataset(dataset, at, at)
        changes.add_statement(name, job, Statement.LINEAGE, at, uuid)
        if entry.get("fields"):
            changes.add_statement(name, job, Statement.COLUMNS, at, uuid)
        edges = facet_parsers.lineage(entry)
        for edge in islice(edges, facet_parsers.MAX_EDGES):
            if isinstance(edge, facet_parsers.WritesEdge):
                if edge.job is not None:
                    changes.add_job_dataset(changes.add_job(edge.job, at), dataset, Direction.OUTPUT, at)
                continue
            if job != NO_JOB_ID:
                changes.add_job_dataset(job, edge.source, Direction.INPUT, at)
            else:
                changes.add_dataset(edge.source, at, at)
            changes.add_edge(changes.edge_key(name, edge, job), edge.description, at, at)
        if omitted := sum(1 for _ in edges):
            self._of_event["edges"] += omitted

    def _facets(self, owner: int, container: int, facets: dict[str, Any], at: int) -> None:
        for key, facet in self._first_facets(facets):
            if key not in _STRUCTURED_FACETS and isinstance(facet, dict):
                self.changes.add_facet(owner, container, text(key), facet, at)

    def _facet_hash(self, facet: dict[str, Any]) -> bytes | None:
        """A digest that recognizes a repeated facet; None where it is left out."""
        try:
            encoded = orjson.dumps(facet)
        except orjson.JSONEncodeError:  # nested too deeply to be valid
            return None
        return blake2b(encoded, digest_size=16).digest() if self._takes(len(encoded)) else None

    # --- repeated facets -----------------------------------------------------------------------------

    def finish(self) -> None:
        """Parse the recorded facets; call it once, after the last event."""
        for (name, hash), facet in self._schema_facets.items():
            self._finish_schema(name, hash, facet)
        for key, facet in self._column_facets.items():
            first, last = facet.first_at, facet.last_at
            is_new = isinstance(facet.content, dict)
            parsed = self._finish_columns(key, first, last, facet.content) if is_new else facet.content
            for source in {source for _, source, _ in parsed.edges}:
                self.changes.mentions.add((source,), first, last)
                # A source that only this facet names is an input all the same, in every answer.
                if key[1] != NO_JOB_ID and source != key[0]:
                    self.changes.job_datasets.add((key[1], Direction.INPUT, source), first, last)
            for edge, _, description in parsed.edges:
                self.changes.add_edge(edge, description, first, last)
            if parsed.omitted:
                self.left_out["edges"] += parsed.omitted
                self._note(key[0], UNRESOLVED, LEFT_OUT + "Edges", last, {"edges": parsed.omitted})

    def _finish_schema(self, name: int, hash: bytes, facet: RepeatedFacet) -> None:
        schema = facet.content
        if isinstance(schema, dict):
            fields, omitted = facet_parsers.schema_fields(schema)
            schema = (*facet_parsers.pack(fields), omitted)
            self._cache.keep_schema(hash, schema)
        id, packed, omitted = schema
        if omitted:
            self.left_out["fields"] += omitted
            self._note(name, UNRESOLVED, LEFT_OUT + "Fields", facet.last_at, {"fields": omitted})
        self.changes.schemas[id] = packed
        if (name, id) not in self._cache.schema_versions:
            for field in facet_parsers.unpack(packed):
                self.changes.add_column(name, field.name)
            self._cache.schema_versions.add((name, id))
        self.changes.schema_versions.add((name, id), facet.first_at, facet.last_at, facet.written_at)

    def _finish_columns(
        self, key: tuple[int, int, bytes], first: int, last: int, facet: dict[str, Any]
    ) -> ParsedEdges:
        name, job, _ = key
        edges = []
        found = facet_parsers.column_lineage(facet)
        for edge in islice(found, facet_parsers.MAX_EDGES):
            source = self.changes.add_dataset(edge.source, first, last)
            edges.append((self.changes.edge_key(name, edge, job), source, edge.description))
        parsed = ParsedEdges(edges, sum(1 for _ in found))
        self._cache.keep_edges(key, parsed)
        return parsed


def _size(facet: dict[str, Any]) -> int:
    try:
        return len(orjson.dumps(facet))
    except orjson.JSONEncodeError:
        return MAX_FACET_BYTES + 1  # nested too deeply to be valid


def _record_facet(table: dict[K, RepeatedFacet], key: K, at: int, content: Any) -> RepeatedFacet:
    if (recorded := table.get(key)) is None:
        recorded = table[key] = RepeatedFacet(at, at, content)
    else:
        recorded.first_at = min(recorded.first_at, at)
        recorded.last_at = max(recorded.last_at, at)
    return recorded

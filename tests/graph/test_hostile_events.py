"""Compliant events with hostile content: nothing raises, order does not matter, limits hold (G6, G8)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.clock import ManualClock
from headwater.graph.http.endpoints import ENDPOINTS
from headwater.graph.ingest import event_parser, facet_parsers
from headwater.graph.ingest.event_parser import LEFT_OUT, MAX_DATASETS, MAX_FACETS
from headwater.graph.ingest.follower import LogFollower
from headwater.graph.ingest.untrusted_json import micros
from headwater.graph.marquez.endpoints import ENDPOINTS as MARQUEZ
from headwater.graph.query.query import GraphQuery
from headwater.graph.store.database import GraphDatabase
from headwater.graph.store.schema import MAX_ALIASES
from headwater.log.queue.log import Log
from headwater.metrics import Metrics
from headwater.page.lineage_graph.request import GraphRequest
from headwater.page.lineage_graph.trace_tree import trace_tree
from headwater.page.views.lineage import drawing_of
from tests.gateway.openlineage_corpus import KINDS, resolved
from tests.graph.events import column_lineage, content, dataset, encoded, facet, run_event, source, symlinks
from tests.graph.test_follower import until

NOW = 1_767_225_600.0  # 2026-01-01
# Few, so that events meet; with the separators of everything that is made from names.
TEXTS = st.sampled_from(
    [
        *(
            "a",
            "b",
            "a.b",
            "a/b",
            "/",
            "",
            ":",
            "a:b",
            "\x00",
            "\u202e",
            "ünï😀",
            "'; --",
            '"',
            "%_",
            "x" * 3_000,
        ),
        *("namespace:a", "a\nb", "\x1b[31m", "<b>", "1", "headwaterLeftOut", "schema", "symlinks"),
    ]
)
TIMES = st.sampled_from(
    [
        *("2026-01-01T00:00:00Z", "2025-12-31T23:59:60Z", "2025-12-31t23:00:00.123456789+02:00"),
        *(
            "9999-12-31T23:59:59Z",
            "0001-01-01T00:00:00+14:00",
            "1970-01-01T00:00:00Z",
            "2026-01-02T00:00:00Z",
        ),
        *("2026-01-03T00:00:01Z", "2025-06-01T00:00:00-23:59", "2025-06-01T12:00:00.5Z", ":60" * 2_000),
    ]
)
LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXTS,
    "boolean": st.booleans(),
    "integer": st.sampled_from([0, 1, -1, 2**63, 2**64 - 1, 7]),
    "number": st.sampled_from([0, -1, 1.5, 1e308, 2**53]),
    "uuid": st.sampled_from([f"00000000-0000-0000-0000-00000000000{n}" for n in range(4)]),
    "uri": st.sampled_from(["https://example.com/x", "urn:a:b", "file"]),
    "date-time": TIMES,
}
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXTS,
    lambda inner: st.lists(inner | st.just("\ud800"), max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=5,
)


def values(schema: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """The values that the schema, derived from OpenLineage's classes, allows."""
    schema = resolved(schema)
    if "allOf" in schema:
        branches = [choice["then"] for choice in schema["allOf"]]
        return st.one_of([values(branch, depth + 1) for branch in branches]) if depth < 14 else st.nothing()
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    if schema["type"] == "array":
        if depth > 12:
            return st.just([])
        return st.lists(st.deferred(lambda: values(schema["items"], depth + 1)), max_size=3)
    if schema["type"] != "object":
        return LEAVES[schema.get("format", schema["type"])]
    properties, required = schema.get("properties", {}), schema.get("required", ())
    fields = {key: _field(inner, depth) for key, inner in properties.items()}
    optional = {key: field for key, field in fields.items() if key not in required and depth <= 10}
    known = st.fixed_dictionaries({key: fields[key] for key in required if key in fields}, optional=optional)
    more = schema.get("additionalProperties")
    if more is False or depth > 10:
        return known
    others = st.dictionaries(TEXTS, _field(more, depth) if more else ANY, max_size=2)
    return st.builds(lambda mine, other: other | mine, known, others)


def _field(schema: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    return st.deferred(lambda: values(schema, depth + 1))


EVENTS = st.one_of([values({"$ref": f"#/$defs/{kind}"}) for kind in KINDS.values()])


def body_of(event: Any) -> bytes:
    return json.dumps(event).encode()  # also with lone surrogates, as escapes


def graph_at(folder: Path, batches: list[list[bytes]]) -> dict[str, Any]:
    graph = GraphDatabase(folder, clock=ManualClock(NOW), durable=False)
    for batch in batches:
        graph.ingest(batch)
    graph.close()
    return content(folder)


def ask_everything(query: GraphQuery) -> None:
    """Each query about each node, as page and API ask; no error is expected, and no budget used up."""
    query.summary()
    for found in (query.search(""), query.search("a", limit=5), query.search("%"), query.search("'; --")):
        msgspec.json.encode(found)
    for node in query.search("", limit=40):
        if node.kind == "dataset":
            details = query.dataset(node.namespace, node.name)
            msgspec.json.encode(details)
            query.neighbourhood(node.namespace, node.name, columns=True, depth=3)
            request = GraphRequest(node.namespace, node.name, depth=3, opened=("all",))
            for column in details.columns[:3]:
                trace_tree(query.trace(node.namespace, node.name, column.name))
                query.impact(node.namespace, node.name, column.name)
                name = (node.namespace, node.name)
                drawing_of(query, request._replace(column=column.name, of=name))
            drawing_of(query, request)
            drawing_of(query, request._replace(jobs=True, group=True, opened=()))
            msgspec.json.encode(query.impact(node.namespace, node.name))
            query.statistics(node.namespace, node.name)
        else:
            msgspec.json.encode(query.job(node.namespace, node.name))
            drawing_of(query, GraphRequest(node.namespace, node.name, kind="job"))
    for run in query.runs():
        msgspec.json.encode(query.run(run.id))
    for endpoint, function in (*ENDPOINTS, *MARQUEZ):
        if endpoint.path in ("/api/v1/namespaces", "/api/v1/jobs"):
            msgspec.json.encode(function(query))


def check(events: list[Any], random: Any) -> None:
    bodies = [body_of(event) for event in events]
    others = bodies + bodies[:2]
    random.shuffle(others)
    cut = random.randrange(len(others) + 1)
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        assert graph_at(Path(first), [bodies]) == graph_at(Path(second), [others[:cut], others[cut:]])
        with GraphQuery(Path(first)) as query:
            ask_everything(query)


any_events = given(st.lists(EVENTS, min_size=1, max_size=4), st.randoms(use_true_random=False))
slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@any_events
@settings(max_examples=25, deadline=None, suppress_health_check=slow)
def test_nothing_raises_and_order_does_not_matter_when_compliant_events_are_hostile(
    events: list[Any], random: Any
) -> None:
    check(events, random)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@any_events
@settings(max_examples=1_000, deadline=None, suppress_health_check=slow)
def test_nothing_raises_and_order_does_not_matter_when_thousands_of_compliant_events_are_hostile(
    events: list[Any], random: Any
) -> None:
    check(events, random)


@given(st.binary(max_size=200) | ANY.map(body_of))
@settings(max_examples=100, deadline=None)
def test_a_body_is_skipped_when_it_is_anything(body: bytes) -> None:
    parser = event_parser.EventParser(1_000, event_parser.FacetCache())
    parser.parse(body, NOW)
    parser.finish()


def test_the_follower_goes_on_when_events_are_hostile(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    metrics = Metrics()
    follower = LogFollower(log, GraphDatabase(tmp_path / "graph"), metrics, pause_seconds=0.01)
    follower.start()
    hostile = [
        b'{"eventTime": "' + b":60" * 5_000 + b'", "job": {"namespace": "a", "name": "b"}}',
        b"[" * 5_000,
        b'{"eventTime": "9999-12-31T23:59:59Z", "job": {"namespace": "a", "name": "b"}}',
        b'{"eventTime": "2026-01-01T00:00:00Z", "job": {"namespace": "\\ud800", "name": "b"}}',
    ]
    log.append_wait([*hostile, *encoded([run_event(job="last")])])
    until(lambda: follower.lag_events == 0)
    assert follower.stalled_reason() == ""
    follower.close()
    log.close()
    assert metrics.counter("graph_events_mistimed").values[()] == 1
    with GraphQuery(tmp_path / "graph") as query:
        assert query.job("jobs", "last").name == "last"


@pytest.mark.parametrize("text", [":60" * 100_000, "2026-13-01T00:00:60Z", "", "60"])
def test_a_text_is_no_time_when_it_only_resembles_one(text: str) -> None:
    assert micros(text) is None


# --- times far from the receipt ---------------------------------------------------------------------------


@pytest.mark.parametrize("far", ["9999-12-31T23:59:59Z", "2026-01-02T00:00:01Z", "0001-01-01T00:00:00Z"])
def test_the_time_of_receipt_counts_when_an_event_is_dated_far_away(tmp_path: Path, far: str) -> None:
    clock = ManualClock(NOW)
    graph = GraphDatabase(tmp_path, clock=clock)
    fields = facet(fields=[{"name": "old", "type": "int"}])
    pinned = run_event("FAIL", run=1, outputs=[dataset("t", schema=fields)]) | {"eventTime": far}
    result = graph.ingest(encoded([pinned]))
    assert (result.invalid, result.mistimed) == (0, 1)
    clock.advance(60)
    fields = facet(fields=[{"name": "new", "type": "int"}])
    later = run_event("COMPLETE", run=1, outputs=[dataset("t", schema=fields)])
    assert graph.ingest(encoded([later | {"eventTime": "2026-01-01T00:00:30Z"}])).mistimed == 0
    graph.close()
    with GraphQuery(tmp_path) as query:
        assert [column.name for column in query.dataset("db", "t").columns] == ["new"]
        found = query.dataset("db", "t")
        assert (found.first_at, found.last_at) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:30Z")
        assert query.runs()[0].state == "COMPLETE"


@pytest.mark.parametrize("near", ["2026-01-02T00:00:00Z", "2000-01-01T00:00:00Z", "2019-05-05T00:00:00Z"])
def test_the_time_of_the_event_counts_when_it_is_possible(tmp_path: Path, near: str) -> None:
    graph = GraphDatabase(tmp_path, clock=ManualClock(NOW))
    assert graph.ingest(encoded([run_event() | {"eventTime": near}])).mistimed == 0
    graph.close()
    with GraphQuery(tmp_path) as query:
        assert query.job("jobs", "job").last_at == near


# --- limits of one event ----------------------------------------------------------------------------------


def many(count: int, make: Callable[[int], Any]) -> list[Any]:
    return [make(number) for number in range(count)]


def left_out(folder: Path, event: Any) -> tuple[dict[str, int], dict[str, Any]]:
    """What one event was left without: by the result, and by the facet of its job or dataset."""
    graph = GraphDatabase(folder, clock=ManualClock(NOW), durable=False)
    result = graph.ingest(encoded([event]))
    graph.close()
    assert result.invalid == 0
    noted: dict[str, Any] = {}
    with GraphQuery(folder) as query:
        noted |= query.job("jobs", "job").facets
        for node in query.search("", kinds=("dataset",), limit=2):
            found = query.dataset(node.namespace, node.name)
            noted |= found.remarks | found.facets
    facets = {key: orjson.loads(bytes(value)) for key, value in noted.items() if key.startswith(LEFT_OUT)}
    for value in facets.values():
        assert value.pop("eventTime") == "2026-01-01T00:00:00Z"
    return dict(result.left_out), facets


def test_the_rest_of_the_inputs_is_counted_when_an_event_has_100_000(tmp_path: Path) -> None:
    event = run_event(inputs=many(MAX_DATASETS + 5_000, lambda n: {"namespace": "db", "name": f"t{n}"}))
    assert left_out(tmp_path, event) == ({"datasets": 5_000}, {LEFT_OUT: {"datasets": 5_000}})
    assert len(content(tmp_path)["dataset_names"]) == MAX_DATASETS


def test_the_rest_of_the_columns_is_counted_when_a_dataset_has_100_000(tmp_path: Path) -> None:
    fields = many(100_000, lambda n: {"name": f"c{n}"})
    event = run_event(outputs=[dataset("t", schema=facet(fields=fields))])
    omitted = {"fields": 100_000 - facet_parsers.MAX_FIELDS}
    assert left_out(tmp_path, event) == (omitted, {LEFT_OUT + "Fields": omitted})
    assert len(content(tmp_path)["columns"]) == facet_parsers.MAX_FIELDS


def test_the_rest_of_the_edges_is_counted_when_a_facet_has_too_many(tmp_path: Path) -> None:
    sources = many(facet_parsers.MAX_EDGES + 1_000, lambda n: source("s", f"c{n}", description=""))
    slim = [{key: value for key, value in each.items() if key != "transformations"} for each in sources]
    event = run_event(outputs=[dataset("t", columnLineage=column_lineage(x=slim))])
    assert left_out(tmp_path, event) == ({"edges": 1_000}, {LEFT_OUT + "Edges": {"edges": 1_000}})
    assert len(content(tmp_path)["edges"]) == facet_parsers.MAX_EDGES


def test_the_rest_of_the_aliases_is_counted_when_a_facet_has_100_000(tmp_path: Path) -> None:
    aliases = symlinks(*(("db", f"t{n}") for n in range(100_000)))
    event = run_event(inputs=[dataset("t", symlinks=aliases)])
    omitted = {"aliases": 100_000 - MAX_ALIASES}
    assert left_out(tmp_path, event) == (omitted, {LEFT_OUT: omitted})
    assert len(content(tmp_path)["dataset_names"]) == MAX_ALIASES + 1


def test_the_rest_of_the_facets_is_counted_when_there_are_too_many_or_they_are_too_large(
    tmp_path: Path,
) -> None:
    event = run_event(job_facets={f"f{n}": facet(n=n) for n in range(5_000)})
    omitted = {"facets": 5_000 - MAX_FACETS}
    assert left_out(tmp_path / "many", event) == (omitted, {LEFT_OUT: omitted})
    schema = facet(fields=many(9_000, lambda n: {"name": f"column {n} {'x' * 40}"}))
    event = run_event(outputs=[dataset(f"t{n}", schema=schema | {"n": n}) for n in range(20)])
    counts, _ = left_out(tmp_path / "large", event)
    assert 0 < counts["facets"] < 20

"""The queries of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.graph.query.answers import Neighbourhood, Trace
from headwater.graph.query.names import NotFound
from headwater.graph.query.query import GraphQuery, QueryTimeout
from tests.graph.events import (
    column_lineage,
    dataset,
    dataset_event,
    facet,
    flow,
    graph_of,
    run_event,
    run_id,
    schema,
    source,
    symlinks,
)
from tests.graph.shop import shop


@pytest.fixture(scope="module")
def query(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphQuery]:
    with graph_of(tmp_path_factory.mktemp("shop"), shop()) as query:
        yield query


def datasets(found: Neighbourhood | Trace) -> dict[str, int]:
    return {node.name: node.distance for node in found.datasets}


def named(found: Neighbourhood | Trace) -> dict[str, str]:
    return {node.key: node.name for node in found.datasets} | {node.key: node.name for node in found.jobs}


def arrows(found: Neighbourhood) -> set[tuple[str, str]]:
    names = named(found)
    return {(names[edge.source], names[edge.target]) for edge in found.edges}


def column_arrows(found: Trace | Neighbourhood) -> set[tuple[str, str]]:
    names = {node.key: node.name for node in found.datasets}
    return {
        (f"{names[edge.source]}.{edge.source_column}", f"{names[edge.target]}.{edge.target_column}")
        for edge in found.column_edges
    }


def test_the_neighbourhood_has_both_sides_when_asked_for_a_dataset(query: GraphQuery) -> None:
    found = query.neighbourhood("db", "orders", depth=1)
    assert datasets(found) == {"orders": 0, "events": -1, "daily": 1}
    assert arrows(found) == {
        ("events", "load"),
        ("load", "orders"),
        ("orders", "report"),
        ("report", "daily"),
    }
    assert not found.truncated


def test_depth_and_direction_bound_the_walk_when_given(query: GraphQuery) -> None:
    assert datasets(query.neighbourhood("db", "orders", direction="down", depth=5)) == {
        "orders": 0,
        "daily": 1,
        "letters": 2,
    }
    assert datasets(query.neighbourhood("db", "daily", direction="up", depth=1)) == {
        "daily": 0,
        "orders": -1,
        "calendar": -1,
    }
    assert datasets(query.neighbourhood("db", "daily", depth=0)) == {"daily": 0}


def test_columns_and_their_edges_are_returned_when_requested(query: GraphQuery) -> None:
    found = query.neighbourhood("db", "orders", depth=1, columns=True)
    columns = {node.name: [(column.name, column.type) for column in node.columns] for node in found.datasets}
    assert columns["orders"] == [("id", "bigint"), ("price", "double"), ("email", "string")]
    assert columns["events"] == [("amount", ""), ("id", ""), ("mail", "")]
    assert ("events.amount", "orders.price") in column_arrows(found)
    assert ("orders.id", "daily.None") in column_arrows(found)
    masked = [edge for edge in found.column_edges if edge.masking]
    assert [(edge.source_column, edge.target_column) for edge in masked] == [("mail", "email")]


def test_a_job_can_be_the_middle_when_asked_for(query: GraphQuery) -> None:
    found = query.neighbourhood("jobs", "report", kind="job", depth=1)
    assert datasets(found) == {"orders": -1, "calendar": -1, "daily": 1}
    assert [job.name for job in found.jobs] == ["report"]


def test_the_walk_stops_and_says_so_when_the_limit_is_reached(tmp_path: Path) -> None:
    with graph_of(tmp_path, [flow("wide", [f"in{i}" for i in range(50)], ["out"])]) as query:
        found = query.neighbourhood("db", "out", limit=10)
        assert len(found.datasets) == 10
        assert found.truncated


def test_the_walk_ends_when_datasets_feed_each_other(tmp_path: Path) -> None:
    with graph_of(tmp_path, [flow("there", ["a"], ["b"]), flow("back", ["b"], ["a"])]) as query:
        assert datasets(query.neighbourhood("db", "a", depth=50)) == {"a": 0, "b": -1}


def test_only_listed_sources_are_upstream_when_a_job_has_a_lineage_facet(tmp_path: Path) -> None:
    def entry(target: str, origin: str) -> dict[str, Any]:
        inputs = [{"namespace": "db", "name": origin, "type": "DATASET"}]
        return {"namespace": "db", "name": target, "type": "DATASET", "inputs": inputs}

    event = run_event(
        inputs=["a", "b"],
        outputs=["x", "y"],
        job_facets={"lineage": facet(entries=[entry("x", "a"), entry("y", "b")])},
    )
    with graph_of(tmp_path, [event]) as query:
        assert datasets(query.neighbourhood("db", "x", direction="up")) == {"x": 0, "a": -1}
        assert datasets(query.neighbourhood("db", "b", direction="down")) == {"b": 0, "y": 1}


def test_datasets_have_an_edge_without_a_job_when_a_dataset_event_reports_it(tmp_path: Path) -> None:
    reported = facet(inputs=[{"namespace": "db", "name": "a", "type": "DATASET", "field": "f"}], fields={})
    with graph_of(tmp_path, [dataset_event(dataset("b", lineage=reported))]) as query:
        found = query.neighbourhood("db", "b", columns=True)
        assert arrows(found) == {("a", "b")}
        assert datasets(query.neighbourhood("db", "a")) == {"a": 0, "b": 1}
        assert column_arrows(found) == {("a.f", "b.None")}


def test_an_edge_is_not_current_when_the_latest_run_did_not_report_it(tmp_path: Path) -> None:
    old = dataset("out", columnLineage=column_lineage(x=[source("a", "f"), source("b", "g")]))
    new = dataset("out", columnLineage=column_lineage(x=[source("a", "f")]))
    events = [flow("j", ["a", "b"], [old], minute=1), flow("j", ["a"], [new], minute=5)]
    with graph_of(tmp_path, events) as query:
        found = query.neighbourhood("db", "out", columns=True)
        keys = {node.name: node.key for node in found.datasets}
        assert {edge.source: edge.current for edge in found.edges if edge.source.startswith("d")} == {
            keys["a"]: True,
            keys["b"]: False,
        }
        assert {edge.source: edge.current for edge in found.column_edges} == {
            keys["a"]: True,
            keys["b"]: False,
        }


def test_edges_of_start_are_current_when_complete_does_not_repeat_them(tmp_path: Path) -> None:
    reported = dataset("out", columnLineage=column_lineage(x=[source("a", "f")]))
    events = [
        run_event("START", minute=1, inputs=["a"], outputs=[reported]),
        run_event("COMPLETE", minute=2, outputs=["out"]),
    ]
    with graph_of(tmp_path, events) as query:
        found = query.neighbourhood("db", "out", columns=True)
        assert all(edge.current for edge in found.edges)
        assert [edge.current for edge in found.column_edges] == [True]


# --- columns -----------------------------------------------------------------------------------------


def test_a_column_is_traced_to_its_json_field_when_asked_for_upstream(query: GraphQuery) -> None:
    found = query.trace("db", "daily", "total", direction="up")
    assert column_arrows(found) == {
        ("orders.price", "daily.total"),
        ("events.amount", "orders.price"),
        ("orders.id", "daily.None"),
        ("events.id", "orders.id"),
    }
    assert {(node.column, node.distance) for node in found.columns} >= {
        ("total", 0),
        ("price", -1),
        ("amount", -2),
    }


def test_only_values_are_followed_when_indirect_is_off(query: GraphQuery) -> None:
    found = query.trace("db", "daily", "total", direction="up", indirect=False)
    assert column_arrows(found) == {("orders.price", "daily.total"), ("events.amount", "orders.price")}


def test_a_filter_reaches_the_whole_dataset_when_traced_downstream(query: GraphQuery) -> None:
    found = query.trace("db", "events", "id", direction="down")
    assert column_arrows(found) == {("events.id", "orders.id"), ("orders.id", "daily.None")}


def test_a_gap_is_listed_when_a_job_has_no_column_lineage(query: GraphQuery) -> None:
    found = query.trace("db", "orders", "price", direction="down")
    names = named(found)
    assert [(names[gap.job], names[gap.source], names[gap.target]) for gap in found.gaps] == [
        ("mail", "daily", "letters")
    ]


def test_nested_columns_are_traced_when_one_job_reports_the_parts_and_another_the_whole(
    tmp_path: Path,
) -> None:
    in_text = source("raw", "body") | {"jsonPointer": "/customer/city"}
    events = [
        flow(
            "copy", ["topic"], [dataset("raw", columnLineage=column_lineage(body=[source("topic", "value")]))]
        ),
        flow(
            "load",
            ["raw"],
            [
                dataset(
                    "orders",
                    columnLineage=column_lineage(city=[in_text], **{"who.id": [source("raw", "id")]}),
                )
            ],
        ),
        flow(
            "report",
            ["orders"],
            [dataset("daily", columnLineage=column_lineage(who=[source("orders", "who")]))],
        ),
    ]
    with graph_of(tmp_path, events) as query:
        assert column_arrows(query.trace("db", "orders", "city", direction="up")) == {
            ("raw.body/customer/city", "orders.city"),
            ("topic.value", "raw.body"),
        }
        assert column_arrows(query.trace("db", "daily", "who", direction="up")) == {
            ("orders.who", "daily.who"),
            ("raw.id", "orders.who.id"),
        }
        reached = query.impact("db", "raw", "body/customer/city").datasets
        assert [(each.name, each.columns) for each in reached] == [("orders", ["city"])]
        assert [each.name for each in query.impact("db", "topic", "value").datasets] == ["raw", "orders"]
        # of another place in the same text nothing is made
        assert column_arrows(query.trace("db", "raw", "body", direction="down")) == {
            ("raw.body/customer/city", "orders.city")
        }


def test_a_trace_ends_when_columns_feed_each_other(tmp_path: Path) -> None:
    a = dataset("a", columnLineage=column_lineage(x=[source("b", "y")]))
    b = dataset("b", columnLineage=column_lineage(y=[source("a", "x")]))
    with graph_of(tmp_path, [flow("j", ["b"], [a]), flow("k", ["a"], [b])]) as query:
        assert column_arrows(query.trace("db", "a", "x", depth=50)) == {("a.x", "b.y"), ("b.y", "a.x")}


def test_impact_lists_datasets_by_distance_with_their_columns_when_a_column_changes(
    query: GraphQuery,
) -> None:
    found = query.impact("db", "events", "amount")
    assert [(each.name, each.distance, each.columns) for each in found.datasets] == [
        ("orders", 1, ["price"]),
        ("daily", 2, ["total"]),
        ("letters", 3, None),
    ]
    whole = query.impact("db", "events")
    assert [(each.name, each.distance) for each in whole.datasets] == [
        ("orders", 1),
        ("daily", 2),
        ("letters", 3),
    ]
    assert {job.name for job in whole.jobs} == {"load", "report", "mail"}


# --- one thing ---------------------------------------------------------------------------------------


def test_a_dataset_has_schema_jobs_and_statistics_when_requested(query: GraphQuery) -> None:
    found = query.dataset("db", "orders")
    assert [column.name for column in found.columns] == ["id", "price", "email"]
    assert [job.name for job in found.writers] == ["load"]
    assert [job.name for job in found.readers] == ["report"]
    (written,) = [each for each in found.statistics if each.direction == "output"]
    assert (written.rows, written.bytes, written.files, written.state) == (10, 1000, 2, "COMPLETE")


def test_schema_changes_are_listed_when_a_schema_changed(tmp_path: Path) -> None:
    events = [
        flow("j", [], [dataset("t", schema=schema(a="int", b="int"))], minute=1),
        flow("j", [], [dataset("t", schema=schema(a="bigint", c="text"))], minute=9),
    ]
    with graph_of(tmp_path, events) as query:
        new, old = query.dataset("db", "t").versions
        assert (new.is_current, old.is_current) == (True, False)
        assert [(each.kind, each.field, each.before, each.after) for each in new.changes] == [
            ("removed", "b", "int", ""),
            ("retyped", "a", "int", "bigint"),
            ("added", "c", "", "text"),
        ]


def test_nested_fields_are_columns_when_a_schema_has_them(tmp_path: Path) -> None:
    inner = [{"name": "city", "type": "text"}]
    reported = facet(
        fields=[{"name": "address", "type": "struct", "fields": inner}, {"name": "id", "type": "int"}]
    )
    with graph_of(tmp_path, [dataset_event(dataset("t", schema=reported))]) as query:
        assert [column.name for column in query.dataset("db", "t").columns] == [
            "address",
            "address.city",
            "id",
        ]


def test_a_writers_schema_counts_when_a_reader_sees_less(tmp_path: Path) -> None:
    events = [
        flow("w", [], [dataset("t", schema=schema(a="int", b="int"))], minute=1),
        flow("r", [dataset("t", schema=schema(a="int"))], [], minute=9),
    ]
    with graph_of(tmp_path, events) as query:
        assert [column.name for column in query.dataset("db", "t").columns] == ["a", "b"]


def test_a_run_has_timing_error_and_parent_when_requested(tmp_path: Path) -> None:
    parent = facet(run={"runId": run_id(9)}, job={"namespace": "jobs", "name": "dag"})
    error = facet(message="out of memory\nat …", programmingLanguage="python")
    nominal = facet(nominalStartTime="2026-01-01T00:00:00Z")
    events = [
        run_event("FAIL", minute=3, run_facets={"errorMessage": error}, outputs=["t"]),
        run_event("START", minute=1, run_facets={"parent": parent, "nominalTime": nominal}, inputs=["s"]),
        run_event("START", minute=0, run=9, job="dag"),
    ]
    with graph_of(tmp_path, events) as query:
        found = query.run(run_id(1).upper())
        assert (found.run.state, found.run.seconds, found.run.parent) == ("FAIL", 120.0, run_id(9))
        assert found.run.error.startswith("out of memory")
        assert found.run.nominal_start_at == "2026-01-01T00:00:00Z"
        assert found.parent_job is not None
        assert found.parent_job.name == "dag"
        assert [each.dataset.name for each in found.inputs + found.outputs] == ["s", "t"]
        assert set(found.facets) == {"errorMessage", "parent", "nominalTime"}
        assert [child.id for child in query.run(run_id(9)).children] == [run_id(1)]
        assert query.run(run_id(9)).run.state == "RUNNING"
        assert query.job("jobs", "job").parent is not None


def test_runs_are_listed_newest_first_when_a_job_has_several(tmp_path: Path) -> None:
    events = [run_event(minute=minute, run=minute) for minute in (3, 1, 2)]
    with graph_of(tmp_path, [*events, run_event(minute=9, run=9, job="other")]) as query:
        assert [run.id for run in query.runs("jobs", "job")] == [run_id(3), run_id(2), run_id(1)]
        assert [run.id for run in query.runs("jobs", "job", limit=1, offset=1)] == [run_id(2)]
        assert len(query.runs()) == 4


def test_a_facet_is_gone_when_it_was_deleted_later(tmp_path: Path) -> None:
    def reported(minute: int, **content: Any) -> dict[str, Any]:
        return dataset_event(dataset("t", documentation=facet(**content)), minute)

    with graph_of(tmp_path, [reported(5, _deleted=True), reported(1, description="old")]) as query:
        assert "documentation" not in query.dataset("db", "t").facets
    with graph_of(tmp_path, [reported(7, description="new")]) as query:
        assert b"new" in bytes(query.dataset("db", "t").facets["documentation"])


def test_unresolved_columns_are_listed_until_a_later_facet_has_none(tmp_path: Path) -> None:
    gap = column_lineage(x=[source("a", "f")]) | {"unknown": [{"what": "y", "reason": "no rule"}]}
    with graph_of(tmp_path, [flow("j", ["a"], [dataset("t", columnLineage=gap)], minute=1)]) as query:
        assert b"no rule" in bytes(query.dataset("db", "t").remarks["columnLineage"])
    resolved = flow("j", ["a"], [dataset("t", columnLineage=column_lineage(x=[source("a", "f")]))], minute=2)
    with graph_of(tmp_path, [resolved]) as query:
        assert query.dataset("db", "t").remarks == {}


# --- names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", ("s3://shop", "wh/orders", None)),
        ("wh/orders", ("s3://shop", "wh/orders", None)),
        ("s3://shop/wh/orders", ("s3://shop", "wh/orders", None)),
        ("s3://shop wh/orders", ("s3://shop", "wh/orders", None)),
        ("hive.shop.orders", ("s3://shop", "wh/orders", None)),
        ("shop.orders.price", ("s3://shop", "wh/orders", "price")),
        ("orders.price", ("s3://shop", "wh/orders", "price")),
        ("s3://shop/wh/orders.a.b", ("s3://shop", "wh/orders", "a.b")),
        ("orders.a.b", ("s3://shop", "wh/orders", "a.b")),
    ],
)
def test_a_dataset_or_column_is_found_when_a_person_names_it(
    tmp_path: Path, text: str, expected: tuple[str, str, str | None]
) -> None:
    item = dataset(
        "wh/orders",
        "s3://shop",
        schema=schema(price="int") | {"fields": [{"name": "price"}, {"name": "a.b"}]},
        symlinks=symlinks(("hive", "shop.orders")),
    )
    with graph_of(tmp_path, [dataset_event(item)]) as query:
        assert query.resolve(text) == expected


def test_candidates_are_named_when_a_name_means_several(tmp_path: Path) -> None:
    events = [dataset_event(dataset("t", "one")), dataset_event(dataset("t", "two"))]
    with graph_of(tmp_path, events) as query:
        with pytest.raises(NotFound) as refused:
            query.resolve("t")
        assert "one t; two t" in refused.value.hint
        with pytest.raises(NotFound):
            query.resolve("nothing.of.this")
        with pytest.raises(NotFound):
            query.dataset("one", "u")
        with pytest.raises(NotFound):
            query.trace("one", "t", "x")


def test_the_closest_is_first_when_searched_for(query: GraphQuery, tmp_path: Path) -> None:
    first = query.search("ord")[0]
    assert (first.kind, first.name, first.column) == ("dataset", "orders", None)
    assert [(hit.name, hit.column) for hit in query.search("PRICE")] == [("orders", "price")]
    assert {hit.kind for hit in query.search("report")} == {"job"}
    assert [hit.name for hit in query.search("da", kinds=("dataset",))] == ["daily"]
    assert query.search("orders", namespace="elsewhere") == []
    assert query.search('"*"') == []


def test_the_latest_are_listed_when_the_search_text_is_empty(query: GraphQuery) -> None:
    hits = query.search("", limit=3)
    assert [(hit.kind, hit.name) for hit in hits] == [
        ("dataset", "daily"),
        ("dataset", "letters"),
        ("job", "mail"),
    ]
    assert [hit.name for hit in query.search(" ", kinds=("job",), namespace="jobs", limit=1)] == ["mail"]


def test_all_is_counted_when_a_summary_is_asked_for(tmp_path: Path) -> None:
    with graph_of(tmp_path, [*shop(), run_event("FAIL", minute=9)]) as query:
        found = query.summary()
        assert (found.datasets, found.jobs, found.runs, found.failed) == (5, 4, 4, 1)
        assert found.last_at == "2026-01-01T00:09:00Z"


def test_an_alias_is_found_when_searched_for(tmp_path: Path) -> None:
    item = dataset("path/to/x", symlinks=symlinks(("hive", "sales.customers")))
    with graph_of(tmp_path, [dataset_event(item)]) as query:
        (hit,) = query.search("customers")
        assert (hit.name, hit.alias and hit.alias.name) == ("path/to/x", "sales.customers")


def test_a_query_is_given_up_when_it_takes_too_long(tmp_path: Path) -> None:
    graph_of(tmp_path, [flow(f"j{i}", [f"a{i}"], ["hub"]) for i in range(3000)]).close()
    with GraphQuery(tmp_path, limit_seconds=0) as query, pytest.raises(QueryTimeout):
        query.neighbourhood("db", "hub", depth=9, limit=5000, columns=True)


@pytest.mark.parametrize("length", [1_999, 2_000, 2_001, 2_017, 10_000])
def test_it_is_found_by_its_full_and_by_its_stored_name_when_the_name_is_long(
    tmp_path: Path, length: int
) -> None:
    name = "x" * length
    with graph_of(tmp_path, [flow("copy", ["raw"], [name])]) as query:
        stored = query.dataset("db", name).name
        assert len(stored) <= 2_000
        assert query.dataset("db", stored).name == stored
        with pytest.raises(NotFound) as missing:
            query.dataset("db", name + "y")
        assert len(str(missing.value)) < 500

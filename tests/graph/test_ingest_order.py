"""Any order and any repetition of events gives the same graph."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.graph.store.database import GraphDatabase
from tests.graph.events import (
    column_lineage,
    content,
    dataset,
    dataset_event,
    encoded,
    facet,
    run_event,
    run_id,
    schema,
    source,
    symlinks,
)

NAMES = st.sampled_from(["a", "b", "c", "d"])
FIELDS = st.sampled_from(["x", "y", "z"])
MINUTES = st.integers(0, 4)  # few, so that many events share their time


@st.composite
def facets(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if draw(st.booleans()):
        found["schema"] = schema(
            **draw(st.dictionaries(FIELDS, st.sampled_from(["int", "text"]), max_size=3))
        )
    if draw(st.booleans()):
        found["symlinks"] = symlinks(
            *draw(st.lists(st.tuples(st.sampled_from(["db", "hive"]), NAMES), max_size=2))
        )
        if draw(st.integers(0, 5)) == 0:
            found["symlinks"]["_deleted"] = True
    if draw(st.booleans()):
        sources = st.builds(
            source,
            NAMES,
            FIELDS,
            st.sampled_from(["DIRECT", "INDIRECT"]),
            st.sampled_from(["IDENTITY", "FILTER"]),
            masking=st.booleans(),
            description=st.sampled_from(["", "p", "q"]),
        )
        whole = draw(st.lists(sources, max_size=1))
        found["columnLineage"] = column_lineage(
            whole, **draw(st.dictionaries(FIELDS, st.lists(sources, max_size=2), max_size=2))
        )
    if draw(st.booleans()):
        found["documentation"] = facet(
            description=draw(st.sampled_from(["one", "two"])), _deleted=draw(st.booleans())
        )
    return found


@st.composite
def datasets(draw: st.DrawFn) -> dict[str, Any]:
    statistics = facet(rowCount=draw(st.integers(0, 3)))
    extra = {"outputFacets": {"outputStatistics": statistics}} if draw(st.booleans()) else {}
    return dataset(draw(NAMES), extra=extra, **draw(facets()))


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.integers(0, 5)) == 0:
        return dataset_event(draw(datasets()), draw(MINUTES))
    parent = facet(
        run={"runId": run_id(draw(st.integers(8, 9)))},
        job={"namespace": "jobs", "name": draw(st.sampled_from(["p", "q"]))},
    )
    lineage = facet(
        entries=[
            {
                "namespace": "db",
                "name": draw(NAMES),
                "type": "DATASET",
                "inputs": [{"namespace": "db", "name": draw(NAMES), "type": "DATASET"}],
                "fields": {
                    "x": {"inputs": [{"namespace": "db", "name": "a", "type": "DATASET", "field": "y"}]}
                },
            },
            {"type": "JOB", "inputs": [{"namespace": "db", "name": draw(NAMES), "type": "DATASET"}]},
        ]
    )
    event = run_event(
        draw(st.sampled_from(["START", "RUNNING", "COMPLETE", "FAIL", "ABORT", "OTHER"])),
        minute=draw(MINUTES),
        run=draw(st.integers(1, 3)),
        job=draw(st.sampled_from(["j", "k"])),
        inputs=draw(st.lists(datasets(), max_size=2)),
        outputs=draw(st.lists(datasets(), max_size=2)),
        run_facets={"parent": parent} if draw(st.booleans()) else {},
        job_facets={"lineage": lineage} if draw(st.booleans()) else {},
    )
    if draw(st.integers(0, 5)) == 0:
        del event["run"]
    return event


def content_of(batches: list[list[bytes]], durable: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        graph = GraphDatabase(Path(folder), durable=durable)
        for batch in batches:
            graph.ingest(batch)
        graph.close()
        return content(Path(folder))


any_events = given(st.lists(events(), min_size=1, max_size=8), st.randoms(use_true_random=False), st.data())


@any_events
@settings(max_examples=60)
def test_the_graph_is_the_same_when_events_are_shuffled_repeated_and_cut_into_other_batches(
    given_events: list[Any], random: Any, data: st.DataObject
) -> None:
    check_order(given_events, random, data, durable=False)


@pytest.mark.long
@any_events
@settings(max_examples=2_000)
def test_the_graph_is_the_same_when_thousands_of_orders_are_tried(
    given_events: list[Any], random: Any, data: st.DataObject
) -> None:
    check_order(given_events, random, data, durable=True)


def check_order(given_events: list[Any], random: Any, data: st.DataObject, *, durable: bool) -> None:
    bodies = encoded(given_events)
    expected = content_of([bodies], durable)
    others = bodies + data.draw(st.lists(st.sampled_from(bodies), max_size=4))
    random.shuffle(others)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(others)), max_size=4)))
    batches = [others[start:end] for start, end in zip([0, *cuts], [*cuts, len(others)], strict=True)]
    assert content_of(batches, durable) == expected

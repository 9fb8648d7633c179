"""Edges that come only from runs that failed are marked: what such a run announced may not have happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from headwater.cli.lineage.text_tree import column_tree, dataset_picture, dataset_tree, draw
from headwater.graph.query.query import GraphQuery
from headwater.page.urls import link
from tests.graph.events import column_lineage, dataset, graph_of, run_event, schema, source
from tests.page.client import page_client

MARK = "(only failed runs wrote it)"


def write(kind: str, minute: int, job: str = "load") -> dict[str, Any]:
    """A run of a job that reads `events` and writes `orders`."""
    orders = dataset(
        "orders", schema=schema(id="int"), columnLineage=column_lineage(id=[source("events", "id")])
    )
    return run_event(kind, minute=minute, run=minute, job=job, inputs=["events"], outputs=[orders])


def failed_jobs(query: GraphQuery) -> set[str]:
    """The jobs whose writes of `orders` are marked, which all answers agree on."""
    around = query.neighbourhood("db", "orders", direction="up", columns=True)
    names = {node.key: node.name for node in around.jobs}
    found = {names[edge.source] for edge in around.edges if edge.failed}
    assert {names[edge.job] for edge in around.column_edges if edge.failed} == found
    trace = query.trace("db", "orders", "id", direction="up")
    assert {names[edge.job] for edge in trace.column_edges if edge.failed} == found
    tree = [click.unstyle(line) for line in draw(dataset_tree(around, "up"))]
    assert {
        job for job in names.values() if any(f"{job}  jobs" in line and MARK in line for line in tree)
    } == found
    columns = [click.unstyle(line) for line in draw(column_tree(trace, "up"))]
    assert sum(MARK in line for line in columns) == len(found)
    assert sum(dashed for *_, dashed in dataset_picture(around).arrows) == len(found)
    return found


@pytest.mark.parametrize(
    ("events", "marked"),
    [
        ([write("COMPLETE", 1)], set()),
        ([write("FAIL", 1)], {"load"}),
        ([write("START", 1)], set()),
        ([write("ABORT", 1), write("FAIL", 2)], {"load"}),
        ([write("FAIL", 1), write("COMPLETE", 2)], set()),
        ([write("COMPLETE", 1), *(write("FAIL", minute) for minute in range(2, 40))], set()),
        ([write("FAIL", 1, "other"), write("COMPLETE", 2)], {"other"}),
    ],
    ids=["complete", "failed", "running", "failed-twice", "then-complete", "complete-long-ago", "one-of-two"],
)
def test_an_edge_is_marked_when_only_failed_runs_wrote_it(
    tmp_path: Path, events: list[dict[str, Any]], marked: set[str]
) -> None:
    with graph_of(tmp_path, events) as query:
        assert failed_jobs(query) == marked


def test_no_edge_is_marked_when_the_run_that_succeeded_was_removed(tmp_path: Path) -> None:
    graph_of(tmp_path, [write("COMPLETE", 1), write("FAIL", 2)]).close()
    with GraphQuery(tmp_path) as query:
        query.connection.pragma("query_only", 0)
        query.connection.execute("DELETE FROM runs WHERE state = 3")
        assert failed_jobs(query) == set()


@pytest.mark.parametrize(("kind", "is_marked"), [("FAIL", True), ("COMPLETE", False)])
def test_a_line_is_marked_when_only_failed_runs_made_it(tmp_path: Path, kind: str, is_marked: bool) -> None:
    with page_client(tmp_path, [write(kind, 1)]) as client:
        for more in ({}, {"open": "all"}, {"jobs": "1"}, {"column": "id"}):
            text = client.get(link("lineage", namespace="db", name="orders", **more)).text
            assert ("only failed runs wrote it" in text) is is_marked, more
        text = client.get(link("dataset", namespace="db", name="orders")).text
        assert ("only failed runs" in text) is is_marked

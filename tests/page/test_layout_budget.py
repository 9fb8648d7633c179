"""The work of a drawing is bounded, and a drawing says what it leaves out (G8)."""

from __future__ import annotations

import random
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.graph.query.answers import DatasetNode, Edge, JobNode, Neighbourhood
from headwater.graph.query.boxes import DrawingDetails
from headwater.graph.query.budget import MAX_STEPS, Budget, QueryTooLarge
from headwater.page.lineage_graph import layout
from headwater.page.lineage_graph.drawing import Drawing
from headwater.page.lineage_graph.drawing import draw as draw_scene
from headwater.page.lineage_graph.layout import MAX_PASSES, Link, Work, arrange, uncounted
from headwater.page.lineage_graph.level_of_detail import MAX_BOXES, collapse
from headwater.page.lineage_graph.request import GraphRequest
from tests.graph.events import flow
from tests.page.client import page_client

STEPS_OF_EACH = 60  # sweeps over all items: 21 to order them, 8 for heights, and the passes before


def links_of(pairs: Any) -> list[Link]:
    return [Link(source, 10.0, target, 10.0) for source, target in pairs]


def bipartite(left: int, right: int) -> tuple[int, list[Link]]:
    return left + right, links_of((a, left + b) for a in range(left) for b in range(right))


def hub(readers: int) -> tuple[int, list[Link]]:
    return readers + 1, [Link(0, 10.0 * row, n + 1, 10.0) for n in range(readers) for row in range(20)]


def chain(length: int) -> tuple[int, list[Link]]:
    links = links_of((n, n + 1) for n in range(length - 1))
    return length, links + links_of((n, length - 1) for n in range(length - 2))  # lines past all layers


def tangle(count: int) -> tuple[int, list[Link]]:
    """Each with each, in both directions: nothing but cycles."""
    return count, links_of((a, b) for a in range(count) for b in range(count) if a != b)


GRAPHS = {
    "bipartite": bipartite(100, 100),
    "hub": hub(400),
    "chain": chain(400),
    "ring": (400, links_of((n, (n + 1) % 400) for n in range(400))),
    "tangle": tangle(50),
}


def steps_of(count: int, links: list[Link]) -> int:
    budget = Budget(3600, steps=10**12)
    found = arrange([60.0] * count, links, work=budget.work)
    assert len(found.tops) == count
    assert len(found.routes) == len(links)
    assert sum(map(len, found.routes)) <= MAX_PASSES
    return budget.steps


@pytest.mark.parametrize("name", GRAPHS)
def test_the_work_is_linear_in_what_is_drawn_when_a_graph_is_dense(name: str) -> None:
    count, links = GRAPHS[name]
    assert steps_of(count, links) <= STEPS_OF_EACH * (count + len(links) + MAX_PASSES)


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(0, 300))
@settings(max_examples=20, deadline=None)
def test_the_work_is_linear_when_the_graph_is_random(seed: int, boxes: int, lines: int) -> None:
    chance = random.Random(seed)
    links = [
        Link(chance.randrange(boxes), chance.randrange(90), chance.randrange(boxes), chance.randrange(90))
        for _ in range(lines)
    ]
    passes = lines * boxes
    assert steps_of(boxes, links) <= STEPS_OF_EACH * (boxes + lines + min(passes, MAX_PASSES))


def lines_executed(function: Callable[[], object]) -> int:
    """Lines of the layout that ran: work that no call of `work` can forget."""
    executed = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal executed
        if frame.f_code.co_filename != layout.__file__:
            return None
        executed += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return executed


@pytest.mark.parametrize(
    ("make", "size", "doubled"),
    [(chain, 60, 120), (hub, 10, 20), (tangle, 12, 17), (lambda n: bipartite(n, n), 12, 17)],
    ids=["chain", "hub", "tangle", "bipartite"],
)
def test_twice_as_many_lines_take_about_twice_the_work(
    make: Callable[[int], tuple[int, list[Link]]], size: int, doubled: int
) -> None:
    each = []
    for wanted in (size, doubled):
        count, links = make(wanted)
        passes = sum(map(len, arrange([60.0] * count, links).routes))
        found = lines_executed(lambda count=count, links=links: arrange([60.0] * count, links))  # type: ignore[misc]
        each.append(found / (count + len(links) + passes))
    assert each[1] <= 1.6 * each[0]


def complete(jobs: int, datasets: int) -> Neighbourhood:
    """Each job reads and writes each dataset."""
    nodes = [DatasetNode(f"d{n}", "db", f"t{n}", distance=min(n, 3)) for n in range(datasets)]
    found = [JobNode(f"j{n}", "jobs", f"job {n}") for n in range(jobs)]
    edges = [
        edge
        for job in found
        for node in nodes
        for edge in (Edge(node.key, job.key, True), Edge(job.key, node.key, job.key != "j0"))
    ]
    return Neighbourhood("d0", nodes, found, edges, [], truncated=False)


def draw(found: Neighbourhood, work: Work = uncounted, **given: Any) -> Drawing:
    request = GraphRequest("db", "t0", depth=5, **given)
    details = DrawingDetails({}, [], [])
    return draw_scene(collapse(found, None, request, work), details, request, found.start, work=work)


@pytest.mark.parametrize("given", [{}, {"opened": ("all",)}, {"jobs": True}, {"group": True}])
def test_the_work_is_bounded_and_the_rest_is_in_stacks_when_300_jobs_use_300_datasets(
    given: dict[str, Any],
) -> None:
    found = complete(300, 300)
    budget = Budget(3600)
    drawing = draw(found, budget.work, **given)
    boxes = [box for box in drawing.boxes if box.stack is None]
    stacked = sum(len(box.stack.members) for box in drawing.boxes if box.stack is not None)
    assert len(boxes) <= MAX_BOXES
    assert len(boxes) + stacked == (600 if given.get("jobs") else 300)
    assert len(drawing.lines) <= MAX_BOXES**2
    assert budget.steps < MAX_STEPS / 5


def test_memory_is_bounded_when_all_use_all() -> None:
    found = complete(100, 100)  # a million times a job leads from a dataset to a dataset
    tracemalloc.start()
    try:
        draw(found)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 * 2**20


def test_drawing_stops_when_its_budget_is_used_up() -> None:
    with pytest.raises(QueryTooLarge):
        draw(complete(30, 30), Budget(3600, steps=2_000).work)


def test_a_line_is_not_current_when_no_job_of_it_is() -> None:
    found = complete(1, 3)  # the only job no longer writes them
    assert {line.is_current for line in draw(found).lines} == {False}
    assert all(line.label == "by job 0; no column lineage" for line in draw(found).lines)


def test_the_page_says_how_much_it_shows_when_not_all_is_drawn(tmp_path: Path) -> None:
    readers = [flow(f"job {n}", ["t0"], [f"r{n}"], minute=n % 50) for n in range(1_100)]
    with page_client(tmp_path, readers) as client:
        page = client.get("/lineage?namespace=db&name=t0")
        assert page.status_code == 200
        assert "Shown: 1,000 of at least 1,101 datasets" in page.text
        assert "991 more" in page.text

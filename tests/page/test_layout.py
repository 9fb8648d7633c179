"""The layout of boxes, and the lines between them."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from headwater.graph.query.answers import DatasetNode
from headwater.page.lineage_graph.drawing import BOX_WIDTH
from headwater.page.lineage_graph.layout import (
    Link,
    _crossings,
    _LayeredGraph,
    _layers,
    arrange,
    forward,
    rows,
    uncounted,
)
from headwater.page.lineage_graph.request import GraphRequest
from headwater.page.views.lineage import drawing_of
from tests.graph.events import column_lineage, dataset, flow, graph_of, schema, source
from tests.graph.shop import shop


def chain(*boxes: int) -> list[Link]:
    return [Link(source, 10, target, 10) for source, target in pairwise(boxes)]


def test_boxes_stand_in_layers_and_lines_are_straight_when_they_follow_each_other() -> None:
    found = arrange([50, 50, 50], chain(0, 1, 2))
    assert found.layers == [0, 1, 2]
    assert len({round(top) for top in found.tops}) == 1


def test_a_source_stands_right_before_its_use_when_the_use_is_late() -> None:
    found = arrange([50] * 5, [*chain(0, 1, 2, 3), Link(4, 10, 3, 10)])
    assert found.layers == [0, 1, 2, 3, 2]


def test_a_long_line_passes_by_the_layers_between_when_it_skips_some() -> None:
    link = Link(0, 10, 3, 10)
    found = arrange([60] * 4, [*chain(0, 1, 2, 3), link])
    way = found.routes[-1]
    assert [point.layer for point in way] == [1, 2]
    for point in way:  # beside the box of that layer, not through it
        top = found.tops[point.layer]
        assert not top <= point.y <= top + 60


def test_all_boxes_have_a_place_when_there_are_cycles_and_loops() -> None:
    found = arrange([40] * 3, [*chain(0, 1, 2, 0), Link(1, 5, 1, 25)])
    assert sorted(found.layers) == [0, 1, 2]
    assert len(found.routes) == 4


def test_nothing_is_arranged_when_there_is_nothing() -> None:
    assert arrange([], []).height == 0
    assert arrange([30], []).layers == [0]


@pytest.mark.parametrize("seed", range(6))
def test_no_two_boxes_overlap_when_the_graph_is_random(seed: int) -> None:
    chance = random.Random(seed)
    count = 60
    heights = [float(chance.randrange(40, 300)) for _ in range(count)]
    links = [
        Link(a, chance.randrange(40), b, chance.randrange(40))
        for a, b in (chance.sample(range(count), 2) for _ in range(150))
    ]
    found = arrange(heights, links, gap=20)
    for layer in set(found.layers):
        boxes = sorted((found.tops[i], heights[i]) for i in range(count) if found.layers[i] == layer)
        for (top, height), (below, _) in pairwise(boxes):
            assert top + height <= below
    assert min(found.tops) >= 0


def test_columns_are_rows_and_gaps_are_marked_when_a_neighbourhood_is_drawn(tmp_path: Path) -> None:
    with graph_of(tmp_path, shop()) as query:
        request = GraphRequest("db", "orders", depth=3, opened=("all",))
        found = drawing_of(query, request)[1]
        traced = drawing_of(query, request._replace(column="total", of=("db", "daily")))[1]
    cards = {card.node.name: card for card in found.boxes if isinstance(card.node, DatasetNode)}
    assert [row.name for row in cards["orders"].rows] == ["id", "price", "email"]
    assert cards["events"].x + BOX_WIDTH < cards["orders"].x < cards["daily"].x < cards["letters"].x
    assert [job.name for job in cards["orders"].jobs] == ["load"]
    kinds = {(line.source[1], line.target[1]): line.kind for line in found.lines}
    assert kinds[("price", "total")] == "direct"
    assert kinds[("id", None)] == "indirect"
    assert kinds[(None, None)] == "no-columns"  # the mailer reports no columns (G11)
    lit = {(line.source[1], line.target[1]) for line in traced.lines if line.is_traced}
    assert ("amount", "price") in lit
    assert ("mail", "email") not in lit


def test_the_columns_that_matter_are_kept_when_a_dataset_has_too_many(tmp_path: Path) -> None:
    wide = dataset("wide", schema=schema(**{f"c{n:03d}": "int" for n in range(200)}))
    end = dataset("end", columnLineage=column_lineage(x=[source("wide", "c150")]))
    with graph_of(
        tmp_path, [flow("fill", ["in"], [wide], minute=1), flow("use", [wide], [end], minute=2)]
    ) as query:
        found = drawing_of(query, GraphRequest("db", "end", depth=2, opened=("all",)))[1]
    card = next(card for card in found.boxes if card.node is not None and card.node.name == "wide")
    assert "c150" in [row.name for row in card.rows]
    assert card.rows[-1].omitted == 200 - (len(card.rows) - 1)


def test_few_lines_point_back_when_there_are_cycles() -> None:
    pairs = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 2)]
    order, kept = forward(5, pairs)
    assert sorted(order) == [0, 1, 2, 3, 4]
    places = {item: place for place, item in enumerate(order)}
    assert all(places[source] < places[target] for source, target in kept)
    assert len(kept) == 4  # two cycles, each broken once


def test_no_line_crosses_another_when_there_is_an_order_without() -> None:
    # drawn in the order of their numbers every line would cross every other one
    assert rows([0, 0, 0, 1, 1, 1], [(0, 5), (1, 4), (2, 3)]) in (
        [[0, 1, 2], [5, 4, 3]],
        [[2, 1, 0], [3, 4, 5]],
    )


@pytest.mark.parametrize(
    ("boxes", "lines", "seed", "graphviz"),
    [(60, 120, 2, 297), (60, 240, 3, 1890), (100, 300, 4, 2930), (300, 900, 5, 34_186)],
)
def test_few_lines_cross_when_a_graph_is_dense(boxes: int, lines: int, seed: int, graphviz: int) -> None:
    """At most 1.6 times as many as `dot` of Graphviz 2.42 left in the same graph, in its own layers."""
    chance = random.Random(seed)
    pairs = sorted({tuple(sorted(chance.sample(range(boxes), 2))) for _ in range(lines)})
    layers = _layers(boxes, [(one, other) for one, other in pairs], uncounted)
    graph = _LayeredGraph([60.0] * boxes, layers, 28.0, uncounted)
    for one, other in pairs:
        graph.route((one, other), {Link(one, 10, other, 10)})
    graph.order()
    after: dict[int, list[int]] = {}
    for one, other in graph._edges:
        after.setdefault(one, []).append(other)
    assert _crossings(graph._rows, after) <= 1.6 * graphviz

"""Places the boxes of a graph in layers from left to right, after Sugiyama.

A feedback arc set (Eades, Lin and Smyth) removes the lines that would go backwards. The longest path gives
the layers, and sweeps shorten the lines. Barycentres and medians, with swaps of neighbours (Gansner,
Koutsofios, North and Vo), order each layer so that few lines cross. Isotonic regression gives the heights at
which lines between rows are straightest and no two boxes overlap.

The work grows with the boxes, lines and lanes times the logarithm of their number. Lanes are limited: in a
dense graph with cycles, lines times layers would grow with the cube of the boxes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

MAX_SWEEPS = 20  # of ordering, through all layers; the best order is kept
PATIENCE = 4  # sweeps without an improvement, after which ordering stops
MAX_TRANSPOSED = 20_000  # lines of a graph in which neighbours are swapped
MAX_COMPARED = 64  # lines of one item
LAYER_SWEEPS = 6  # in which lines become shorter
HEIGHT_SWEEPS = 8  # over all layers; later sweeps change little
LANE = 5.0  # pixels between lines that pass a layer side by side
MAX_LANES = 48.0
MAX_PASSES = 10_000  # of lines through layers between their ends; the longest lines pass behind the boxes

Pair = tuple[int, int]
Work = Callable[[int], None]  # receives steps of work as they are done; may raise to stop


def uncounted(steps: int) -> None:
    """Counts no work."""


def forward(count: int, pairs: Iterable[Pair], work: Work = uncounted) -> tuple[list[int], list[Pair]]:
    """An order of the items in which few pairs point back, and the pairs that do not (Eades, Lin and Smyth).

    Sources go to the front and sinks to the end; in a cycle, the item with the most outgoing minus incoming
    pairs goes to the front.
    """
    after: dict[int, set[int]] = defaultdict(set)
    before: dict[int, set[int]] = defaultdict(set)
    pairs = list(pairs)
    for source, target in pairs:
        after[source].add(target)
        before[target].add(source)
    left = set(range(count))
    front: list[int] = []
    end: list[int] = []
    # Heaps of items that had no followers, no predecessors, or this surplus when they were pushed.
    sinks = [item for item in range(count) if not after[item]]
    sources = [item for item in range(count) if not before[item]]
    surplus = [(len(before[item]) - len(after[item]), item) for item in range(count)]
    surplus.sort()

    def take(item: int, to: list[int]) -> None:
        to.append(item)
        left.discard(item)
        work(1 + len(after[item]) + len(before[item]))
        for other in after[item]:
            before[other].discard(item)
            if other in left:
                heappush(surplus, (len(before[other]) - len(after[other]), other))
                if not before[other]:
                    heappush(sources, other)
        for other in before[item]:
            after[other].discard(item)
            if other in left:
                heappush(surplus, (len(before[other]) - len(after[other]), other))
                if not after[other]:
                    heappush(sinks, other)

    while left:
        if sinks:
            if (item := heappop(sinks)) in left:
                take(item, end)
        elif sources:
            if (item := heappop(sources)) in left:
                take(item, front)
        else:
            rank, item = heappop(surplus)
            if item in left and rank == len(before[item]) - len(after[item]):
                take(item, front)
    order = front + end[::-1]
    places = {item: place for place, item in enumerate(order)}
    return order, [(source, target) for source, target in pairs if places[source] < places[target]]


def rows(layers: Sequence[int], edges: Sequence[Pair], work: Work = uncounted) -> list[list[int]]:
    """The items of each layer from top to bottom; `edges` lead from a layer to the next."""
    found: dict[int, list[int]] = defaultdict(list)
    for item, layer in enumerate(layers):
        found[layer].append(item)
    current = [found[layer] for layer in sorted(found)]
    neighbours: tuple[dict[int, list[int]], dict[int, list[int]]] = (defaultdict(list), defaultdict(list))
    for source, target in edges:
        neighbours[0][target].append(source)
        neighbours[1][source].append(target)
    best, fewest = [list(row) for row in current], _crossings(current, neighbours[1])
    stale_sweeps = 0
    for sweep in range(MAX_SWEEPS):
        work(len(layers) + len(edges))
        if not fewest or stale_sweeps == PATIENCE:
            break
        side = neighbours[sweep % 2]
        places = _places(current)
        for row in current if sweep % 2 == 0 else current[::-1]:
            # items without neighbours on this side keep their place
            middle = _median if sweep % 8 >= 4 else _barycentre
            row.sort(key=lambda item: middle(item, side, places))
            places.update((item, float(place)) for place, item in enumerate(row))
        _transpose(current, neighbours, work)
        crossings = _crossings(current, neighbours[1])
        stale_sweeps += 1
        if crossings < fewest:
            best, fewest, stale_sweeps = [list(row) for row in current], crossings, 0
    return best


def _places(of: Iterable[Sequence[int]]) -> dict[int, float]:
    return {item: float(place) for row in of for place, item in enumerate(row)}


def _barycentre(item: int, side: dict[int, list[int]], places: dict[int, float]) -> float:
    others = side.get(item)
    if not others:
        return places[item]
    return sum(places[other] for other in others) / len(others)


def _median(item: int, side: dict[int, list[int]], places: dict[int, float]) -> float:
    """The weighted median of Gansner et al.: between the two in the middle, nearer to the denser half."""
    others = sorted(places[other] for other in side.get(item, ()))
    if not others:
        return places[item]
    half = len(others) // 2
    if len(others) % 2:
        return others[half]
    if len(others) == 2:
        return (others[0] + others[1]) / 2
    left, right = others[half - 1] - others[0], others[-1] - others[half]
    if not left + right:
        return (others[half - 1] + others[half]) / 2
    return (others[half - 1] * right + others[half] * left) / (left + right)


def _transpose(
    of: list[list[int]], neighbours: tuple[dict[int, list[int]], dict[int, list[int]]], work: Work
) -> None:
    """Swap neighbours in a row where that leaves fewer crossings, in one pass over all rows.

    Items with many lines stay: comparing them takes as long as their lines are many.
    """
    places = _places(of)
    sides = [
        {item: sorted(places[other] for other in others) for item, others in side.items()}
        for side in neighbours
        if sum(map(len, side.values())) <= MAX_TRANSPOSED
    ]
    work(sum(len(row) for row in of))
    for row in of:
        for at in range(len(row) - 1):
            upper, lower = row[at], row[at + 1]
            kept = swapped = 0
            for side in sides:
                one, other = side.get(upper, ()), side.get(lower, ())
                if len(one) <= MAX_COMPARED and len(other) <= MAX_COMPARED:
                    kept += sum(bisect_left(other, end) for end in one)
                    swapped += sum(bisect_left(one, end) for end in other)
            if swapped < kept:
                row[at], row[at + 1] = lower, upper


def _crossings(of: Sequence[Sequence[int]], after: dict[int, list[int]]) -> int:
    """The number of pairs of lines that cross: for each line, the earlier lines that end further down."""
    places = _places(of)
    total = 0
    for row in of:
        ends: list[float] = []
        for item in row:
            mine = [places[other] for other in after.get(item, ())]
            total += sum(len(ends) - bisect_right(ends, end) for end in mine)
            for end in mine:
                insort(ends, end)
    return total


class Link(NamedTuple):
    """A line from a row of one box to a row of another; the offsets are from the upper edges of the boxes."""

    source: int
    source_offset: float
    target: int
    target_offset: float


class Point(NamedTuple):
    """Where a line passes a layer between its ends."""

    layer: int
    y: float


class Arrangement(NamedTuple):
    """For each box its layer and top; for each link the points between its ends."""

    layers: list[int]
    tops: list[float]
    routes: list[list[Point]]
    height: float


def arrange(
    heights: Sequence[float], links: Sequence[Link], *, gap: float = 18.0, work: Work = uncounted
) -> Arrangement:
    """Place boxes of these heights so that links go from left to right and mostly straight."""
    between: dict[tuple[int, int], set[Link]] = defaultdict(set)
    for link in links:
        if link.source != link.target:
            between[(link.source, link.target)].add(link)
    pairs = sorted(between)
    layers = _layers(len(heights), pairs, work)
    graph = _LayeredGraph(list(heights), layers, gap, work)
    chains = {pair: graph.route(pair, between[pair]) for pair in _routed(between, layers)}
    graph.order()
    graph.place_vertically()
    routes = [
        [Point(graph.layers[lane], graph.tops[lane] + offset) for lane, offset in chains[pair].get(link, ())]
        if (pair := (link.source, link.target)) in chains
        else []
        for link in links
    ]
    count = len(heights)
    lowest = max((top + height for top, height in zip(graph.tops, graph.heights, strict=True)), default=0.0)
    return Arrangement(layers, graph.tops[:count], routes, lowest)


def _routed(between: dict[Pair, set[Link]], layers: Sequence[int]) -> list[Pair]:
    """The pairs whose lines get lanes: all, or, if lines would pass too many layers, the shortest."""
    passes = {
        pair: len(links) * max(0, layers[pair[1]] - layers[pair[0]] - 1) for pair, links in between.items()
    }
    left = MAX_PASSES
    found = []
    for pair in sorted(passes, key=lambda pair: (passes[pair], pair)):
        left -= passes[pair]
        if left < 0:
            break
        found.append(pair)
    return sorted(found)


def _layers(count: int, pairs: Sequence[tuple[int, int]], work: Work) -> list[int]:
    """The longest path to each box, then each box as near to most of its neighbours as their layers allow."""
    order, kept = forward(count, pairs, work)
    work(count + len(kept))
    followers: dict[int, list[int]] = defaultdict(list)
    for source, target in kept:
        followers[source].append(target)
    leaders: dict[int, list[int]] = defaultdict(list)
    for source, target in kept:
        leaders[target].append(source)
    layers = [0] * count
    for box in order:
        for following in followers[box]:
            layers[following] = max(layers[following], layers[box] + 1)
    for sweep in range(LAYER_SWEEPS):
        work(count + len(kept))
        for box in order if sweep % 2 else reversed(order):
            before, after = leaders[box], followers[box]
            if len(after) > len(before):
                layers[box] = min(layers[following] for following in after) - 1
            elif len(before) > len(after):
                layers[box] = max(layers[leader] for leader in before) + 1
    least = min(layers, default=0)
    return [layer - least for layer in layers]


class _LayeredGraph:
    """Boxes and, after them in the same lists, the lanes in which long lines pass a layer."""

    def __init__(self, heights: list[float], layers: list[int], gap: float, work: Work) -> None:
        self._work = work
        self.heights = heights
        self.layers = list(layers)
        self.tops = [0.0] * len(heights)
        self._gap = gap
        self._boxes = len(heights)
        self._edges: list[tuple[int, int]] = []
        self._lines: list[tuple[int, float, int, float]] = []
        self._rows: list[list[int]] = []

    def route(self, pair: tuple[int, int], links: set[Link]) -> dict[Link, list[tuple[int, float]]]:
        """Route the links of two boxes through the layers between them; returns the lanes of each link."""
        source, target = pair
        mine = sorted(links, key=lambda link: (link.source_offset, link.target_offset))
        step = min(LANE, MAX_LANES / len(mine))
        between = range(self.layers[source] + 1, self.layers[target])
        self._work(len(mine) * (1 + len(between)))
        lanes = [self._lane(layer, step * len(mine)) for layer in between]
        stops = [source, *lanes, target]
        self._edges += list(pairwise(stops))
        found: dict[Link, list[tuple[int, float]]] = {}
        for place, link in enumerate(mine):
            offset = step * (place + 0.5)
            offsets = [link.source_offset, *(offset for _ in lanes), link.target_offset]
            ends = list(zip(stops, offsets, strict=True))
            self._lines += [(*a, *b) for a, b in pairwise(ends)]
            found[link] = [(lane, offset) for lane in lanes]
        return found

    def _lane(self, layer: int, height: float) -> int:
        self.layers.append(layer)
        self.heights.append(height)
        self.tops.append(0.0)
        return len(self.layers) - 1

    def order(self) -> None:
        """Order the items of each layer."""
        self._rows = rows(self.layers, self._edges, self._work)

    def place_vertically(self) -> None:
        """Move each item near the mean of the heights that its lines prefer, without overlaps."""
        # for each item its neighbours, and the difference in height that makes the line straight
        lines: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for source, source_offset, target, target_offset in self._lines:
            lines[source].append((target, target_offset - source_offset))
            lines[target].append((source, source_offset - target_offset))
        for row in self._rows:
            self._resolve_overlaps(row, [self.tops[item] for item in row], [1.0] * len(row))
        for sweep in range(HEIGHT_SWEEPS):
            self._work(len(self.layers) + len(self._lines))
            rows = self._rows if sweep % 2 == 0 else self._rows[::-1]
            for row in rows:
                preferred = [self._preferred_top(item, lines[item]) for item in row]
                if sweep < HEIGHT_SWEEPS // 2:  # rows may prefer another order than boxes
                    row[:] = [item for _, item in sorted(zip(preferred, row, strict=True))]
                    preferred.sort()
                self._resolve_overlaps(row, preferred, [max(1.0, float(len(lines[item]))) for item in row])
        top = min(self.tops, default=0.0)
        self.tops = [other - top for other in self.tops]

    def _preferred_top(self, item: int, lines: Sequence[tuple[int, float]]) -> float:
        if not lines:
            return self.tops[item]
        return sum(self.tops[other] + difference for other, difference in lines) / len(lines)

    def _resolve_overlaps(
        self, row: Sequence[int], preferred: Sequence[float], weights: Sequence[float]
    ) -> None:
        """Set the heights nearest to the preferred ones without overlaps; neighbours may move as a block."""
        blocks: list[tuple[float, float, int]] = []  # shift, weight, how many
        before = [0.0]
        for above, item in pairwise(row):
            before.append(before[-1] + self.heights[above] + self._gap_between(above, item))
        for place, want, weight in zip(before, preferred, weights, strict=True):
            block = (want - place, weight, 1)
            while blocks and blocks[-1][0] > block[0]:
                shift, mass, count = blocks.pop()
                total = mass + block[1]
                block = ((shift * mass + block[0] * block[1]) / total, total, count + block[2])
            blocks.append(block)
        shifts = [shift for shift, _, count in blocks for _ in range(count)]
        for item, place, shift in zip(row, before, shifts, strict=True):
            self.tops[item] = place + shift

    def _gap_between(self, above: int, below: int) -> float:
        lanes = (above >= self._boxes) + (below >= self._boxes)
        return self._gap if not lanes else self._gap / (1 + lanes)

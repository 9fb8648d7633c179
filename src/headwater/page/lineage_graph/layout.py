"""Layout: where the boxes of a graph stand, in layers from left to right.

Lines that would go backwards do not count for the layers, and each layer is ordered so that few lines cross.
Then each box moves to where the lines to its rows are straightest, and no two of a layer come too close.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = ["Arrangement", "Link", "Point", "arrange", "forward", "rows"]


TURNS = 20  # through all layers; the best order on the way is kept


PATIENCE = 4  # turns without a better one, after which hardly any comes


Pair = tuple[int, int]


def forward(count: int, pairs: Iterable[Pair]) -> tuple[list[int], list[Pair]]:
    """An order of the items in which few pairs point back, and the pairs that do not (Eades, Lin and Smyth).

    Sources go to the front and sinks to the end; where there are only cycles left, the one goes to the front
    that has most before it to lose.
    """
    after: dict[int, set[int]] = defaultdict(set)
    before: dict[int, set[int]] = defaultdict(set)
    pairs = list(pairs)
    for source, target in pairs:
        after[source].add(target)
        before[target].add(source)
    left = dict.fromkeys(range(count))
    front: list[int] = []
    end: list[int] = []

    def take(item: int, to: list[int]) -> None:
        to.append(item)
        del left[item]
        for other in after[item]:
            before[other].discard(item)
        for other in before[item]:
            after[other].discard(item)

    while left:
        sinks = [item for item in left if not after[item]]
        for item in sinks:
            take(item, end)
        sources = [item for item in left if not before[item]]
        for item in sources:
            take(item, front)
        if left and not sinks and not sources:
            take(max(left, key=lambda item: (len(after[item]) - len(before[item]), -item)), front)
    order = front + end[::-1]
    places = {item: place for place, item in enumerate(order)}
    return order, [(source, target) for source, target in pairs if places[source] < places[target]]


def rows(layers: Sequence[int], edges: Sequence[Pair]) -> list[list[int]]:
    """The items of each layer, from above to below; `edges` lead from a layer to the next one."""
    found: dict[int, list[int]] = defaultdict(list)
    for item, layer in enumerate(layers):
        found[layer].append(item)
    current = [found[layer] for layer in sorted(found)]
    near: tuple[dict[int, list[int]], dict[int, list[int]]] = (defaultdict(list), defaultdict(list))
    for source, target in edges:
        near[0][target].append(source)
        near[1][source].append(target)
    best, fewest = [list(row) for row in current], _crossings(current, near[1])
    waited = 0
    for turn in range(TURNS):
        if not fewest or waited == PATIENCE:
            break
        side = near[turn % 2]
        places = _places(current)
        for row in current if turn % 2 == 0 else current[::-1]:
            # those without neighbours on this side stay where they are
            row.sort(key=lambda item: _middle(item, side, places))
            places.update((item, float(place)) for place, item in enumerate(row))
        crossings = _crossings(current, near[1])
        waited += 1
        if crossings < fewest:
            best, fewest, waited = [list(row) for row in current], crossings, 0
    return best


def _places(of: Iterable[Sequence[int]]) -> dict[int, float]:
    return {item: float(place) for row in of for place, item in enumerate(row)}


def _middle(item: int, side: dict[int, list[int]], places: dict[int, float]) -> float:
    neighbours = side.get(item)
    if not neighbours:
        return places[item]
    return sum(places[other] for other in neighbours) / len(neighbours)


def _crossings(of: Sequence[Sequence[int]], after: dict[int, list[int]]) -> int:
    """How many pairs of lines cross: for each line, those before it that end further below."""
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


SWEEPS = 8  # over all layers; after that hardly anything moves


LANE = 5.0  # pixels between lines that pass by a layer side by side


MAX_LANES = 48.0


class Link(NamedTuple):
    """A line from a row of one box to a row of another; the offsets are from the upper edges of the boxes."""

    source: int
    source_offset: float
    target: int
    target_offset: float


class Point(NamedTuple):
    """Where a line passes by a layer between its ends: the layer, and how high."""

    layer: int
    y: float


class Arrangement(NamedTuple):
    """For each box its layer and its upper edge; for each link the points between its ends."""

    layers: list[int]
    tops: list[float]
    ways: list[list[Point]]
    height: float


def arrange(heights: Sequence[float], links: Sequence[Link], *, gap: float = 28.0) -> Arrangement:
    """Stand boxes of these heights so that the links go from left to right and mostly straight."""
    between: dict[tuple[int, int], set[Link]] = defaultdict(set)
    for link in links:
        if link.source != link.target:
            between[(link.source, link.target)].add(link)
    pairs = sorted(between)
    layers = _layers(len(heights), pairs)
    chart = _Chart(list(heights), layers, gap)
    chains = {pair: chart.lay(pair, between[pair]) for pair in pairs}
    chart.order()
    chart.settle()
    ways = [
        [Point(chart.layers[lane], chart.tops[lane] + offset) for lane, offset in chains[pair].get(link, ())]
        if (pair := (link.source, link.target)) in chains
        else []
        for link in links
    ]
    count = len(heights)
    lowest = max((top + height for top, height in zip(chart.tops, chart.heights, strict=True)), default=0.0)
    return Arrangement(layers, chart.tops[:count], ways, lowest)


def _layers(count: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """The longest way to each box; a box that nothing leads to stands right before what it leads to."""
    order, kept = forward(count, pairs)
    followers: dict[int, list[int]] = defaultdict(list)
    for source, target in kept:
        followers[source].append(target)
    led_to = {target for _, target in kept}
    layers = [0] * count
    for box in order:
        for following in followers[box]:
            layers[following] = max(layers[following], layers[box] + 1)
    for box in reversed(order):
        if followers[box] and box not in led_to:
            layers[box] = min(layers[following] for following in followers[box]) - 1
    least = min(layers, default=0)
    return [layer - least for layer in layers]


class _Chart:
    """Boxes and, behind them in the same lists, the lanes in which long lines pass by a layer."""

    def __init__(self, heights: list[float], layers: list[int], gap: float) -> None:
        self.heights = heights
        self.layers = list(layers)
        self.tops = [0.0] * len(heights)
        self._gap = gap
        self._boxes = len(heights)
        self._edges: list[tuple[int, int]] = []
        self._ties: list[tuple[int, float, int, float]] = []
        self._rows: list[list[int]] = []

    def lay(self, pair: tuple[int, int], links: set[Link]) -> dict[Link, list[tuple[int, float]]]:
        """Lead the links of two boxes through the layers in between; the lanes of each, with its place."""
        source, target = pair
        mine = sorted(links, key=lambda link: (link.source_offset, link.target_offset))
        step = min(LANE, MAX_LANES / len(mine))
        between = range(self.layers[source] + 1, self.layers[target])
        lanes = [self._lane(layer, step * len(mine)) for layer in between]
        stops = [source, *lanes, target]
        self._edges += list(pairwise(stops))
        found: dict[Link, list[tuple[int, float]]] = {}
        for place, link in enumerate(mine):
            offset = step * (place + 0.5)
            offsets = [link.source_offset, *(offset for _ in lanes), link.target_offset]
            ends = list(zip(stops, offsets, strict=True))
            self._ties += [(*a, *b) for a, b in pairwise(ends)]
            found[link] = [(lane, offset) for lane in lanes]
        return found

    def _lane(self, layer: int, height: float) -> int:
        self.layers.append(layer)
        self.heights.append(height)
        self.tops.append(0.0)
        return len(self.layers) - 1

    def order(self) -> None:
        """Who stands above whom within each layer."""
        self._rows = rows(self.layers, self._edges)

    def settle(self) -> None:
        """How high each stands: near the mean of where its lines want it, never over its neighbours."""
        # for each item others, and the difference in height that is wanted
        ties: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for source, source_offset, target, target_offset in self._ties:
            ties[source].append((target, target_offset - source_offset))
            ties[target].append((source, source_offset - target_offset))
        for row in self._rows:
            self._stack(row, [self.tops[item] for item in row], [1.0] * len(row))
        for sweep in range(SWEEPS):
            rows = self._rows if sweep % 2 == 0 else self._rows[::-1]
            for row in rows:
                wanted = [self._wanted(item, ties[item]) for item in row]
                if sweep < SWEEPS // 2:  # lines that differ in their rows may ask for another order
                    row[:] = [item for _, item in sorted(zip(wanted, row, strict=True))]
                    wanted.sort()
                self._stack(row, wanted, [max(1.0, float(len(ties[item]))) for item in row])
        top = min(self.tops, default=0.0)
        self.tops = [each - top for each in self.tops]

    def _wanted(self, item: int, ties: Sequence[tuple[int, float]]) -> float:
        if not ties:
            return self.tops[item]
        return sum(self.tops[other] + difference for other, difference in ties) / len(ties)

    def _stack(self, row: Sequence[int], wanted: Sequence[float], weights: Sequence[float]) -> None:
        """The nearest heights to the wanted ones in which nobody overlaps; crowded neighbours move as one."""
        blocks: list[tuple[float, float, int]] = []  # shift, weight, how many
        before = [0.0]
        for above, item in pairwise(row):
            before.append(before[-1] + self.heights[above] + self._room(above, item))
        for place, want, weight in zip(before, wanted, weights, strict=True):
            block = (want - place, weight, 1)
            while blocks and blocks[-1][0] > block[0]:
                shift, mass, count = blocks.pop()
                total = mass + block[1]
                block = ((shift * mass + block[0] * block[1]) / total, total, count + block[2])
            blocks.append(block)
        shifts = [shift for shift, _, count in blocks for _ in range(count)]
        for item, place, shift in zip(row, before, shifts, strict=True):
            self.tops[item] = place + shift

    def _room(self, above: int, below: int) -> float:
        lanes = (above >= self._boxes) + (below >= self._boxes)
        return self._gap if not lanes else self._gap / (1 + lanes)

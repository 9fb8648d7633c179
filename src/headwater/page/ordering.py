"""Order in a layered drawing: which lines go backwards, and who stands above whom so that few lines cross."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence

__all__ = ["forward", "rows"]

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

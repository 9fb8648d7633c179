"""Sets of edges as bit masks: how a column depends on input columns, and which.

An edge is an input column (a bit) and a kind. A set is one integer a kind, so that the union of two sets of a
thousand edges each is a handful of machine words, and plans that are wide and deep at once stay cheap (G10).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = [
    "AGGREGATION",
    "CONDITIONAL",
    "COUNTED",
    "EMPTY",
    "FILTER",
    "GROUP_BY",
    "IDENTITY",
    "JOIN",
    "MASKED",
    "SORT",
    "TRANSFORMATION",
    "WINDOW",
    "Edges",
    "Kind",
    "bits",
    "kind",
    "kind_of",
    "opaque",
    "union",
    "union_step",
    "unknown",
    "unknown_rows",
]


class Kind(NamedTuple):
    """How an input is used: type and subtype of the spec, whether its value is hidden, a remark."""

    direct: bool
    subtype: str
    masking: bool = False
    note: str = ""


# The stronger one wins when a direct step follows another.
_RANKS = {"IDENTITY": 0, "TRANSFORMATION": 1, "AGGREGATION": 2, "UNKNOWN": 3}

# Kinds are numbered once per process. Only UNKNOWN and opaque ones are ever added, one for a class of node.
_kinds: list[Kind] = []
_numbers: dict[Kind, int] = {}
_composed: dict[tuple[int, int], int] = {}
_tables: dict[int, dict[int, int]] = {}


def kind(wanted: Kind) -> int:
    """The number of a kind."""
    found = _numbers.get(wanted)
    if found is None:
        _kinds.append(wanted)
        # two threads may add the same kind: both numbers then mean it, which does no harm
        found = _numbers.setdefault(wanted, len(_kinds) - 1)
        while _kinds[found] != wanted:
            found = _kinds.index(wanted)
    return found


def kind_of(number: int) -> Kind:
    """The kind that has a number."""
    return _kinds[number]


IDENTITY = kind(Kind(True, "IDENTITY"))
TRANSFORMATION = kind(Kind(True, "TRANSFORMATION"))
AGGREGATION = kind(Kind(True, "AGGREGATION"))
MASKED = kind(Kind(True, "TRANSFORMATION", True))
COUNTED = kind(Kind(True, "AGGREGATION", True))
CONDITIONAL = kind(Kind(False, "CONDITIONAL"))
WINDOW = kind(Kind(False, "WINDOW"))
JOIN = kind(Kind(False, "JOIN"))
FILTER = kind(Kind(False, "FILTER"))
GROUP_BY = kind(Kind(False, "GROUP_BY"))
SORT = kind(Kind(False, "SORT"))


def unknown(cls: str) -> int:
    """Values that come out of a node without a rule (G11)."""
    return kind(Kind(True, "UNKNOWN", note=f"no rule for {cls}"))


def unknown_rows(cls: str) -> int:
    """What a node without a rule may have used to choose rows (G11)."""
    return kind(Kind(False, "UNKNOWN", note=f"no rule for {cls}"))


def opaque(cls: str) -> int:
    """Values made by the user's own code out of everything it is given."""
    return kind(Kind(True, "TRANSFORMATION", note=f"opaque: {cls}"))


def _compose(edge: int, step: int) -> int:
    """An edge of kind `edge`, followed by `step`.

    An indirect step makes any edge indirect; a direct one keeps indirect edges and takes the stronger of two
    direct ones. Masking stays for good.
    """
    known = _composed.get((edge, step))
    if known is not None:
        return known
    before, after = _kinds[edge], _kinds[step]
    masking = before.masking or after.masking
    note = before.note or after.note
    if not after.direct:
        made = Kind(False, after.subtype, masking, note)
    elif not before.direct:
        made = Kind(False, before.subtype, masking, note)
    else:
        subtype = max(before.subtype, after.subtype, key=_RANKS.__getitem__)
        made = Kind(True, subtype, masking, note)
    return _composed.setdefault((edge, step), kind(made))


class Edges:
    """A set of edges, never changed once made: the bits of the inputs by the number of the kind."""

    __slots__ = ("_steps", "masks")

    def __init__(self, masks: dict[int, int]) -> None:
        self.masks = masks
        self._steps: dict[int, Edges] | None = None

    def step(self, number: int) -> Edges:
        """The same inputs after one more step; remembered, since columns share their inputs."""
        if not self.masks or number == IDENTITY:
            return self
        if self._steps is None:
            self._steps = {}
        made = self._steps.get(number)
        if made is None:
            masks: dict[int, int] = {}
            for old, mask in self.masks.items():
                new = _compose(old, number)
                masks[new] = masks.get(new, 0) | mask
            made = self if masks == self.masks else Edges(masks)
            self._steps[number] = made
        return made

    def all(self) -> int:
        """The bits of all inputs, whatever the kind."""
        mask = 0
        for one in self.masks.values():
            mask |= one
        return mask

    def __bool__(self) -> bool:
        return bool(self.masks)

    def __len__(self) -> int:
        return sum(mask.bit_count() for mask in self.masks.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edges) and self.masks == other.masks

    def __hash__(self) -> int:
        return hash(frozenset(self.masks.items()))


EMPTY = Edges({})


def union(*sets: Edges) -> Edges:
    """All edges of all sets; one of the sets itself where the others add nothing."""
    merged: dict[int, int] | None = None
    result = EMPTY
    for one in sets:
        if one is result or not one.masks:
            continue
        if merged is None and not result.masks:
            result = one
            continue
        if merged is None:
            merged = dict(result.masks)
        for number, mask in one.masks.items():
            merged[number] = merged.get(number, 0) | mask
    if merged is None or merged == result.masks:
        return result
    return Edges(merged)


def union_step(sets: list[Edges], number: int) -> Edges:
    """`union(*sets).step(number)` without the set in between: what every function of columns needs."""
    table = _tables.get(number)
    if table is None:
        table = _tables.setdefault(number, {})
    merged: dict[int, int] = {}
    for one in sets:
        for old, mask in one.masks.items():
            new = table.get(old)
            if new is None:
                new = table[old] = _compose(old, number)
            merged[new] = merged.get(new, 0) | mask
    if not merged:
        return EMPTY
    if len(sets) == 1 and merged == sets[0].masks:
        return sets[0]
    return Edges(merged)


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low

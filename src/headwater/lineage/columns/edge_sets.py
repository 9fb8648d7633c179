"""Sets of edges as bit masks: the input columns that a column depends on, by transformation.

An edge is an input column (a bit) and a transformation. A set is one integer for each transformation: the
union of two sets of a thousand edges each takes a few machine words, and wide and deep plans stay cheap
(G10).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from threading import Lock
from typing import NamedTuple


class Transformation(NamedTuple):
    """How an input is used: type and subtype of the specification, masking, and a note."""

    direct: bool
    subtype: str
    masking: bool = False
    note: str = ""


# Of two direct transformations in sequence, the stronger one remains.
_RANKS = {"IDENTITY": 0, "TRANSFORMATION": 1, "AGGREGATION": 2, "UNKNOWN": 3}

# Transformations are numbered once per process. Later ones are UNKNOWN or user code, one for a class of node.
_transformations: list[Transformation] = []
_numbers: dict[Transformation, int] = {}
_lock = Lock()


def number_of(wanted: Transformation) -> int:
    """The number of a transformation, assigned at its first use."""
    found = _numbers.get(wanted)
    if found is not None:
        return found
    with _lock:  # several threads build graphs: a number must mean the same to all of them
        if wanted not in _numbers:
            _transformations.append(wanted)
            _numbers[wanted] = len(_transformations) - 1
        return _numbers[wanted]


def transformation_of(number: int) -> Transformation:
    """The transformation with a number."""
    return _transformations[number]


IDENTITY = number_of(Transformation(True, "IDENTITY"))
TRANSFORMATION = number_of(Transformation(True, "TRANSFORMATION"))
AGGREGATION = number_of(Transformation(True, "AGGREGATION"))
MASKED = number_of(Transformation(True, "TRANSFORMATION", True))
COUNT = number_of(Transformation(True, "AGGREGATION", True))
CONDITIONAL = number_of(Transformation(False, "CONDITIONAL"))
WINDOW = number_of(Transformation(False, "WINDOW"))
JOIN = number_of(Transformation(False, "JOIN"))
FILTER = number_of(Transformation(False, "FILTER"))
GROUP_BY = number_of(Transformation(False, "GROUP_BY"))
SORT = number_of(Transformation(False, "SORT"))


def unknown(cls: str) -> int:
    """Values of a node without a rule (G11)."""
    return number_of(Transformation(True, "UNKNOWN", note=f"no rule for {cls}"))


def unknown_row_filter(cls: str) -> int:
    """Columns that a node without a rule may have used to choose rows (G11)."""
    return number_of(Transformation(False, "UNKNOWN", note=f"no rule for {cls}"))


def user_code(cls: str) -> int:
    """Values computed by user code from all of its inputs."""
    return number_of(Transformation(True, "TRANSFORMATION", note=f"opaque: {cls}"))


@cache
def compose(edge: int, step: int) -> int:
    """The transformation `edge` followed by the transformation `step`.

    An indirect step makes any edge indirect; a direct one keeps indirect edges and takes the stronger of two
    direct ones. Masking is never removed.
    """
    before, after = _transformations[edge], _transformations[step]
    masking = before.masking or after.masking
    note = before.note or after.note
    if not after.direct:
        made = Transformation(False, after.subtype, masking, note)
    elif not before.direct:
        made = Transformation(False, before.subtype, masking, note)
    else:
        subtype = max(before.subtype, after.subtype, key=_RANKS.__getitem__)
        made = Transformation(True, subtype, masking, note)
    return number_of(made)


class Edges:
    """An immutable set of edges: the bits of the inputs by the number of the transformation."""

    __slots__ = ("_steps", "masks")

    def __init__(self, masks: dict[int, int]) -> None:
        self.masks = masks
        self._steps: dict[int, Edges] | None = None

    def then(self, number: int) -> Edges:
        """The edges after one more transformation; cached, since columns share their inputs."""
        if not self.masks or number == IDENTITY:
            return self
        if self._steps is None:
            self._steps = {}
        made = self._steps.get(number)
        if made is None:
            masks: dict[int, int] = {}
            for old, mask in self.masks.items():
                new = compose(old, number)
                masks[new] = masks.get(new, 0) | mask
            made = self if masks == self.masks else Edges(masks)
            self._steps[number] = made
        return made

    def all(self) -> int:
        """The bits of all inputs of any transformation."""
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
    """The union of all sets; one of the sets itself if the others add nothing."""
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


def union_then(sets: list[Edges], number: int) -> Edges:
    """`union(*sets).then(number)` without the intermediate set; used for every function of columns."""
    merged: dict[int, int] = {}
    for one in sets:
        for old, mask in one.masks.items():
            new = compose(old, number)
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

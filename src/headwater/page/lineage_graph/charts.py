"""Sparklines and bars as SVG, without axes; the template adds the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Spark(NamedTuple):
    """A line and the area below it."""

    line: str
    area: str
    width: int
    height: int


class Bar(NamedTuple):
    """One value as a bar on the baseline."""

    x: float
    y: float
    width: float
    height: float


def spark(values: Sequence[float], width: int = 160, height: int = 36) -> Spark:
    """A line with the latest value at the right, scaled from zero to the highest value."""
    if len(values) < 2:
        values = [0.0, 0.0]
    most = max(*values, 1e-9)
    step = width / (len(values) - 1)
    points = [
        (round(i * step, 1), round(height - 2 - (height - 4) * v / most, 1)) for i, v in enumerate(values)
    ]
    line = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
    return Spark(line, f"{line}L{width} {height}L0 {height}Z", width, height)


def bars(values: Sequence[float | None], width: int, height: int) -> list[Bar]:
    """A bar for each value, oldest first; an unknown value leaves a gap."""
    most = max((value for value in values if value is not None), default=0) or 1
    room = width / max(1, len(values))
    found = []
    for place, value in enumerate(values):
        if value is None:
            continue
        tall = max(1.5, height * value / most)
        thick = min(room * 0.72, 22.0)
        found.append(Bar(round(place * room, 2), round(height - tall, 2), round(thick, 2), round(tall, 2)))
    return found

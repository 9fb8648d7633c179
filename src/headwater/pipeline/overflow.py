"""Fields without a column: which objects hold them, so that they can be kept as they are in `_unmapped_data`.

A few are named one by one. Many (an object whose keys are user ids) are kept as the rest of their object: a
parser with ten thousand fields would be slower than everything else together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headwater.pipeline.header import HeaderColumn, Json, Node, Seen
from headwater.pipeline.names import parse_pointer
from headwater.settings import MappingSettings

__all__ = ["Overflow", "overflow_of"]

FEW = 64

Path = tuple[str, ...]


@dataclass
class Overflow:
    """What has no column: columns that are named, and objects of which the rest is kept.

    `hidden` are paths that must not come back with the rest: they were removed, or moved elsewhere.
    """

    columns: list[HeaderColumn] = field(default_factory=list)
    rests: list[Path] = field(default_factory=list)
    hidden: list[Path] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.columns or self.rests)


def overflow_of(
    root: Node, chosen: Iterable[HeaderColumn], surplus: list[HeaderColumn], mapping: MappingSettings
) -> Overflow:
    """Where the surplus columns, and what the scan did not tell apart, are to be found."""
    named = {path[:length] for path in _paths(chosen) for length in range(len(path))} | {()}
    rests = set(_crowded(root, ())) if mapping.keep_unmapped else set()
    columns = surplus
    if len(surplus) > FEW:
        columns = [column for column in surplus if not list(_paths([column]))]
        # the deepest object of which something else is read by name: what is below it is kept whole
        rests |= {_deepest(path, named) for path in _paths(surplus)}
    rests = {_deepest((*path, ""), named) for path in rests}
    gone = [parse_pointer(line.src) for line in mapping.fields if line.action in ("remove", "move")]
    hidden = [path for path in gone if any(path[: len(rest)] == rest for rest in rests)] if rests else []
    for path in hidden:
        for length in range(1, len(path)):
            if any(path[: len(rest)] == rest and len(rest) < length for rest in rests):
                rests.add(path[:length])
    return Overflow(columns, sorted(rests), hidden)


def _deepest(path: Path, named: set[Path]) -> Path:
    return next(path[:length] for length in range(len(path) - 1, -1, -1) if path[:length] in named)


def _crowded(node: Node, path: Path) -> Iterator[Path]:
    if Seen.MORE in node.seen and isinstance(node.origin, Json):
        yield path
    for name, child in node.children.items():
        yield from _crowded(child, (*path, name))


def _paths(columns: Iterable[HeaderColumn]) -> Iterator[Path]:
    for column in columns:
        for leaf in column.leaves:
            for node in leaf.nodes:
                if isinstance(node.origin, Json):
                    yield node.origin.path

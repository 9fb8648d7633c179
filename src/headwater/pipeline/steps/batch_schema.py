"""The header of a batch (seed 003: BatchHeader): its fields, their kinds, and the columns they become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any

import msgspec

from headwater.destinations.column_types import Kind, kind_named, promote_all
from headwater.destinations.table import Column
from headwater.pipeline.steps.names import column_name

__all__ = [
    "Constant",
    "HeaderColumn",
    "Json",
    "Leaf",
    "Lookup",
    "Node",
    "Scanned",
    "Seen",
    "columns_of",
]

MAX_DEPTH = 32
"""Objects below this depth stay JSON text."""
MAX_NODES = 20_000
"""Paths that are told apart in a batch; what is beyond goes to `_unmapped_data` (G8)."""


class Seen(IntFlag):
    """What the values of a path were, as Scan.java notes it."""

    BOOL = 1
    INT64 = 2
    FLOAT64 = 4
    STRING = 8
    TIMESTAMP = 16
    BIG = 32
    ARRAY = 64
    OBJECT = 128
    HUGE = 256
    DEEP = 512
    MORE = 1024


NOTHING = Seen(0)
TEXT = Seen.STRING | Seen.TIMESTAMP
PLAIN = Seen.BOOL | Seen.INT64 | Seen.FLOAT64 | Seen.BIG | Seen.ARRAY | Seen.DEEP
VALUES = TEXT | PLAIN
_KINDS = {
    Seen.BOOL: Kind.BOOL,
    Seen.INT64: Kind.INT64,
    Seen.FLOAT64: Kind.FLOAT64,
    Seen.STRING: Kind.STRING,
    Seen.TIMESTAMP: Kind.TIMESTAMP,
    # All digits are kept as text; a double would lose most of them.
    Seen.BIG: Kind.STRING,
    Seen.ARRAY: Kind.STRING,
    Seen.DEEP: Kind.STRING,
    Seen.OBJECT: Kind.STRING,
}


@dataclass(frozen=True)
class Json:
    """A value of the event, by its path."""

    path: tuple[str, ...]


@dataclass(frozen=True)
class Lookup:
    """A value that an enrichment rule found: number of the rule, path in its result."""

    rule: int
    path: tuple[str, ...]


@dataclass(frozen=True)
class Constant:
    """A value of the mapping, as the text that JSON would have for it (strings without their quotes)."""

    text: str


Origin = Json | Lookup | Constant


@dataclass
class Node:
    """A path of the batch: what was seen there and below."""

    origin: Origin
    seen: Seen = NOTHING
    children: dict[str, Node] = field(default_factory=dict)
    type: str = ""
    column_type: str = ""
    fallbacks: list[Node] = field(default_factory=list)
    """What takes its place in events that do not have it."""

    def find(self, path: Sequence[str]) -> Node | None:
        node: Node | None = self
        for part in path:
            node = node.children.get(part) if node else None
        return node


@dataclass
class Scanned:
    """What a scan found: counts of lines, and the tree of fields in the order in which they first came."""

    events: int = 0
    bad: int = 0
    blank: int = 0
    browser: int = 0
    skipped: int = 0
    root: Node = field(default_factory=lambda: Node(Json(())))

    @classmethod
    def of(cls, answers: Iterable[str | bytes]) -> Scanned:
        """Merge what the partitions answered, in their order."""
        return cls.by_table(answers).get("") or cls()

    @classmethod
    def by_table(cls, answers: Iterable[str | bytes]) -> dict[str, Scanned]:
        """The same for each table that the lines go to; those that go to none are under the empty name.

        Files are merged in the order of their numbers.
        """
        found = sorted(map(msgspec.json.decode, answers), key=lambda answer: int(answer["file"]))
        return cls._gathered(found)

    @classmethod
    def by_file(cls, answers: Iterable[str | bytes]) -> dict[int, dict[str, Scanned]]:
        """The same for each file and table."""
        files: dict[int, list[dict[str, Any]]] = {}
        for answer in map(msgspec.json.decode, answers):
            files.setdefault(answer["file"], []).append(answer)
        return {number: cls._gathered(own) for number, own in files.items()}

    @classmethod
    def _gathered(cls, answers: Iterable[dict[str, Any]]) -> dict[str, Scanned]:
        tables: dict[str, Scanned] = {}
        budgets: dict[str, list[int]] = {}
        for found in answers:
            table = found["table"]
            scanned = tables.setdefault(table, cls())
            scanned.events += found["events"]
            scanned.bad += found["bad"]
            scanned.blank += found["blank"]
            scanned.browser += found["browser"]
            scanned.skipped += found["skipped"]
            _merge(scanned.root, found["tree"], (), budgets.setdefault(table, [MAX_NODES]))
        return tables


def _merge(node: Node, tree: Any, path: tuple[str, ...], budget: list[int]) -> None:
    node.seen |= Seen(tree[0])
    for name, subtree in tree[1].items():
        child = node.children.get(name)
        if child is None:
            if not subtree[0]:
                continue  # only nulls, or only in lines that were no events
            if not budget[0]:
                node.seen |= Seen.MORE
                continue
            budget[0] -= 1
            child = node.children[name] = Node(Json((*path, name)))
        _merge(child, subtree, (*path, name), budget)


@dataclass
class Leaf:
    """A path of the mapped event that becomes a column.

    Where several nodes feed it, the first that has a value in an event wins.
    """

    path: tuple[str, ...]
    nodes: list[Node]
    type: str = ""
    column_type: str = ""
    is_text: bool = False
    """Objects are kept whole, as JSON text."""


@dataclass
class HeaderColumn:
    """A column of the batch: its leaves, in the order of their right to it.

    Several leaves share a column where their paths give one name. In an event that has two of them the first
    wins, and the other's value goes to `_unmapped_data`.
    """

    name: str
    kind: Kind
    leaves: list[Leaf]
    sql_type: str = ""
    cast_type: str = ""

    @property
    def column(self) -> Column:
        return Column(self.name, self.kind, self.sql_type, self.cast_type)


def columns_of(leaves: Iterable[Leaf], max_identifier_length: int) -> dict[str, HeaderColumn]:
    """The columns that leaves become, with the kind of each by the typecast tree."""
    by_name: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        by_name.setdefault(column_name(leaf.path, max_identifier_length), []).append(leaf)
    columns = {}
    for name, sharing in by_name.items():
        # The path that is the name itself has the first right, then their order: a rule, not chance.
        sharing.sort(key=lambda leaf: ("_".join(leaf.path) != name, leaf.path))
        columns[name] = _column(name, sharing)
    return columns


def _column(name: str, leaves: list[Leaf]) -> HeaderColumn:
    explicit = next((leaf for leaf in leaves if leaf.type or leaf.column_type), None)
    kind = promote_all(kind for leaf in leaves for kind in _kinds(leaf))
    if explicit is None:
        return HeaderColumn(name, kind, leaves)
    named = kind_named(explicit.type) if explicit.type else None
    if named is not None:
        return HeaderColumn(name, named, leaves, explicit.column_type)
    if explicit.column_type:
        return HeaderColumn(name, kind, leaves, explicit.column_type, explicit.type)
    return HeaderColumn(name, kind, leaves, explicit.type)


def _kinds(leaf: Leaf) -> Iterator[Kind]:
    for node in leaf.nodes:
        for flag, kind in _KINDS.items():
            if flag in node.seen and (flag is not Seen.OBJECT or leaf.is_text):
                yield kind

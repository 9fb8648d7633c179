"""The projection: lines of a batch become typed rows of a table, as one Spark expression per column.

No Python function sees a row. What does not fit its column goes to `_unmapped_data`, under the column's name,
and the row lands (G6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headwater.destinations.base import Capabilities
from headwater.destinations.column_types import Kind
from headwater.destinations.table import ROW, UNMAPPED, Column, Table
from headwater.pipeline.steps.batch_schema import PLAIN, TEXT, HeaderColumn, Json, Leaf, Lookup, Node, Seen
from headwater.pipeline.steps.convert import (
    Read,
    can_fail,
    choose_read,
    identifier,
    json_sql,
    literal,
    value_sql,
)
from headwater.pipeline.steps.enrich.lookup_join import Joined, want_key
from headwater.pipeline.steps.names import parse_pointer, pointer
from headwater.pipeline.steps.parse import Reading
from headwater.pipeline.steps.read_lines import LINE
from headwater.settings import MappingSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Fit", "Overflow", "fit", "overflow_of", "project"]


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


@dataclass
class Fit:
    """What a batch brings and what a table has, put together."""

    columns: dict[str, HeaderColumn] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)
    """What each column is staged as."""
    new: list[Column] = field(default_factory=list)
    overflow: Overflow = field(default_factory=Overflow)
    as_decimal: bool = False

    @property
    def needs_unmapped(self) -> bool:
        """Whether a value of the batch may have no column that takes it."""
        return bool(self.overflow) or any(
            len(column.leaves) > 1
            or any(self.can_fail(leaf, node, name) for leaf in column.leaves for node in leaf.nodes)
            for name, column in self.columns.items()
        )

    def can_fail(self, leaf: Leaf, node: Node, name: str) -> bool:
        return can_fail(_seen(leaf, node), self.kinds[name], as_decimal=self.as_decimal)


def fit(
    root: Node,
    columns: dict[str, HeaderColumn],
    existing: Table | None,
    *,
    capabilities: Capabilities,
    max_columns: int,
    mapping: MappingSettings,
    first: Iterable[str] = (),
) -> Fit:
    """Decide the kind of each column: that of the table if it has the column, else the batch's own.

    New columns are taken in the order of their first appearance, those of the key (`first`) before all, as
    long as there is room. The others are overflow.
    """
    fold = str.lower if capabilities.folds_case else str
    there = {fold(name): column for name, column in (existing.columns if existing else {}).items()}
    room = min(max_columns, capabilities.max_columns) - len(there)
    if UNMAPPED not in there:
        room -= 1  # whatever comes, there must be a place for what does not fit
    found = Fit(as_decimal=capabilities.float_as_decimal)
    surplus = []
    order = [name for name in first if name in columns]
    for name in [*order, *(name for name in columns if name not in order)]:
        column = columns[name]
        if (stored := there.get(fold(name))) is not None:
            found.kinds[name] = stored.kind
        elif room > 0:
            room -= 1
            found.kinds[name] = column.kind
            found.new.append(column.column)
        else:
            surplus.append(column)
            continue
        found.columns[name] = column
    found.overflow = overflow_of(root, found.columns.values(), surplus, mapping)
    return found


def project(lines: DataFrame, found: Fit, joined: Sequence[Joined] = ()) -> DataFrame:
    """The rows: the batch's columns, `_unmapped_data` if anything can go there, and the row's number."""
    reading = Reading(LINE)
    for name, column in found.columns.items():
        for leaf, node, origin in _json_nodes(column):
            read = choose_read(_seen(leaf, node), found.kinds[name], as_decimal=found.as_decimal)
            reading.want(origin.path, read)
    for column in found.overflow.columns:
        for leaf, node, origin in _json_nodes(column):
            reading.want(origin.path, _raw(_seen(leaf, node)))
    for each in joined:
        want_key(reading, each.rule)
    for path in found.overflow.hidden:
        reading.want(path, "string")
    for path in found.overflow.rests:
        reading.want_rest(path)
    reading.plan()
    rows = _Rows(reading, found, {each.number: each.name for each in joined})
    selected = [f"{rows.value(column)} AS {identifier(name)}" for name, column in found.columns.items()]
    if found.needs_unmapped:
        selected.append(f"{rows.unmapped()} AS {identifier(UNMAPPED)}")
    events = reading.apply(lines)
    for each in joined:
        events = each.join(events, reading)
    return events.selectExpr(*selected, ROW)


class _Sql(NamedTuple):
    """A value as its column has it, as JSON, and whether the event has one."""

    value: str
    json: str
    is_present: str


@dataclass
class _Rows:
    """The SQL of one projection."""

    reading: Reading
    found: Fit
    lookups: dict[int, str]

    def access(self, leaf: Leaf, node: Node, kind: Kind) -> _Sql:
        seen = _seen(leaf, node)
        read: Read = "string"
        if isinstance(node.origin, Json):
            path = self.reading.path(node.origin.path)
            sql, read = path.sql, path.read
        elif isinstance(node.origin, Lookup):
            parts = [self.lookups[node.origin.rule], *map(identifier, node.origin.path)]
            sql = f"cast({'.'.join(parts)} AS string)"
        else:
            sql = literal(node.origin.text)
        text = json_sql(sql, read, seen)
        # JSON's null is a value to a variant
        is_present = f"{sql} IS NOT NULL" if read != "variant" else f"coalesce({text}, 'null') != 'null'"
        return _Sql(value_sql(sql, read, seen, kind, as_decimal=self.found.as_decimal), text, is_present)

    def value(self, column: HeaderColumn) -> str:
        """The column's value: of the first leaf that the event has."""
        kind = self.found.kinds[column.name]
        parts = [self.access(leaf, node, kind) for leaf in column.leaves for node in leaf.nodes]
        if len(parts) == 1:
            return parts[0].value
        return "CASE " + " ".join(f"WHEN {part.is_present} THEN {part.value}" for part in parts) + " END"

    def unmapped(self) -> str:
        """A JSON object of all that has no place, or NULL."""
        entries = [entry for column in self.found.columns.values() for entry in self.misfits(column)]
        for column in self.found.overflow.columns:
            for leaf in column.leaves:
                for node in leaf.nodes[:1]:
                    part = self.access(leaf, node, Kind.STRING)
                    entries.append(_entry(column.name, part.json, part.is_present))
        for path in self.found.overflow.rests:
            rest = self.reading.path(path).rest_sql
            text = f"to_json({rest})"
            if path:
                entries.append(_entry("_".join(path), text, f"size({rest}) > 0"))
            else:
                entries.append(f"if(size({rest}) > 0, substring({text}, 2, length({text}) - 2), NULL)")
        if not entries:
            return "cast(NULL AS string)"
        return f"nullif(concat('{{', concat_ws(',', {', '.join(entries)}), '}}'), '{{}}')"

    def misfits(self, column: HeaderColumn) -> list[str]:
        """What of a column's values has to go elsewhere: it does not convert, or another leaf was first."""
        entries = []
        kind = self.found.kinds[column.name]
        taken: list[str] = []
        for leaf in column.leaves:
            own: list[str] = []
            for node in leaf.nodes:
                part = self.access(leaf, node, kind)
                lost = [f"({other})" for other in taken]
                if self.found.can_fail(leaf, node, column.name):
                    lost.append(f"({part.value}) IS NULL")
                # a node that was overlaid by a moved one is gone by the user's own wish
                overlaid = "".join(f" AND NOT ({other})" for other in own)
                if lost:
                    condition = f"{part.is_present}{overlaid} AND ({' OR '.join(lost)})"
                    # several may lose to one: each is told by its own path
                    name = pointer(leaf.path) if taken else column.name
                    entries.append(_entry(name, part.json, condition))
                own.append(part.is_present)
            taken.extend(own)
        return entries


def _entry(name: str, text: str, condition: str) -> str:
    key = literal(msgspec.json.encode(name).decode() + ":")
    return f"if({condition}, concat({key}, {text}), NULL)"


def _json_nodes(column: HeaderColumn) -> list[tuple[Leaf, Node, Json]]:
    return [
        (leaf, node, node.origin)
        for leaf in column.leaves
        for node in leaf.nodes
        if isinstance(node.origin, Json)
    ]


def _seen(leaf: Leaf, node: Node) -> Seen:
    """Objects that are kept whole are text, like arrays."""
    return (node.seen & ~Seen.OBJECT) | Seen.DEEP if leaf.is_text and Seen.OBJECT in node.seen else node.seen


def _raw(seen: Seen) -> Read:
    """As what to read a value of which only the JSON is wanted."""
    return "variant" if Seen.OBJECT in seen or (seen & TEXT and seen & PLAIN) else "string"

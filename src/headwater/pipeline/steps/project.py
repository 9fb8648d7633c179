"""The projection: events become typed rows of a table, with one Spark expression per column.

No Python function computes a value of a row. A value that its column cannot hold goes to `_unmapped_data`,
under the column's name or its JSON pointer, and the row is stored (G6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headwater.destinations.column_types import Kind
from headwater.destinations.table import ROW, UNMAPPED
from headwater.pipeline.steps.batch_schema import BatchColumn
from headwater.pipeline.steps.convert import (
    identifier,
    literal,
    made_json_sql,
    made_value_sql,
    may_not_fit,
)
from headwater.pipeline.steps.enrich.lookup_join import LookupTable
from headwater.pipeline.steps.field_tree import Constant, Field, Json, Lookup, pointer
from headwater.pipeline.steps.fit_table import TableFit, made_types
from headwater.pipeline.steps.mapping import MappedField
from headwater.pipeline.steps.parse_events import (
    IS_EVENT,
    EventParser,
    FieldCollector,
    TextNumbers,
    merged_rest,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def project(
    lines: DataFrame,
    fit: TableFit,
    lookups: Sequence[LookupTable] = (),
    *,
    text_numbers: TextNumbers = "canonical",
    with_unmapped: bool = False,
    collector: FieldCollector | None = None,
) -> DataFrame:
    """The rows: the columns of the batch, `_unmapped_data` if a value may go there, and the row number."""
    parser = EventParser(text_numbers)
    rows = _RowSql(parser, {lookup.number: lookup.name for lookup in lookups})
    selected = [
        f"{rows.value(column, fit.kinds[name])} AS {identifier(name)}" for name, column in fit.columns.items()
    ]
    for column in fit.overflow.columns:
        rows.without_room(column)
    for path in fit.overflow.excluded_paths:
        parser.put_aside(path, "")
    for path in fit.overflow.kept_objects:
        parser.keep_other_fields(path, "_".join(path))
    if fit.needs_unmapped or with_unmapped:
        selected.append(f"{merged_rest(rows.entries)} AS {identifier(UNMAPPED)}")
    keys = [lookup.key(parser) for lookup in lookups]
    parsed = parser.apply(lines, collector).where(IS_EVENT)
    for lookup, key in zip(lookups, keys, strict=True):
        parsed = lookup.join(parsed, key)
    return parsed.selectExpr(*selected, ROW)


class _Source(NamedTuple):
    """A field that fills a column, and the place among the mapped fields that share it."""

    mapped: MappedField
    field: Field
    place: int


@dataclass
class _RowSql:
    """The SQL of one projection. Values that the parser itself does not put aside are `entries`."""

    parser: EventParser
    lookups: dict[int, str]
    entries: list[str] = field(default_factory=list)

    def value(self, column: BatchColumn, kind: Kind) -> str:
        """The value of a column: that of the first field that the event has."""
        sources = _sources(column)
        if len(sources) == 1 and isinstance(one := sources[0].field.source, Json):
            return self.parser.value(one.path, kind, aside=column.name, is_whole=sources[0].mapped.is_text)
        parts: list[str] = []
        group = self.parser.new_group()
        before: list[str] = []  # SQL of our own values that come first
        for rank, source in enumerate(sources):
            made = self._made(source.field)
            if made is not None:
                parts.append(made_value_sql(made, kind))
                before.append(made)
                if isinstance(source.field.source, Constant) or may_not_fit(made_types(source.field), kind):
                    name = column.name if source.place == 0 else pointer(source.mapped.path)
                    json = made_json_sql(made, source.field.json_types)
                    condition = f"({made_value_sql(made, kind)}) IS NULL AND {made} IS NOT NULL"
                    self._entry(name, json, condition)
                continue
            assert isinstance(source.field.source, Json)
            path, is_whole = source.field.source.path, source.mapped.is_text
            replaced = _constant(sources[:rank])
            if replaced is not None:
                # what a constant replaces is dropped, as the mapping says; of another field it is kept
                name = "" if replaced.mapped is source.mapped else pointer(path)
                self.parser.put_aside(path, name, is_whole=is_whole)
                continue
            name = column.name if source.place == 0 else pointer(source.mapped.path)
            if not before:
                value = self.parser.value(path, kind, aside=name, is_whole=is_whole, group=group, rank=rank)
            else:
                # a looked-up value was moved over it
                value = self.parser.value(path, kind, is_whole=is_whole, group=group, rank=rank)
                text = self.parser.value(path, Kind.JSON, is_whole=is_whole)
                taken = " OR ".join(f"{each} IS NOT NULL" for each in before)
                self._entry(pointer(path), text, f"{text} IS NOT NULL AND ({taken} OR {value} IS NULL)")
            parts.append(value)
        return parts[0] if len(parts) == 1 else f"coalesce({', '.join(parts)})"

    def without_room(self, column: BatchColumn) -> None:
        """Puts the values of a column without room aside."""
        sources = _sources(column)
        has_fields = any(isinstance(source.field.source, Json) for source in sources)
        group = self.parser.new_group() if len(sources) > 1 else -1
        for rank, source in enumerate(sources):
            if not isinstance(source.field.source, Json):
                continue
            path, is_whole = source.field.source.path, source.mapped.is_text
            replaced = _constant(sources[:rank])
            name = column.name if source.place == 0 else pointer(source.mapped.path)
            if replaced is not None:
                name = "" if replaced.mapped is source.mapped else pointer(path)
            self.parser.put_aside(path, name, is_whole=is_whole, group=group, rank=rank)
        for source in sources:
            made = self._made(source.field)
            if made is not None and (not has_fields or isinstance(source.field.source, Constant)):
                self._entry(column.name, made_json_sql(made, source.field.json_types), f"{made} IS NOT NULL")
                break

    def _made(self, found: Field) -> str | None:
        """SQL of the text of a value of ours; None for a field of the event."""
        match found.source:
            case Lookup(rule, path):
                parts = [self.lookups[rule], *map(identifier, path)]
                return f"cast({'.'.join(parts)} AS string)"
            case Constant(text):
                return literal(text)
        return None

    def _entry(self, name: str, json: str, condition: str) -> None:
        key = literal(msgspec.json.encode(name).decode() + ":")
        self.entries.append(f"if({condition}, concat({key}, {json}), NULL)")


def _sources(column: BatchColumn) -> list[_Source]:
    return [
        _Source(mapped, each, place) for place, mapped in enumerate(column.mapped) for each in mapped.fields
    ]


def _constant(sources: Sequence[_Source]) -> _Source | None:
    """The constant among fields, which every event has."""
    return next((each for each in sources if isinstance(each.field.source, Constant)), None)

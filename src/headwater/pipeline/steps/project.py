"""The projection: events become typed rows of a table, with one Spark expression per column.

No Python function computes a value of a row. A value that does not fit its column goes to `_unmapped_data`,
under the column's name or its JSON pointer, and the row is stored (G6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headwater.destinations.column_types import Kind
from headwater.destinations.table import ROW, UNMAPPED
from headwater.pipeline.steps.batch_schema import BatchColumn
from headwater.pipeline.steps.convert import (
    ParseAs,
    identifier,
    literal,
    original_json_sql,
    parse_type,
    value_sql,
)
from headwater.pipeline.steps.enrich.lookup_join import LookupTable, request_lookup_key
from headwater.pipeline.steps.field_tree import PLAIN, TEXT, Field, Json, JsonTypes, Lookup, pointer
from headwater.pipeline.steps.fit_table import TableFit, json_types_of
from headwater.pipeline.steps.mapping import MappedField
from headwater.pipeline.steps.parse_events import FieldParser
from headwater.pipeline.steps.read_lines import LINE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def project(events: DataFrame, fit: TableFit, lookups: Sequence[LookupTable] = ()) -> DataFrame:
    """The rows: the columns of the batch, `_unmapped_data` if a value may go there, and the row number."""
    parser = FieldParser(LINE)
    for name, column in fit.columns.items():
        for mapped, each, source in _json_fields(column):
            parser.request(source.path, parse_type(json_types_of(mapped, each), fit.kinds[name]))
    for column in fit.overflow.columns:
        for mapped, each, source in _json_fields(column):
            parser.request(source.path, _raw_type(json_types_of(mapped, each)))
    for lookup in lookups:
        request_lookup_key(parser, lookup.rule)
    for path in fit.overflow.excluded_paths:
        parser.request(path, "string")
    for path in fit.overflow.kept_objects:
        parser.request_other_fields(path)
    parser.plan()
    rows = _RowSql(parser, fit, {lookup.number: lookup.name for lookup in lookups})
    selected = [f"{rows.value(column)} AS {identifier(name)}" for name, column in fit.columns.items()]
    if fit.needs_unmapped:
        selected.append(f"{rows.unmapped()} AS {identifier(UNMAPPED)}")
    parsed = parser.apply(events)
    for lookup in lookups:
        parsed = lookup.join(parsed, parser)
    return parsed.selectExpr(*selected, ROW)


class _ValueSql(NamedTuple):
    """A value in its column's type, as JSON, and whether the event has it."""

    value: str
    json: str
    is_present: str


@dataclass
class _RowSql:
    """The SQL of one projection."""

    parser: FieldParser
    fit: TableFit
    lookups: dict[int, str]

    def access(self, mapped: MappedField, source: Field, kind: Kind) -> _ValueSql:
        json_types = json_types_of(mapped, source)
        parsed_as: ParseAs = "string"
        if isinstance(source.source, Json):
            path = self.parser.path(source.source.path)
            sql, parsed_as = path.sql, path.parse_as
        elif isinstance(source.source, Lookup):
            parts = [self.lookups[source.source.rule], *map(identifier, source.source.path)]
            sql = f"cast({'.'.join(parts)} AS string)"
        else:
            sql = literal(source.source.text)
        text = original_json_sql(sql, parsed_as, json_types)
        # in a variant JSON's null is a value
        is_present = f"{sql} IS NOT NULL" if parsed_as != "variant" else f"coalesce({text}, 'null') != 'null'"
        return _ValueSql(value_sql(sql, parsed_as, json_types, kind), text, is_present)

    def value(self, column: BatchColumn) -> str:
        """The value of a column: that of the first field that the event has."""
        kind = self.fit.kinds[column.name]
        parts = [self.access(mapped, each, kind) for mapped in column.mapped for each in mapped.fields]
        if len(parts) == 1:
            return parts[0].value
        return "CASE " + " ".join(f"WHEN {part.is_present} THEN {part.value}" for part in parts) + " END"

    def unmapped(self) -> str:
        """A JSON object of all values without a column, or NULL."""
        entries = [entry for column in self.fit.columns.values() for entry in self.not_fitting(column)]
        for column in self.fit.overflow.columns:
            for mapped in column.mapped:
                for each in mapped.fields[:1]:
                    part = self.access(mapped, each, Kind.STRING)
                    entries.append(_entry(column.name, part.json, part.is_present))
        for path in self.fit.overflow.kept_objects:
            fields = self.parser.path(path).other_fields_sql
            text = f"to_json({fields})"
            if path:
                entries.append(_entry("_".join(path), text, f"size({fields}) > 0"))
            else:
                entries.append(f"if(size({fields}) > 0, substring({text}, 2, length({text}) - 2), NULL)")
        if not entries:
            return "cast(NULL AS string)"
        return f"nullif(concat('{{', concat_ws(',', {', '.join(entries)}), '}}'), '{{}}')"

    def not_fitting(self, column: BatchColumn) -> list[str]:
        """Entries for values that do not convert, or whose column another field of the event fills."""
        entries = []
        kind = self.fit.kinds[column.name]
        filled_by: list[str] = []
        for mapped in column.mapped:
            own: list[str] = []
            for each in mapped.fields:
                part = self.access(mapped, each, kind)
                lost = [f"({other})" for other in filled_by]
                if self.fit.may_not_fit(mapped, each, column.name):
                    lost.append(f"({part.value}) IS NULL")
                # a field that a moved one replaces is dropped, as the mapping says
                replaced = "".join(f" AND NOT ({other})" for other in own)
                if lost:
                    condition = f"{part.is_present}{replaced} AND ({' OR '.join(lost)})"
                    # several may lose to one: each is stored under its own path
                    name = pointer(mapped.path) if filled_by else column.name
                    entries.append(_entry(name, part.json, condition))
                own.append(part.is_present)
            filled_by.extend(own)
        return entries


def _entry(name: str, text: str, condition: str) -> str:
    key = literal(msgspec.json.encode(name).decode() + ":")
    return f"if({condition}, concat({key}, {text}), NULL)"


def _json_fields(column: BatchColumn) -> list[tuple[MappedField, Field, Json]]:
    return [
        (mapped, each, each.source)
        for mapped in column.mapped
        for each in mapped.fields
        if isinstance(each.source, Json)
    ]


def _raw_type(json_types: JsonTypes) -> ParseAs:
    """The type that keeps the JSON of a value."""
    is_mixed = JsonTypes.OBJECT in json_types or (json_types & TEXT and json_types & PLAIN)
    return "variant" if is_mixed else "string"

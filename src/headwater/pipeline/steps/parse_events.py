"""The parse step: which fields the lines have, and the values of the fields that a batch needs.

`find_fields` reads every line once in the JVM (Scan.java). `FieldParser` then takes the needed paths from the
lines with one `from_json` for each object that it parses. A path that is an object in some events and a value
in others, or an object of which not every field has a column, is read as it stands and parsed a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.pipeline.spark import compiled_classes
from headwater.pipeline.steps.convert import ParseAs, is_object, literal
from headwater.pipeline.steps.field_tree import BatchFields
from headwater.pipeline.steps.field_tree import Path as FieldPath
from headwater.pipeline.steps.read_lines import LINE, REASON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPTIONS = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false", "mode": "PERMISSIVE"}
_TYPES: dict[ParseAs, str] = {
    "boolean": "boolean",
    "bigint": "long",
    "double": "double",
    "string": "string",
    "variant": "variant",
}


def find_fields(lines: DataFrame, browser_keys: str = "") -> BatchFields:
    """Counts the events among the lines, and finds their fields and the JSON types of these."""
    return BatchFields.merged(compiled_classes.scan(lines, LINE, browser_keys=browser_keys))


def events_only(lines: DataFrame, fields: BatchFields) -> DataFrame:
    """The lines that are events. Costs nothing where all are."""
    if not fields.malformed and not fields.blank:
        return lines
    return lines.where(compiled_classes.event_check(lines, LINE).isNull())


def malformed_lines(lines: DataFrame) -> DataFrame:
    """The lines that are neither events nor blank, with the reason."""
    checked = lines.withColumn(REASON, compiled_classes.event_check(lines, LINE))
    return checked.where(f"{REASON} IS NOT NULL AND {REASON} != ''")


@dataclass
class ParsedPath:
    """One path that is parsed. `sql` reads its value, once the parser is planned."""

    types: set[ParseAs] = field(default_factory=set)
    children: dict[str, ParsedPath] = field(default_factory=dict)
    needs_other_fields: bool = False
    sql: str = ""
    other_fields_sql: str = ""

    @property
    def parse_as(self) -> ParseAs:
        """The requested type. Of different ones a variant wins; otherwise it is text."""
        if "variant" in self.types:
            return "variant"
        return next(iter(self.types)) if len(self.types) == 1 else "string"


@dataclass
class _Parse:
    alias: str
    text: str
    schema: Any


class FieldParser:
    """The paths of a projection, template or lookup: `request` them, `plan`, then use `path(...).sql`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._root = ParsedPath()
        self._levels: list[list[_Parse]] = []
        self._count = 0

    def request(self, path: FieldPath, parse_as: ParseAs) -> None:
        """Requests the value of a path."""
        self.path(path).types.add(parse_as)

    def request_other_fields(self, path: FieldPath) -> None:
        """Requests the fields of an object that are not requested by name, together."""
        self.path(path).needs_other_fields = True

    def path(self, path: FieldPath) -> ParsedPath:
        """The entry of a path."""
        at = self._root
        for part in path:
            at = at.children.setdefault(part, ParsedPath())
        return at

    def plan(self) -> None:
        """Decides which text each path is parsed from."""
        self._levels.clear()
        self._parse(self._root, self._text, 0)

    def apply(self, lines: DataFrame) -> DataFrame:
        """The lines with their parsed parts as further columns."""
        from pyspark.sql import functions

        for level in self._levels:
            parsed = [
                functions.from_json(functions.expr(parse.text), parse.schema, OPTIONS).alias(parse.alias)
                for parse in level
            ]
            lines = lines.select("*", *parsed)
        return lines

    def _parse(self, path: ParsedPath, text: str, level: int) -> None:
        from pyspark.sql.types import StructType

        while len(self._levels) <= level:
            self._levels.append([])
        if path.children:
            alias = self._alias()
            fields = list(self._fields(path, alias, level))
            self._levels[level].append(_Parse(alias, text, StructType(fields)))
        if path.needs_other_fields:
            alias = self._alias()
            self._levels[level].append(_Parse(alias, text, "map<string,variant>"))
            named = ", ".join(literal(name) for name in path.children)
            path.other_fields_sql = f"map_filter({alias}, (k, v) -> k NOT IN ({named}))" if named else alias

    def _fields(self, path: ParsedPath, prefix: str, level: int) -> Iterator[Any]:
        from pyspark.sql.types import StructField, StructType, VariantType, _parse_datatype_json_value

        for name, child in path.children.items():
            # not as an identifier: Spark does not accept every name as one, even quoted
            child.sql = f"{prefix}[{literal(name)}]"
            if not child.children and not child.needs_other_fields:
                kind = (
                    VariantType()
                    if child.parse_as == "variant"
                    else _parse_datatype_json_value(_TYPES[child.parse_as])
                )
            elif not child.types and not child.needs_other_fields:
                kind = StructType(list(self._fields(child, child.sql, level)))
            else:
                if child.parse_as != "variant":
                    child.types = {"string"}
                text = f"if({is_object(child.sql)}, to_json({child.sql}), NULL)"
                kind = VariantType() if child.parse_as == "variant" else _parse_datatype_json_value("string")
                self._parse(child, text if child.parse_as == "variant" else child.sql, level + 1)
            yield StructField(name, kind, True)

    def _alias(self) -> str:
        self._count += 1
        return f"_headwater_json_{self._count}"

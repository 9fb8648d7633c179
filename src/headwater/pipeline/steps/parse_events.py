"""The parse step: which fields the lines have, and the values of the fields that a batch needs.

`EventParser` takes the needed values from the lines with one expression (ParseEvents.java): each value is
converted at its token, so that no digit is lost on the way. The fields to expect are those of all lines
(`find_fields`, by Scan.java) or, where a second pass would be noticed, of a few: then a `FieldCollector` gets
those of all lines from the same expression.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from headwater.destinations.column_types import Kind
from headwater.pipeline.spark import compiled_classes
from headwater.pipeline.steps.convert import literal
from headwater.pipeline.steps.field_tree import MAX_DEPTH, MAX_FIELDS, BatchFields, pointer
from headwater.pipeline.steps.field_tree import Path as FieldPath
from headwater.pipeline.steps.read_lines import LINE, REASON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TextNumbers = Literal["canonical", "always", "never"]
EVENT = "_headwater_event"
REST = f"{EVENT}['_rest']"
"""SQL: the values without a field as a JSON object, or NULL."""
IS_EVENT = f"{EVENT}['_reason'] IS NULL"
"""SQL: whether the line is an event."""
SAMPLE_LINES = 2_000
"""Lines of each partition that are read to plan the pass over all of them."""
_ASIDE = 6
_KINDS = {Kind.BOOL: 0, Kind.INT64: 1, Kind.FLOAT64: 2, Kind.STRING: 3, Kind.TIMESTAMP: 4, Kind.JSON: 5}
_TYPES = {
    Kind.BOOL: "boolean",
    Kind.INT64: "long",
    Kind.FLOAT64: "double",
    Kind.STRING: "string",
    Kind.TIMESTAMP: "timestamp",
    Kind.JSON: "string",
}


def find_fields(lines: DataFrame, browser_keys: str = "") -> BatchFields:
    """Counts the events among the lines, and finds their fields and the JSON types of these."""
    return BatchFields.merged(compiled_classes.scan(lines, LINE, browser_keys=browser_keys))


def sample_fields(lines: DataFrame, browser_keys: str = "") -> BatchFields:
    """The fields of the first lines of each partition; the counts are of these lines alone."""
    answers = compiled_classes.scan(lines, LINE, browser_keys=browser_keys, max_lines=SAMPLE_LINES)
    return BatchFields.merged(answers)


class FieldCollector:
    """Collects the fields of lines while they are parsed.

    Tasks that run twice add their fields twice: the counts say no more than that there are any.
    """

    def __init__(self, lines: DataFrame, browser_keys: str = "") -> None:
        self.browser_keys = browser_keys
        self.java_object = compiled_classes.field_set(lines.sparkSession)

    def fields(self) -> BatchFields:
        """The fields of all lines, once a job has parsed them."""
        return BatchFields.merged(str(answer) for answer in self.java_object.value())


def events_only(lines: DataFrame, fields: BatchFields) -> DataFrame:
    """The lines that are events. Costs nothing where all are."""
    if not fields.malformed and not fields.blank:
        return lines
    return lines.where(compiled_classes.event_check(lines, LINE).isNull())


def malformed_lines(lines: DataFrame) -> DataFrame:
    """The lines that are neither events nor blank, with the reason."""
    checked = lines.withColumn(REASON, compiled_classes.event_check(lines, LINE))
    return checked.where(f"{REASON} IS NOT NULL AND {REASON} != ''")


class TextRule(IntEnum):
    """`text_numbers`, as ParseEvents.java knows it."""

    NEVER = 0
    CANONICAL = 1
    ALWAYS = 2


@dataclass
class EventParser:
    """The values that a projection, template or lookup takes from the lines of a batch.

    Request all of them, `apply` the parser, then use the SQL that each request returned.
    """

    text_numbers: TextNumbers = "canonical"
    _fields: list[list[Any]] = field(default_factory=list)
    _kept: list[tuple[FieldPath, str]] = field(default_factory=list)
    _types: dict[str, str] = field(default_factory=dict)
    _groups: int = 0

    def value(
        self,
        path: FieldPath,
        kind: Kind,
        *,
        aside: str = "",
        is_whole: bool = False,
        group: int = -1,
        rank: int = 0,
    ) -> str:
        """SQL of the value of a path, NULL where it is missing or the kind cannot hold it.

        `aside` is its name among the values without a field if the kind cannot hold it; without a name the
        value is dropped then. `is_whole` takes objects too, as JSON text. Of a group only the value of the
        least rank is used in an event; the others go aside under their pointers.
        """
        name = pointer(path) or "_line"
        if name in self._types:
            name = f"{len(self._types)}{name}"
        slot = len(self._types)
        self._types[name] = _TYPES[kind]
        self._fields.append([path, _KINDS[kind], slot, aside, group, rank, is_whole])
        return f"{EVENT}[{literal(name)}]"

    def put_aside(
        self, path: FieldPath, name: str, *, is_whole: bool = False, group: int = -1, rank: int = 0
    ) -> None:
        """Puts the value of a path among the values without a field; without a name it is dropped."""
        self._fields.append([path, _ASIDE, -1, name, group, rank, is_whole])

    def new_group(self) -> int:
        """A group of values that share a place."""
        self._groups += 1
        return self._groups - 1

    def keep_other_fields(self, path: FieldPath, name: str) -> None:
        """Keeps those fields of an object that are not requested: they are values without a field."""
        self._kept.append((path, name))

    def apply(self, lines: DataFrame, collector: FieldCollector | None = None) -> DataFrame:
        """The lines, each with its event as a further column."""
        return lines.select("*", self._parsed(lines, collector))

    def _parsed(self, lines: DataFrame, collector: FieldCollector | None) -> Any:
        from pyspark.sql.types import StructField, StructType, _parse_datatype_json_value

        plan = {
            "fields": self._fields,
            "kept": self._kept,
            "width": len(self._types),
            "groups": self._groups,
            "depth": MAX_DEPTH,
            "texts": TextRule[self.text_numbers.upper()],
            "checked": compiled_classes.have_checksums(lines, LINE),
            "max_fields": MAX_FIELDS,
            "browser_keys": collector.browser_keys if collector else "",
        }
        types = {**self._types, "_rest": "string", "_reason": "string"}
        struct = StructType(
            [StructField(name, _parse_datatype_json_value(kind), True) for name, kind in types.items()]
        )
        found = collector.java_object if collector else None
        return compiled_classes.parse_events(lines, LINE, msgspec.json.encode(plan), struct, found).alias(
            EVENT
        )


def merged_rest(entries: Iterable[str]) -> str:
    """SQL of the values without a field: those of the parser, and further entries (`"name":json` or NULL)."""
    further = list(entries)
    if not further:
        return REST
    own = f"substring({REST}, 2, length({REST}) - 2)"
    return f"nullif(concat('{{', concat_ws(',', {own}, {', '.join(further)}), '}}'), '{{}}')"

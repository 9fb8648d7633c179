"""Which paths of an event are read, as what, and how to get at them: one `from_json`, seldom more.

A path that is an object in some events and a value in others, or an object of which not every field has a
column, is read as it stands and parsed a second time; nothing else pays for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.pipeline.steps.convert import DECIMAL, Read, is_object, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Path", "Reading"]

OPTIONS = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false", "mode": "PERMISSIVE"}
_TYPES: dict[Read, str] = {
    "boolean": "boolean",
    "bigint": "long",
    "double": "double",
    "decimal": DECIMAL,
    "string": "string",
    "variant": "variant",
}


@dataclass
class Path:
    """One path that is read. `sql` is how to get at it, known when the reading is planned."""

    reads: set[Read] = field(default_factory=set)
    children: dict[str, Path] = field(default_factory=dict)
    wants_rest: bool = False
    sql: str = ""
    rest_sql: str = ""

    @property
    def read(self) -> Read:
        """As what it is read: text where two columns want different things of it."""
        if "variant" in self.reads:
            return "variant"
        return next(iter(self.reads)) if len(self.reads) == 1 else "string"


@dataclass
class _Parse:
    alias: str
    text: str
    schema: Any


class Reading:
    """All paths of a projection. Add what is wanted, then `plan`, then use `path(...).sql`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._root = Path()
        self._levels: list[list[_Parse]] = []
        self._count = 0

    def want(self, path: tuple[str, ...], read: Read) -> None:
        """A value of this path is needed."""
        self.path(path).reads.add(read)

    def want_rest(self, path: tuple[str, ...]) -> None:
        """The fields of this object that nobody wants by name are needed, together."""
        self.path(path).wants_rest = True

    def path(self, path: tuple[str, ...]) -> Path:
        at = self._root
        for part in path:
            at = at.children.setdefault(part, Path())
        return at

    def plan(self) -> None:
        """Decide what is parsed from what."""
        self._levels.clear()
        self._parse(self._root, self._text, 0)

    def apply(self, lines: DataFrame) -> DataFrame:
        """The lines with their parsed parts beside them."""
        from pyspark.sql import functions

        for level in self._levels:
            parsed = [
                functions.from_json(functions.expr(parse.text), parse.schema, OPTIONS).alias(parse.alias)
                for parse in level
            ]
            lines = lines.select("*", *parsed)
        return lines

    def _parse(self, path: Path, text: str, level: int) -> None:
        from pyspark.sql.types import StructType

        while len(self._levels) <= level:
            self._levels.append([])
        if path.children:
            alias = self._alias()
            fields = list(self._fields(path, alias, level))
            self._levels[level].append(_Parse(alias, text, StructType(fields)))
        if path.wants_rest:
            alias = self._alias()
            self._levels[level].append(_Parse(alias, text, "map<string,variant>"))
            named = ", ".join(literal(name) for name in path.children)
            path.rest_sql = f"map_filter({alias}, (k, v) -> k NOT IN ({named}))" if named else alias

    def _fields(self, path: Path, prefix: str, level: int) -> Iterator[Any]:
        from pyspark.sql.types import StructField, StructType, VariantType, _parse_datatype_json_value

        for name, child in path.children.items():
            # not as an identifier: Spark does not take every name as one, however quoted
            child.sql = f"{prefix}[{literal(name)}]"
            if not child.children and not child.wants_rest:
                kind = (
                    VariantType()
                    if child.read == "variant"
                    else _parse_datatype_json_value(_TYPES[child.read])
                )
            elif not child.reads and not child.wants_rest:
                kind = StructType(list(self._fields(child, child.sql, level)))
            else:
                if child.read != "variant":
                    child.reads = {"string"}
                text = f"if({is_object(child.sql)}, to_json({child.sql}), NULL)"
                kind = VariantType() if child.read == "variant" else _parse_datatype_json_value("string")
                self._parse(child, text if child.read == "variant" else child.sql, level + 1)
            yield StructField(name, kind, True)

    def _alias(self) -> str:
        self._count += 1
        return f"_headwater_json_{self._count}"

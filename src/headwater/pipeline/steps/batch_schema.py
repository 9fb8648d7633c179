"""Decides the columns of a batch: names made from paths, one type a column, promoted over all values.

The tree of `destinations.column_types` decides between the types of a batch; fit_table.py decides between
the batch and the table.

A name depends on its path alone, never on the rest of the batch, so it is the same in every batch. Paths that
give one name (`userId` and `userid`, `a.b` and `a_b`) share the column.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headwater.destinations.base import Capabilities
from headwater.destinations.column_types import Kind, kind_named, promote_all
from headwater.destinations.sql.dialect import ASCII_LOWER
from headwater.destinations.table import OWN_PREFIX, UNMAPPED, Column
from headwater.pipeline.steps.field_tree import JsonTypes, Path
from headwater.pipeline.steps.mapping import MappedField

_KINDS = {
    JsonTypes.BOOL: Kind.BOOL,
    JsonTypes.INT64: Kind.INT64,
    JsonTypes.FLOAT64: Kind.FLOAT64,
    JsonTypes.STRING: Kind.STRING,
    JsonTypes.TIMESTAMP: Kind.TIMESTAMP,
    # A double would lose most of the digits.
    JsonTypes.TOO_LARGE: Kind.STRING,
    JsonTypes.ARRAY: Kind.STRING,
    JsonTypes.TOO_DEEP: Kind.STRING,
    JsonTypes.OBJECT: Kind.STRING,
}
_SPECIAL = re.compile(r"[^a-z0-9_]")
_NOT_IN_WORDS = re.compile(r"\W")
_UPPER, _LOWER = (bytes(codes).decode() for codes in (ASCII_LOWER.keys(), ASCII_LOWER.values()))
_DIGITS = 8


@dataclass
class BatchColumn:
    """A column of the batch, and the fields that it is filled from, in the order of their priority.

    Several fields share a column where their paths give one name. In an event that has two of them the first
    is stored, and the value of the other goes to `_unmapped_data`.
    """

    name: str
    kind: Kind
    mapped: list[MappedField]
    sql_type: str = ""
    cast_type: str = ""

    @property
    def count(self) -> int:
        """The number of values that the events have for it."""
        return sum(each.count for mapped in self.mapped for each in mapped.fields)

    @property
    def column(self) -> Column:
        return Column(self.name, self.kind, self.sql_type, self.cast_type)


def batch_columns(mapped: Iterable[MappedField], capabilities: Capabilities) -> dict[str, BatchColumn]:
    """The columns that fields become, with the kind of each by the typecast tree."""
    by_name: dict[str, list[MappedField]] = {}
    for mapped_field in mapped:
        by_name.setdefault(column_name(mapped_field.path, capabilities), []).append(mapped_field)
    columns = {}
    for name, sharing in by_name.items():
        # The path that equals the name has priority, then the order of paths: a rule, not chance.
        sharing.sort(key=lambda each: ("_".join(each.path) != name, each.path))
        columns[name] = _column(name, sharing)
    return columns


def _column(name: str, mapped: list[MappedField]) -> BatchColumn:
    explicit = next((each for each in mapped if each.type or each.column_type), None)
    kind = promote_all(kind for each in mapped for kind in _kinds(each))
    has_ids = any(JsonTypes.LARGE_INT64 in own.json_types for each in mapped for own in each.fields)
    if kind is Kind.FLOAT64 and has_ids:
        kind = Kind.STRING  # a double would change ids that stand beside fractions
    if explicit is None:
        return BatchColumn(name, kind, mapped)
    named = kind_named(explicit.type) if explicit.type else None
    if named is not None:
        return BatchColumn(name, named, mapped, explicit.column_type)
    if explicit.column_type:
        return BatchColumn(name, kind, mapped, explicit.column_type, explicit.type)
    return BatchColumn(name, kind, mapped, explicit.type)


def _kinds(mapped_field: MappedField) -> Iterator[Kind]:
    for each in mapped_field.fields:
        for json_type, kind in _KINDS.items():
            if json_type in each.json_types and (json_type is not JsonTypes.OBJECT or mapped_field.is_text):
                yield kind


def column_name(path: Path, capabilities: Capabilities) -> str:
    """The column of a path: its parts joined with `_`, in lower case, every special character an underscore.

    Letters of other scripts stay where the product allows them in names. A name that loses more than that
    (another sign that is not ASCII, a cut end), or that the product or Headwater keeps for itself, gets a
    digest as its end, so that two such names never become one.
    """
    text = "_".join(part or "_unnamed" for part in path)
    if text.isascii() or not capabilities.any_letters:
        name, is_whole = _SPECIAL.sub("_", text.lower()), text.isascii()
    else:
        letters = unicodedata.normalize("NFC", text).lower()
        name = _NOT_IN_WORDS.sub("_", letters)
        # every character is replaced by one: what is replaced is special, and must be ASCII
        is_whole = all(given.isascii() for given, kept in zip(letters, name, strict=True) if given != kept)
    if name.startswith(capabilities.reserved_prefixes):
        name, is_whole = f"column{'' if name[0] == '_' else '_'}{name}", False
    if is_whole and not is_reserved_column(name, capabilities):
        return _within(name, text, capabilities.max_identifier_length)
    return _with_digest(name, text, capabilities.max_identifier_length)


def is_reserved_column(name: str, capabilities: Capabilities) -> bool:
    """Whether a name in lower case is one that the product, or Headwater, keeps for itself."""
    return name == UNMAPPED or name in capabilities.reserved_columns or name.startswith(OWN_PREFIX)


def table_name(text: str, max_bytes: int) -> str:
    """The table of a name that a template gives: ASCII letters in lower case, digits and underscores.

    A name that loses more than the case of its letters and special ASCII characters gets a digest as its end.
    """
    name = _SPECIAL.sub("_", text.translate(ASCII_LOWER))
    return _within(name, text, max_bytes) if text.isascii() else _with_digest(name, text, max_bytes)


def table_name_sql(name: str, max_bytes: int) -> str:
    """SQL of `table_name`, for names that are computed per event."""
    # not `lower`, which turns letters of other scripts into ASCII ones
    plain = f"regexp_replace(translate({name}, '{_UPPER}', '{_LOWER}'), '[^a-z0-9_]', '_')"
    digest = f"substring(md5({name}), 1, {_DIGITS})"
    cut = f"concat(left({plain}, {max_bytes - _DIGITS - 1}), '_', {digest})"
    return f"if({name} RLIKE '^[\\\\x00-\\\\x7f]*$' AND length({plain}) <= {max_bytes}, {plain}, {cut})"


def _within(name: str, text: str, max_bytes: int) -> str:
    return name if 0 < len(name.encode()) <= max_bytes else _with_digest(name, text, max_bytes)


def _with_digest(name: str, text: str, max_bytes: int) -> str:
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()[:_DIGITS]
    cut = name.encode()[: max_bytes - _DIGITS - 1].decode(errors="ignore")
    return f"{cut}_{digest}"

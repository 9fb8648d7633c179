"""Moves values from `_unmapped_data` to the columns that hold them now.

A value moves if its column takes it without loss: the number itself, the text itself. It then leaves
`_unmapped_data`; all other entries keep their bytes. A column that has a value already keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headwater.destinations.base import Healed
from headwater.destinations.column_types import Kind, promote_all
from headwater.destinations.table import UNMAPPED, Column, Table

if TYPE_CHECKING:
    from headwater.destinations.sql.sql_destination import SqlDestination

_BATCH_ROWS = 1_000
_INT64 = range(-(1 << 63), 1 << 63)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def kind_of_token(token: bytes) -> Kind | None:
    """The narrowest kind that holds a JSON value; None for null, and for objects, which become no column."""
    match token[:1]:
        case b"n" | b"{":
            return None
        case b"t" | b"f":
            return Kind.BOOL
        case b'"' | b"[":
            return Kind.STRING
    number = _number(token)
    if number is None:
        return Kind.STRING
    if number == number.to_integral_value() and int(number) in _INT64:
        return Kind.INT64
    return Kind.FLOAT64 if _is_double(number) else Kind.STRING


def value_for(token: bytes, kind: Kind, *, is_decimal: bool, allows_nul: bool = False) -> str | None:
    """The text that casts to exactly the JSON value in a column of the kind; None: the column cannot hold it.

    `is_decimal`: FLOAT64 is a numeric(38,18) and not a double.
    """
    found = kind_of_token(token)
    if found is None:
        return None
    if kind is Kind.STRING:
        if token[:1] != b'"':
            return token.decode()
        try:
            text: str = msgspec.json.decode(token, type=str)
            text.encode()
        except (msgspec.DecodeError, UnicodeError):
            return None
        return text if allows_nul or "\0" not in text else None
    if kind is Kind.BOOL:
        return token.decode() if found is Kind.BOOL else None
    number = _number(token) if token[:1] not in b'tf"[' else None
    if number is None:
        return None
    if kind is Kind.INT64:
        return str(int(number)) if found is Kind.INT64 else None
    if kind is not Kind.FLOAT64:
        return None
    if is_decimal:
        return format(number, "f") if _is_numeric_38_18(number) else None
    return token.decode() if _is_double(number) else None


def _number(token: bytes) -> Decimal | None:
    """The number, unless its digits alone would fill the memory."""
    try:
        number = Decimal(token.decode())
    except (InvalidOperation, UnicodeDecodeError):
        return None
    return number if number.is_finite() and abs(number.adjusted()) < 400 else None


def _is_double(number: Decimal) -> bool:
    return Decimal(repr(float(number))) == number


def _is_numeric_38_18(number: Decimal) -> bool:
    _, digits, exponent = number.as_tuple()
    zeros = len(digits) - len(str(int("".join(map(str, digits)))).rstrip("0")) if any(digits) else 0
    return isinstance(exponent, int) and exponent + zeros >= -18 and number.adjusted() < 20


class _Row(NamedTuple):
    """A row with values to move."""

    id: str
    """Literal of its identity in the table."""
    unmapped: str
    """The rest of its `_unmapped_data`; empty: nothing."""
    values: dict[str, str]
    """Text by column."""


class Healing:
    """Moves the values of one table, in the transaction of the caller."""

    def __init__(self, destination: SqlDestination, table: Table) -> None:
        self._destination = destination
        self._table = table
        self._sql = destination.dialect
        fold = str.lower if destination.capabilities.folds_case else str
        keys = {fold(name) for name in table.key}
        self._columns = {
            fold(name): column
            for name, column in table.columns.items()
            if name != UNMAPPED and fold(name) not in keys and self._is_own(column)
        }
        self._fold = fold
        self._is_decimal = "(" in destination.capabilities.types[Kind.FLOAT64]

    def wider_kinds(self, conditions: Sequence[str]) -> dict[str, Kind]:
        """The kinds with which the columns would hold all values that are aside, where they are wider."""
        found: dict[str, set[Kind]] = {}
        for condition in conditions:
            for _, text in self._rows(condition):
                for name, token in _entries(text):
                    column = self._columns.get(self._fold(name))
                    if column is None or (kind := kind_of_token(token)) is None or self._takes(column, token):
                        continue
                    if kind is Kind.INT64 and column.kind is Kind.FLOAT64:
                        kind = Kind.STRING  # a double does not hold all of its digits
                    elif kind is Kind.FLOAT64 and self._is_decimal and not self._fits_decimal(token):
                        kind = Kind.STRING
                    found.setdefault(column.name, {column.kind}).add(kind)
        wider = {name: promote_all(kinds) for name, kinds in found.items()}
        return {name: kind for name, kind in wider.items() if kind is not self._table.columns[name].kind}

    def run(self, conditions: Sequence[str]) -> Healed:
        """Moves the values of the rows of each condition."""
        rows = values = 0
        left: dict[str, int] = {}
        for condition in conditions:
            moving: list[_Row] = []
            for row in self._moves(condition, left):
                moving.append(row)
                values += len(row.values)
                rows += 1
            for names, same in _by_columns(moving).items():
                for at in range(0, len(same), _BATCH_ROWS):
                    self._destination.execute(self._update(names, same[at : at + _BATCH_ROWS]))
        return Healed(rows=rows, values=values, left=left)

    def _moves(self, condition: str, left: dict[str, int]) -> Iterator[_Row]:
        """The rows with values to move; counts the values that stay in `left`."""
        found = [(id, [*_entries(text)]) for id, text in self._rows(condition)]
        named = {self._fold(name) for _, entries in found for name, _ in entries}
        columns = [column for name, column in self._columns.items() if name in named]
        empty = self._empty(condition, columns) if columns else {}
        for id, entries in found:
            values: dict[str, str] = {}
            rest: list[tuple[str, bytes]] = []
            for name, token in entries:
                column = self._columns.get(self._fold(name))
                text = self._value(column, token) if column is not None else None
                is_free = column is not None and column.name in empty[id] and column.name not in values
                if text is None or column is None or not is_free:
                    rest.append((name, token))
                    left[name] = left.get(name, 0) + 1
                else:
                    values[column.name] = text
            if values:
                object = b",".join(msgspec.json.encode(name) + b":" + token for name, token in rest)
                yield _Row(id, f"{{{object.decode()}}}" if rest else "", values)

    def _rows(self, condition: str) -> Iterator[tuple[str, str]]:
        unmapped = self._sql.quoted(UNMAPPED)
        for id, text in self._destination.execute(
            f"SELECT CAST({self._destination.row_id} AS {self._destination.sql_type(Kind.STRING)}), "
            f"CAST({unmapped} AS {self._destination.sql_type(Kind.STRING)}) FROM {self._target} "
            f"WHERE {unmapped} IS NOT NULL AND {condition}"
        ):
            yield str(id), str(text)

    def _empty(self, condition: str, columns: Sequence[Column]) -> dict[str, set[str]]:
        """By row, the columns that have no value."""
        unmapped = self._sql.quoted(UNMAPPED)
        flags = ", ".join(f"{self._sql.quoted(column.name)} IS NULL" for column in columns)
        rows = self._destination.execute(
            f"SELECT CAST({self._destination.row_id} AS {self._destination.sql_type(Kind.STRING)}), {flags} "
            f"FROM {self._target} WHERE {unmapped} IS NOT NULL AND {condition}"
        )
        return {
            str(id): {column.name for column, is_empty in zip(columns, found, strict=True) if is_empty}
            for id, *found in rows
        }

    def _update(self, names: Sequence[str], rows: Sequence[_Row]) -> str:
        destination, sql = self._destination, self._sql
        own = f"CAST(fresh.{sql.quoted('id')} AS {destination.row_id_type})"
        changes = []
        for number, name in enumerate(names):
            type = self._table.columns[name].sql_type
            changes.append(f"{sql.quoted(name)} = CAST(fresh.{sql.quoted(f'c{number}')} AS {type})")
        rest = f"fresh.{sql.quoted('rest')}"
        changes.append(f"{sql.quoted(UNMAPPED)} = CASE WHEN {rest} != '' THEN {sql.parse_json(rest)} END")
        texts = ([row.id, row.unmapped, *(row.values[name] for name in names)] for row in rows)
        values = ", ".join(f"({', '.join(map(sql.literal, each))})" for each in texts)
        columns = sql.listed(["id", "rest", *(f"c{number}" for number in range(len(names)))])
        return (
            f"UPDATE {self._target} AS target SET {', '.join(changes)} "
            f"FROM (VALUES {values}) AS fresh ({columns}) WHERE target.{destination.row_id} = {own}"
        )

    def _takes(self, column: Column, token: bytes) -> bool:
        return self._value(column, token) is not None

    def _value(self, column: Column, token: bytes) -> str | None:
        return value_for(token, column.kind, is_decimal=self._is_decimal)

    def _fits_decimal(self, token: bytes) -> bool:
        return value_for(token, Kind.FLOAT64, is_decimal=True) is not None

    def _is_own(self, column: Column) -> bool:
        """Whether the column has the type that Headwater gives to its kind."""
        return column.sql_type == self._destination.capabilities.types.get(column.kind)

    @property
    def _target(self) -> str:
        return self._destination.relation(self._table.name)


def _entries(text: str) -> Iterator[tuple[str, bytes]]:
    try:
        yield from ((name, bytes(token).strip()) for name, token in _OBJECT.decode(text).items())
    except (msgspec.DecodeError, msgspec.ValidationError):
        return  # a user's own value


def _by_columns(rows: Sequence[_Row]) -> Mapping[tuple[str, ...], list[_Row]]:
    found: dict[tuple[str, ...], list[_Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.values), []).append(row)
    return found

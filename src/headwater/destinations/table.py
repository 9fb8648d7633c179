"""The structure of a table, and the patch between two structures."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

import msgspec

from headwater.destinations.column_types import Kind
from headwater.errors import TableNotAllowed, TableRefused

UNMAPPED = "_unmapped_data"
"""Column of the values that do not fit their own column: a JSON object by column name."""

ROW = "_headwater_row"
"""Staged column that orders the rows; it is not stored."""

OWN_PREFIX = "_headwater_"
"""Names of the tables that Headwater keeps for itself begin with it: the ledger, the registry, staging."""


class Column(msgspec.Struct, frozen=True):
    """A column of a table.

    In a wanted table `sql_type` is an explicit type of the mapping in the product's SQL, and empty where the
    kind decides; `cast_type` is the type that values are cast to before that of the column. In a table of a
    destination `kind` is how values are staged, and `sql_type` the product's name of the type.
    """

    name: str
    kind: Kind
    sql_type: str = ""
    cast_type: str = ""


class Table(msgspec.Struct, frozen=True):
    """The structure of a table.

    `primary_key` is the key that Headwater created. `users_key` is a key that the table's owner created: it
    is never changed or dropped, and rows are upserted by it if no key is configured.
    """

    name: str
    columns: dict[str, Column]
    primary_key: tuple[str, ...] = ()
    users_key: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """The key that rows are upserted by; empty: they are appended."""
        return self.primary_key or self.users_key


class Patch(msgspec.Struct, frozen=True):
    """The changes that make a table fit. Only a key that Headwater created is ever dropped."""

    create: bool = False
    add: tuple[Column, ...] = ()
    drop_key: bool = False
    set_key: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.create or bool(self.add) or self.drop_key or bool(self.set_key)


def table_of(name: str, columns: Iterable[Column], primary_key: Iterable[str] = ()) -> Table:
    """A table with these columns, in their order."""
    return Table(name, {column.name: column for column in columns}, tuple(primary_key))


def diff(existing: Table | None, wanted: Table, *, folds_case: bool = False) -> Patch:
    """The patch from `existing` to `wanted`.

    Columns of `existing` alone stay, and types are not compared: a value that does not fit goes to
    `_unmapped_data`. A key that Headwater created is replaced or dropped as configured; a user's key stays.
    """
    if existing is None:
        whole = all(name in wanted.columns for name in wanted.primary_key)
        return Patch(
            create=True, add=tuple(wanted.columns.values()), set_key=wanted.primary_key if whole else ()
        )

    def fold(names: Iterable[str]) -> set[str]:
        return {name.lower() if folds_case else name for name in names}

    have, key = fold(existing.columns), fold(wanted.primary_key)
    add = tuple(column for name, column in wanted.columns.items() if not fold([name]) & have)
    # A key can only be made of columns that are there; a batch that lacks one says nothing about the old key.
    if (key and key == fold(existing.primary_key)) or not key <= have | fold(wanted.columns):
        return Patch(add=add)
    served = bool(key) and key == fold(existing.users_key)
    return Patch(add=add, drop_key=bool(existing.primary_key), set_key=() if served else wanted.primary_key)


def check_names(table: Table, max_bytes: int) -> None:
    """Raise TableRefused for names that a product would cut or cannot store: two could become one (G12)."""
    for name in (table.name, *table.columns):
        if not name or "\0" in name:
            raise TableRefused(
                f"{name[:80]!r} cannot be a name in a database.",
                hint="The pipeline sanitises names before it patches a table.",
            )
        if len(name.encode()) > max_bytes:
            raise TableRefused(
                f"the name {name[:80]!r}… has {len(name.encode())} bytes; the maximum is {max_bytes}.",
                hint="The pipeline shortens names before it patches a table.",
            )
    if is_reserved(table.name):
        raise TableNotAllowed(
            f"the table name {table.name!r} is reserved: Headwater's own tables begin with {OWN_PREFIX}.",
            hint="Change `table_name_template`, so that it gives another name.",
        )


def is_reserved(name: str) -> bool:
    """Whether a name is one of Headwater's own tables, however it is quoted, and written in which case."""
    plain = unicodedata.normalize("NFKC", name).strip(" \t\r\n\"'`[]")
    return plain.casefold().startswith(OWN_PREFIX)


_TYPE = re.compile(r"[A-Za-z_](?:[A-Za-z0-9_ ,()\[\]=.]|'[^'\\]*')*")


def check_sql_type(text: str) -> str:
    """The type, stripped; ValueError for a text that could end the type or add to it (G12)."""
    depth = 0
    for character in re.sub(r"'[^']*'", "", text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0 or (depth == 0 and character in ",="):
            break
    else:
        if depth == 0 and _TYPE.fullmatch(text.strip()):
            return text.strip()
    raise ValueError(f"{text!r} is not an SQL type")

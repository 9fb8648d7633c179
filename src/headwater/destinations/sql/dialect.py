"""Identifiers, literals and expressions in the SQL of one product (G12)."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from headwater.destinations.table import ROW

ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
ASCII_UPPER = {lower: upper for upper, lower in ASCII_LOWER.items()}


class Dialect:
    """Standard SQL; a product overrides what differs."""

    def fold(self, name: str) -> str:
        """The name under which the product stores a table or column, as `table` returns it."""
        return name

    def quoted(self, name: str) -> str:
        """An identifier in quotes."""
        return '"' + name.replace('"', '""') + '"'

    def listed(self, names: Iterable[str], prefix: str = "") -> str:
        """Quoted identifiers, separated by commas; `prefix` names the relation of each."""
        return ", ".join(f"{prefix}{self.quoted(name)}" for name in names)

    def literal(self, text: str) -> str:
        """A text literal; a backslash has no meaning in standard SQL."""
        return "'" + text.replace("\0", "\ufffd").replace("'", "''") + "'"

    def last_value(self, column: str, row: str) -> str:
        """An aggregate: the value in the row with the highest `row` in which the column is not NULL.

        Empty where the product has no such aggregate; window functions are used then.
        """
        return ""

    def parse_json(self, text: str) -> str:
        """A JSON text as a value of the type of `_unmapped_data`."""
        return text

    def has_key(self, text: str, name: str) -> str:
        """SQL condition that a JSON object, given as text, has a key; empty: the product cannot say."""
        return ""

    def staged(self, name: str) -> str:
        """A column of the staging relation."""
        return f"staged.{self.quoted(name)}"

    @property
    def row(self) -> str:
        """The column that orders the rows of a load."""
        return self.quoted(ROW)


def key_name(table: str) -> str:
    """Name of the constraint or index that Headwater creates for a table's key: short, and never a user's."""
    return f"headwater_key_{blake2b(table.encode(), digest_size=8).hexdigest()}"

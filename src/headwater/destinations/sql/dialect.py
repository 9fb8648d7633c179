"""Names and texts as the statements of one product spell them (G12)."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

__all__ = ["Dialect", "key_name", "listed", "literal", "quoted"]


def quoted(name: str) -> str:
    """An identifier in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str]) -> str:
    """Identifiers, separated by commas."""
    return ", ".join(quoted(name) for name in names)


def literal(text: str) -> str:
    """A text as a literal of standard SQL, in which a backslash is only a backslash."""
    return "'" + text.replace("\0", "�").replace("'", "''") + "'"


def key_name(table: str) -> str:
    """What the key that we make on a table is called: short for any table, and ours for certain."""
    return f"headwater_key_{blake2b(table.encode(), digest_size=8).hexdigest()}"


class Dialect:
    """Standard SQL; a product overrides what it does otherwise."""

    def fold(self, name: str) -> str:
        """What the pipeline calls a name of the product; two names that are one there are one here."""
        return name

    def quoted(self, name: str) -> str:
        """An identifier, as it is stored."""
        return quoted(name)

    def listed(self, names: Iterable[str], prefix: str = "") -> str:
        """Identifiers, separated by commas; `prefix` names the table that each is of."""
        return ", ".join(f"{prefix}{self.quoted(name)}" for name in names)

    def literal(self, text: str) -> str:
        """A text."""
        return literal(text)

"""Names and texts as they stand in a statement, safe whatever they contain (G12)."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

__all__ = ["key_name", "listed", "literal", "quoted"]


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

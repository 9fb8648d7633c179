"""Names and texts as the statements of one product spell them (G12)."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.warehouse import sql

__all__ = ["Dialect"]


class Dialect:
    """Standard SQL; a product overrides what it does otherwise."""

    def fold(self, name: str) -> str:
        """What the pipeline calls a name of the product; two names that are one there are one here."""
        return name

    def quoted(self, name: str) -> str:
        """An identifier, as it is stored."""
        return sql.quoted(name)

    def listed(self, names: Iterable[str], prefix: str = "") -> str:
        """Identifiers, separated by commas; `prefix` names the table that each is of."""
        return ", ".join(f"{prefix}{self.quoted(name)}" for name in names)

    def literal(self, text: str) -> str:
        """A text."""
        return sql.literal(text)

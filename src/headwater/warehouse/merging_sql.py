"""Merging destinations whose connection takes BEGIN, COMMIT and ROLLBACK as statements."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from headwater.warehouse.merging import MergingDestination
from headwater.warehouse.transactions import transaction

__all__ = ["SqlMergingDestination", "Undo"]


class Undo(Exception):
    """Raised inside a transaction whose work is not to stay."""


class SqlMergingDestination(MergingDestination):
    """With transactions: all of a block, or nothing of it."""

    def transaction(self) -> AbstractContextManager[None]:
        """What is executed in the block is kept if it ends well."""
        return transaction(self.execute)

    def attempt(self, statements: Sequence[str]) -> None:
        try:
            with self.transaction():
                for statement in statements:
                    self.execute(statement)
                raise Undo
        except Undo:
            pass

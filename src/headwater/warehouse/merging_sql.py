"""Merging destinations whose connection takes BEGIN, COMMIT and ROLLBACK as statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headwater.errors import WarehouseError
from headwater.warehouse.merging import MergingDestination

__all__ = ["SqlMergingDestination", "Undo"]


class Undo(Exception):
    """Raised inside a transaction whose work is not to stay."""


class SqlMergingDestination(MergingDestination):
    """With transactions: all of a block, or nothing of it."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is executed in the block is kept if it ends well."""
        self.execute("BEGIN TRANSACTION")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            try:
                self.execute("ROLLBACK")
            except WarehouseError:
                pass  # the connection is gone, and the transaction with it
            raise

    def attempt(self, statements: Sequence[str]) -> None:
        try:
            with self.transaction():
                for statement in statements:
                    self.execute(statement)
                raise Undo
        except Undo:
            pass

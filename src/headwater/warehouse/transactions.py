"""All of a block, or nothing of it, where a connection takes BEGIN, COMMIT and ROLLBACK as statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headwater.errors import WarehouseError

__all__ = ["transaction"]


@contextmanager
def transaction(execute: Callable[[str], Any]) -> Iterator[None]:
    """What is executed in the block is kept if it ends well."""
    execute("BEGIN TRANSACTION")
    try:
        yield
        execute("COMMIT")
    except BaseException:
        try:
            execute("ROLLBACK")
        except WarehouseError:
            pass  # a failed COMMIT has rolled back already, or the connection is gone
        raise

"""Errors of database clients as the errors of the destination contract."""

from __future__ import annotations

from collections.abc import Collection

from headwater.destinations.refused_rows import RowsRefused
from headwater.errors import DestinationUnavailable, LoadRefused, TableBusy, WarehouseError

CHANGED = "The table may have been changed at the same time: run again."

_PERMISSION_DENIED = "42501"
_BUSY = {"40001", "40P01", "55006", "55P03", "57014"}
"""SQLSTATEs of conflicts, deadlocks, locks not granted in time, and statements that took too long."""


def first_line(error: Exception) -> str:
    """The first line of an error's text, without statement, hints and the final full stop."""
    return str(error).strip().split("\n", 1)[0].rstrip(".")


def contract_error(
    destination: str, error: Exception, *, blames_row: bool, blames_table: bool, blames_lock: bool = False
) -> WarehouseError:
    """The error of the contract; one that blames neither a row nor a table is retried."""
    text = f"{first_line(error)}."
    if blames_row:
        return RowsRefused(text)
    if blames_table:
        return LoadRefused(text, hint=CHANGED)
    if blames_lock:
        return TableBusy(
            f"destination {destination}: {text}",
            hint="Another session locks the table, or the statement took too long: the load is retried.",
        )
    return DestinationUnavailable(f"destination {destination}: {text}", hint="The load is retried.")


def error_of_sqlstate(
    destination: str, error: Exception, state: str, *, rows: Collection[str] = ("22", "23")
) -> WarehouseError:
    """The error that the class of an SQLSTATE stands for; `rows` are the classes that blame a row."""
    blames_table = state[:2] == "42" and state != _PERMISSION_DENIED
    return contract_error(
        destination,
        error,
        blames_row=state[:2] in rows,
        blames_table=blames_table,
        blames_lock=state in _BUSY,
    )

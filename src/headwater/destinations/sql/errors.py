"""Errors of database clients as the errors of the destination contract."""

from __future__ import annotations

from collections.abc import Collection

from headwater.destinations.refused_rows import RowsRefused
from headwater.errors import DestinationUnavailable, LoadRefused, WarehouseError

__all__ = ["CHANGED", "error_of_sqlstate", "first_line"]

CHANGED = "The table may have been changed at the same time: run again."

_PERMISSION_DENIED = "42501"


def first_line(error: Exception) -> str:
    """The first line of an error's text, without statement, hints and the final full stop."""
    return str(error).strip().split("\n", 1)[0].rstrip(".")


def error_of_sqlstate(
    destination: str, error: Exception, state: str, *, rows: Collection[str] = ("22", "23")
) -> WarehouseError:
    """The error that the class of an SQLSTATE stands for; `rows` are the classes that blame a row."""
    text = f"{first_line(error)}."
    if state[:2] in rows:
        return RowsRefused(text)
    if state[:2] == "42" and state != _PERMISSION_DENIED:
        return LoadRefused(text, hint=CHANGED)
    return DestinationUnavailable(f"destination {destination}: {text}", hint="The load is retried.")

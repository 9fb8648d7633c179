"""What every view returns."""

from __future__ import annotations

from typing import Any, NamedTuple


class View(NamedTuple):
    """A template and its values; `section` is the menu entry that the view belongs to."""

    template: str
    title: str
    section: str
    values: dict[str, Any]

"""What `headwater check` finds."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Finding"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: what, how it stands, and what to do about it."""

    about: str
    level: Literal["ok", "warning", "problem"]
    text: str

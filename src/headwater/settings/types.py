"""The kinds of values that settings have."""

from __future__ import annotations

from typing import Annotated

import msgspec

MIB = 1024 * 1024

Bytes = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Hours = Annotated[float, msgspec.Meta(gt=0)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
# Part of file names, where a dot, a slash or a bar would end it (G12).
Id = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")]


def doc(text: str) -> msgspec.Meta:
    """What a setting means, for docs/settings.md and `headwater init`."""
    return msgspec.Meta(description=text)

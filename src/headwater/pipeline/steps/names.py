"""Names of columns and tables, made from names of fields.

A name depends on its path alone, never on what else is in the batch: so it is the same in every batch. Two
paths that give one name (`userId` and `userid`, `a.b` and `a_b`) share the column; see header.py.
"""

from __future__ import annotations

import hashlib
import re

from headwater.destinations.table import ROW, UNMAPPED

__all__ = ["column_name", "parse_pointer", "pointer", "sanitise"]

_RESERVED = {ROW, UNMAPPED}
_SPECIAL = re.compile(r"[^a-z0-9_]")
_DIGITS = 8


def column_name(path: tuple[str, ...], max_bytes: int) -> str:
    """The column of a path: its parts, joined with `_`, sanitised, cut to what the product can hold."""
    return sanitise("_".join(part or "_unnamed" for part in path), max_bytes)


def sanitise(text: str, max_bytes: int) -> str:
    """Lower case, every special character an underscore (seed 003).

    What would lose more than that (letters of other scripts, a cut end, a name of ours) is told apart by a
    digest at its end, so that two such names never become one.
    """
    name = _SPECIAL.sub("_", text.lower())
    if text.isascii() and name not in _RESERVED and 0 < len(name) <= max_bytes:
        return name
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()[:_DIGITS]
    return f"{name[: max_bytes - _DIGITS - 1]}_{digest}"


def parse_pointer(text: str) -> tuple[str, ...]:
    """The parts of a JSON pointer (`~1` is `/`, `~0` is `~`); its slash may be left out, as in the seed."""
    stripped = text.removeprefix("/")
    if not stripped:
        return ()
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in stripped.split("/"))


def pointer(path: tuple[str, ...]) -> str:
    """A path as a JSON pointer."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)

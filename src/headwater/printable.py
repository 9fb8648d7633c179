"""Text of clients for terminals and log lines: no control character, no line break, no change of direction.

Such text could move the cursor, hide itself or forge a line (G12).
"""

from __future__ import annotations

import re

# C0, DEL and C1 controls, invisible characters, separators of lines, marks of direction, lone surrogates.
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
_CONTROLS += "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
_IN_BLOCK = re.compile(f"[{_CONTROLS}]")
_IN_LINE = re.compile(f"[\t\n{_CONTROLS}]")


def printable_line(text: str) -> str:
    r"""Return the text as one line, control characters as `\n`, `\x1b` or `\u202e`."""
    return text if text.isascii() and text.isprintable() else _IN_LINE.sub(_escaped, text)


def printable_block(text: str) -> str:
    """Return the text with its line breaks and tabs, other control characters as escapes."""
    return _IN_BLOCK.sub(_escaped, text)


def printable_json(text: str) -> str:
    """Return JSON text that has the same value and no control characters but line breaks and tabs."""
    return _IN_BLOCK.sub(_json_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


def _json_escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

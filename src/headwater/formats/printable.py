"""Text of clients for terminals and log lines: no control character, no line break, no change of direction.

Such text could move the cursor, hide itself or forge a line (G12).
"""

from __future__ import annotations


def printable_line(text: str) -> str:
    """Return the text as one line; characters that cannot be printed are escaped as in JSON."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def printable_block(text: str) -> str:
    r"""Return the text with its line breaks and tabs, other such characters escaped; JSON keeps its value."""
    if text.isprintable():
        return text
    return "".join(each if each in "\n\t" else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))

"""Values of `_unmapped_data` that a product's JSON type would change or refuse.

Such a value stands in the object as a text: the JSON of the value, with all its digits and escapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import msgspec
import pyarrow as pa

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class JsonLimits(NamedTuple):
    """What the JSON type of a product keeps as it is."""

    suspect: re.Pattern[str]
    """Found in every text that may have a value which the type does not keep."""
    keeps: Callable[[bytes], bool]
    """Whether the type keeps a value, which is given as JSON."""


def with_kept_values(text: str, limits: JsonLimits) -> str:
    """The JSON object with each value that the product does not keep as the text of its JSON."""
    if limits.suspect.search(text) is None:
        return text
    try:
        entries = _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return text
    parts = []
    for name, token in entries.items():
        plain = bytes(token).strip()
        kept = plain if limits.keeps(plain) else as_text(plain.decode()).encode()
        parts.append(msgspec.json.encode(name.replace("\0", "\\u0000")) + b":" + kept)
    return f"{{{b','.join(parts).decode()}}}"


def as_text(json: str) -> str:
    """The JSON of a value as a JSON text."""
    return msgspec.json.encode(json).decode()


def column_of_kept_values(column: pa.Array, limits: JsonLimits) -> pa.Array:
    """A column of JSON objects, each `with_kept_values`."""
    texts = [None if text is None else with_kept_values(text, limits) for text in column.to_pylist()]
    return pa.array(texts, pa.string())


def _jsonb_keeps(token: bytes) -> bool:
    try:
        msgspec.json.decode(token)
    except (msgspec.DecodeError, UnicodeError):
        return False  # a lone surrogate, or a number that no double holds
    return _ESCAPED_NUL.search(token) is None


JSONB = JsonLimits(re.compile(r"\\u(?:0000|[dD][89abAB])|\d[eE][+-]?\d{3}"), _jsonb_keeps)
"""Postgres: no NUL, no lone surrogate; numbers of a decimal with an exponent that is not enormous."""


def _variant_keeps(token: bytes) -> bool:
    if token[:1] in b'"':
        return True
    try:
        number = Decimal(token.decode())
    except (InvalidOperation, UnicodeDecodeError):
        return False  # it has such a number in it
    if b"e" not in token.lower():
        return len(number.as_tuple().digits) <= 38
    return number.is_finite() and abs(number.adjusted()) < 300 and Decimal(repr(float(number))) == number


VARIANT = JsonLimits(re.compile(r"[\d.]{39}|\d[eE][+-]?\d"), _variant_keeps)
"""Snowflake: a number of more than 38 digits, or with an exponent, becomes a double."""

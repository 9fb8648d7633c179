"""JSON texts of values for property tests, and which of them a column must take."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from decimal import Decimal

import msgspec

from tests.support.value_oracle import Number, instant, parse

__all__ = ["KINDS", "MIXES", "Values", "must_be_stored"]

KINDS = {"int": "1", "float": "0.5", "text": '"a"', "bool": "true", "time": '"2026-11-16T10:00:00Z"'}
"""A value that makes a column of each kind."""
MIXES = 4
"""Columns of each kind, by the values that they take; see `Values.of_mix`."""


class Values:
    """JSON texts of values, from the ordinary to the edges of every type."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._all: tuple[Callable[[], str], ...] = (
            self.integer,
            self.number,
            self.text,
            self.number_text,
            self.moment,
            self.moment,
            self.truth,
            self.array,
            lambda: "null",
        )

    def any(self) -> str:
        return self._random.choice(self._all)()

    def of_mix(self, kind: str, mix: int) -> str:
        """A value for a column: of all sorts, numbers alone, texts alone, or near its own kind."""
        if mix == 0:
            return self.any()
        if mix == 1:
            return self._random.choice((self.integer, self.number))()
        if mix == 2:
            return self._random.choice((self.text, self.number_text, self.moment))()
        near: dict[str, tuple[Callable[[], str], ...]] = {
            "int": (self.integer, self.integer, self.truth, lambda: "null"),
            "float": (self.number, self.number, self.integer),
            "text": (self.text, self.array),
            "bool": (self.truth, self.truth, lambda: "null"),
            "time": (self.moment,),
        }
        return self._random.choice(near[kind])()

    def integer(self) -> str:
        choose = self._random
        edge = choose.choice(
            (0, 1, 1 << 31, 1 << 32, 1 << 53, 1 << 63, 1 << 64, 10**18, 10**19, 10**37, 10**38)
        )
        number = choose.choice(
            (
                choose.randint(-100, 100),
                edge + choose.randint(-2, 2),
                -edge + choose.randint(-2, 2),
                choose.getrandbits(choose.randint(1, 140)),
            )
        )
        return choose.choice(("-0", str(number))) if choose.random() < 0.05 else str(number)

    def number(self) -> str:
        choose = self._random
        match choose.randint(0, 6):
            case 0:
                return f"{choose.randint(-999, 999)}.{choose.randint(0, 99):02d}"
            case 1:
                return repr(choose.uniform(-1e6, 1e6))
            case 2:
                return (
                    f"{self.integer()}.{choose.choice(('0', '00', '5', '3', '10', '000000000000000000001'))}"
                )
            case 3:
                mantissa = choose.choice(
                    ("1", "1.0", "-1.5", "9.99", "1.7976931348623157", "4.9", "12345678901234567")
                )
                sign = choose.choice(("e", "E", "e+", "e-", "E-"))
                return f"{mantissa}{sign}{choose.choice((0, 1, 3, 5, 18, 19, 20, 21, 50, 290, 307))}"
            case 4:
                digits = "".join(choose.choices("0123456789", k=choose.randint(1, 45)))
                return f"0.{digits}"
            case 5:
                return choose.choice(
                    ("0.99999999999999999999", "5.00000000000000000001", "9007199254740993.0")
                )
            case _:
                return repr(choose.random() * 10 ** choose.randint(-30, 25))

    def text(self) -> str:
        choose = self._random
        letters = "ab Zé名😀'\"\\/,;{}[]\n\r\t\x7f\u202e\ufeff$`%"
        text = "".join(choose.choices(letters, k=choose.randint(0, 12)))
        if choose.random() < 0.1:
            text += choose.choice(
                ("\0", "\0\0x", "\\N", "NULL", "nan", "Infinity", "{}", "[1.10]", "x" * 3_000)
            )
        encoded = msgspec.json.encode(text).decode()
        return encoded.replace("a", "\\u0061") if choose.random() < 0.1 else encoded

    def number_text(self) -> str:
        choose = self._random
        forms = (
            "007",
            "1.10",
            "1e3",
            "-0",
            "+1",
            " 1",
            "1 ",
            "0x10",
            "1_000",
            "1,5",
            "٣",
            "true",
            "false",
            "TRUE",
            ".5",
            "5.",
        )
        text = choose.choice((choose.choice(forms), self.integer(), self.number()))
        return msgspec.json.encode(text).decode()

    def moment(self) -> str:
        choose = self._random
        year = choose.choice((2026, 2026, 1999, 1970, 1969, 1899, 1900, 2299, 2300, 1, 9999))
        day = choose.choice(("11-16", "02-28", "02-29", "02-30", "12-31", "01-01"))
        time = choose.choice(("10:00:00", "23:59:59", "00:00:00", "23:59:60", "24:00:00", "10:00"))
        fraction = choose.choice(
            ("", "", ".1", ".123", ".123456", ".1234567", ".123456789", ".9999999", ".0")
        )
        zone = choose.choice(
            ("Z", "Z", "z", "", "+00:00", "+01:00", "-08:00", "+17:59", "-17:59", "+0530", " UTC")
        )
        divider = choose.choice("TTT t")
        if choose.random() < 0.08:
            return choose.choice(
                ('"2026-11-16"', '"2026"', '"10:00:00"', '"2026-11-16T"', '"20261116T100000Z"')
            )
        return f'"{year:04d}-{day}{divider}{time}{fraction if time.count(":") == 2 else ""}{zone}"'

    def truth(self) -> str:
        return self._random.choice(("true", "false"))

    def array(self) -> str:
        choose = self._random
        parts = [
            choose.choice((self.number, self.integer, self.text, self.truth))()
            for _ in range(choose.randint(0, 3))
        ]
        parts += ['{"b":1.10,"a":[1e400]}'] if choose.random() < 0.2 else []
        return f"[{choose.choice((',', ', ')).join(parts)}]"


def must_be_stored(kind: str, token: str, product: str) -> bool:
    """Whether a value is so ordinary for its column that it may not be aside."""
    value = parse(token)
    if isinstance(value, Number):
        number = Decimal(value.text)
        if kind == "int":
            return re.fullmatch("-?[0-9]+", value.text) is not None and -(1 << 63) <= number < 1 << 63
        if kind == "float":
            digits = value.text.lstrip("-0.").replace(".", "")
            places = len(value.text.partition(".")[2])
            return (
                "e" not in value.text.lower() and len(digits) <= 15 and places <= 15 and abs(number) < 10**15
            )
        return kind == "text"
    if isinstance(value, bool):
        return kind in ("bool", "text")
    if isinstance(value, str):
        if kind == "time" and (at := instant(value)) is not None:
            return at.denominator == 1 and re.fullmatch(r"(19[7-9]|20)[0-9]+-.*T..:..:..Z", value) is not None
        return kind == "text" and (product != "postgres" or "\0" not in value)
    return kind == "text" and isinstance(value, list)

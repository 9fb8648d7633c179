"""A value is in its column exactly, or in `_unmapped_data` as it was sent: against an oracle in decimals."""

from __future__ import annotations

import json
import random
import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pytest
from pyspark.sql import functions

from headwater.destinations.column_types import Kind
from headwater.destinations.table import UNMAPPED, Column, table_of
from headwater.pipeline.steps.parse_events import TextNumbers
from headwater.settings import FieldSettings, MappingSettings
from tests.pipeline.rig import Rig

KINDS = (Kind.BOOL, Kind.INT64, Kind.FLOAT64, Kind.STRING, Kind.TIMESTAMP, Kind.JSON)
MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:Z|([+-])([0-9]{2}):?([0-9]{2}))?"
)
NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
CANONICAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?")
# fmt: off
KNOWN = [
    "0", "-0", "1", "-1", "7", "5.0", "5e0", "50e-1", "5.5", "1.10", "1e3", "1e19", "1E400",
    "-1e400", "1e-400", "0.1", "0.10000000000000001", "0e5", "0.0", "-0.0", "9007199254740993",
    "9007199254740992", "9007199254740993.0", "9007199254740992.5", "4503599627370497.3",
    "1234567890123456789", "0.99999999999999999999", "5.00000000000000000001",
    "0.30000000000000004", "1e2147483647", "1e-2147483648", "1e99999999999", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "1.8e308", "-9223372036854775809",
    "9223372036854775807.0", "123456789012345678901234567890", "2.2250738585072014e-308", "5e-324",
    "4e-324", "1.7976931348623157e308", "100000000000000000000000", "1152921504606846976",
    "0.1234567890123456789", "true", "false", "[]", "[1.10,1e400]", '[[],{"a":1.10}]',
]
# fmt: on
TEXTS = [
    *(
        "",
        "7",
        "007",
        "1.10",
        "1.5",
        "1e3",
        "-0",
        "0",
        "-7",
        "+7",
        "7 days",
        "0x1f",
        "NaN",
        "Infinity",
        "true",
        "True",
    ),
    *(
        "1e400",
        "1e99999999999",
        "9223372036854775808",
        "0.99999999999999999999",
        "5.",
        ".5",
        "５",
        "1_000",
        " 1",
    ),
    *("\ud800", "a\udc00", "\U0001f600", "\0", 'say "x"\\\n', "é", "\u2028", "${x}", "2026-11-16T10:00:00Z"),
    *("2026-11-16T10:00:00.123456Z", "2026-11-16T10:00:00.1234567Z", "2026-11-16T10:00:00.123456000Z"),
    *(
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+17:59",
        "9999-12-31T23:59:59.999999Z",
        "9999-12-31T23:59:59-00:01",
    ),
    *(
        "2024-02-29T23:59:59.5+0530",
        "2026-02-29T00:00:00Z",
        "1969-12-31T23:59:59.000001Z",
    ),
]


class Expected(NamedTuple):
    """What a column has of a value, and whether its text is in `_unmapped_data`."""

    value: Any
    is_aside: bool


def double(number: Decimal) -> float | None:
    """The double that is the number when written with the fewest digits, as every product writes it."""
    try:
        found = float(number)
    except OverflowError:
        return None
    if found in (float("inf"), float("-inf")):
        return None
    return found if Decimal(repr(found)) == number else None


def whole(number: Decimal) -> int | None:
    """The 64-bit integer that is the number."""
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return 0
    stripped = text.rstrip("0")
    exponent += len(text) - len(stripped)
    if exponent < 0 or len(stripped) + exponent > 19:
        return None
    found = (-1 if sign else 1) * int(stripped) * 10**exponent
    return found if -(2**63) <= found < 2**63 else None


def decimal(text: str) -> Decimal | None:
    """The number, unless its exponent is beyond every type."""
    exponent = text.lower().partition("e")[2]
    return None if len(exponent.lstrip("+-0")) > 9 else Decimal(text)


def moment(text: str) -> tuple[int, bool] | None:
    """The moment in microseconds since 1970, and whether it has more digits."""
    found = MOMENT.fullmatch(text)
    if found is None:
        return None
    fraction = (found[7] or "").ljust(9, "0")
    try:
        year, month, day, hour, minute, second = (int(found[n]) for n in range(1, 7))
        at = datetime(year, month, day, hour, minute, second, int(fraction[:6]))  # noqa: DTZ001
        hours, minutes = int(found[9] or 0), int(found[10] or 0)
        if hours > 17 or minutes > 59:
            return None
        at -= timedelta(minutes=(hours * 60 + minutes) * (-1 if found[8] == "-" else 1))
    except (ValueError, OverflowError):
        return None
    since = at - datetime(1970, 1, 1)  # noqa: DTZ001
    return since // timedelta(microseconds=1), fraction[6:] != "000"


def expected(token: str, kind: Kind, texts: TextNumbers) -> Expected:
    """What a column of a kind has of a JSON token."""
    is_text = token.startswith('"')
    text = json.loads(token) if is_text else ""
    aside = Expected(None, True)
    match kind:
        case Kind.JSON:
            return Expected(readable(token), False)
        case Kind.STRING:
            if is_text and any("\ud800" <= letter <= "\udfff" for letter in text):
                return aside
            return Expected(text if is_text else token, False)
        case Kind.TIMESTAMP:
            found = moment(text) if is_text else None
            return Expected(found[0], found[1]) if found else aside
    if token[0] == "[":
        return aside
    if token in ("true", "false") or (
        is_text and text in ("true", "false") and kind is Kind.BOOL and texts != "never"
    ):
        return Expected(
            (text if is_text else token) == "true" if kind is Kind.BOOL else int(token == "true"), False
        )
    if is_text:
        form = {"never": None, "canonical": CANONICAL, "always": NUMBER}[texts]
        is_number = form is not None and form.fullmatch(text) and not (texts == "canonical" and text == "-0")
        if not is_number or (kind is Kind.BOOL and text not in (("0", "1") if texts == "always" else ())):
            return aside
    number = decimal(text if is_text else token)
    if number is None or (kind is Kind.BOOL and not is_text):
        return aside
    if kind is Kind.FLOAT64:
        value: Any = double(number)
    else:
        value = whole(number)
        if kind is Kind.BOOL:
            value = {0: False, 1: True}.get(value) if value is not None else None
    return aside if value is None else Expected(value, False)


def readable(token: str) -> str:
    """A token as it stands in a JSON column."""
    is_broken = token.startswith('"') and any("\ud800" <= letter <= "\udfff" for letter in json.loads(token))
    return json.dumps(token) if is_broken else token


def tokens(seed: int, count: int) -> list[str]:
    """JSON tokens: the known ones, and numbers and texts at random."""
    rng = random.Random(seed)
    found = [
        *KNOWN,
        *(
            json.dumps(text, ensure_ascii=number % 2 == 0 or "\ud800" <= max(text, default="") <= "\udfff")
            for number, text in enumerate(TEXTS)
        ),
    ]
    while len(found) < count:
        digits = str(rng.getrandbits(rng.choice((8, 53, 54, 63, 64, 90))))
        if rng.random() < 0.5:
            digits += "." + str(rng.getrandbits(rng.choice((4, 40, 60)))) + "0" * rng.randrange(3)
        if rng.random() < 0.3:
            digits += rng.choice("eE") + str(rng.randrange(-330, 330))
        if rng.random() < 0.3:
            digits = repr(rng.random() * 10 ** rng.randrange(-20, 20)).replace("e+", "e")
        if rng.random() < 0.3:
            digits = "-" + digits
        found.append(json.dumps(digits) if rng.random() < 0.3 else digits)
    return found


@pytest.mark.usefixtures("codegen")
@pytest.mark.parametrize("texts", ["canonical", "always", "never"])
def test_a_value_is_exact_or_kept_as_it_was_sent_when_its_column_has_any_kind(
    rig: Rig, texts: TextNumbers
) -> None:
    sent = tokens(seed=16, count=1_500)
    table = table_of("t", [Column(str(kind).lower(), kind) for kind in KINDS])
    names = [str(kind).lower() for kind in KINDS]
    events = [("{" + ", ".join(f'"{name}" : {token}' for name in names) + "}").encode() for token in sent]
    result = rig.project(*events, existing=table, text_numbers=texts)
    # PySpark's own conversion fails for the year 1
    result.frame = result.frame.withColumn("timestamp", functions.unix_micros("timestamp"))
    rows = result.rows
    wrong = []
    for token, row in zip(sent, rows, strict=True):
        aside = msgspec.json.decode(row.get(UNMAPPED, "{}"), type=dict[str, msgspec.Raw])
        for kind, name in zip(KINDS, names, strict=True):
            wanted = expected(token, kind, texts)
            kept = bytes(aside[name]).decode() if name in aside else None
            got = row.get(name)
            if got != wanted.value or isinstance(got, bool) != isinstance(wanted.value, bool):
                wrong.append((token, name, got, wanted))
            if kept != (readable(token) if wanted.is_aside else None):
                wrong.append((token, name, kept, wanted))
    assert not wrong


def test_digits_stay_when_a_new_table_gets_numbers_that_no_type_holds(rig: Rig) -> None:
    result = rig.project(b'{"n":0.99999999999999999999,"id":1234567890123456789}', b'{"n":1.10,"id":0.5}')
    assert result.kinds == {"n": "STRING", "id": "STRING"}
    assert result.rows == [
        {"n": "0.99999999999999999999", "id": "1234567890123456789"},
        {"n": "1.10", "id": "0.5"},
    ]


def test_arrays_and_kept_objects_keep_their_digits_when_they_are_text(rig: Rig) -> None:
    mapping = MappingSettings(fields=(FieldSettings(action="cast", src="/o", type="JSON"),))
    result = rig.project(
        b'{"a": [1.10, 1e400, "\\u00e9 x"], "o": {"b": 1.10, "c": 12345678901234567890123}}', mapping=mapping
    )
    assert result.rows == [{"a": '[1.10,1e400,"\\u00e9 x"]', "o": '{"b":1.10,"c":12345678901234567890123}'}]


REPEATED = [
    (b'{"a":1,"a":2}', {"a": 2}, {"/a": 1}),
    (b'{"a":1,"a":null}', {}, {"/a": 1}),
    (b'{"a":null,"a":2}', {"a": 2}, {}),
    (b'{"a":1,"a":2,"a":3}', {"a": 3}, {"/a": 1, "/a#2": 2}),
    (b'{"o":{"x":1,"y":1.10},"o":{"x":2}}', {"o_x": "2"}, {"/o/x": 1, "/o/y": 1.1}),
    (b'{"o":7,"o":{"x":"t"}}', {"o_x": "t"}, {"/o": 7}),
    (b'{"o":{"x":"t"},"o":7}', {"o": 7}, {"/o/x": "t"}),
    (b'{"o":{"x":"u","x":"v"}}', {"o_x": "v"}, {"/o/x": "u"}),
]


def test_the_last_value_is_stored_and_the_others_kept_when_objects_repeat_keys(rig: Rig) -> None:
    rows = rig.project(*(event for event, _, _ in REPEATED)).rows
    for (event, stored, others), row in zip(REPEATED, rows, strict=True):
        aside = row.pop(UNMAPPED, "{}")
        assert row == stored, event
        assert json.loads(aside) == others, event


def test_a_removed_field_stays_removed_when_a_key_is_repeated(rig: Rig) -> None:
    mapping = MappingSettings(fields=(FieldSettings(action="remove", src="/o/secret"),))
    rows = rig.project(b'{"o":{"secret":1,"x":2},"o":{"secret":3,"x":4}}', mapping=mapping).rows
    assert rows == [{"o_x": 4, UNMAPPED: '{"/o/x":2}'}]


def test_nothing_is_lost_when_a_move_takes_a_place(rig: Rig) -> None:
    mapping = MappingSettings(fields=(FieldSettings(action="move", src="/new", dst="/old"),))
    events = {"old": 1}, {"old": 1, "new": 2}, {"new": 3}
    assert rig.project(*events, mapping=mapping).rows == [
        {"old": 1},
        {"old": 2, UNMAPPED: '{"/old":1}'},
        {"old": 3},
    ]
    often = [{"a": 0}] * 3
    [row, *_] = rig.project({"a": 0, "old": 6, "new": 7}, *often, mapping=mapping, max_columns=2).rows
    assert row == {"a": 0, UNMAPPED: '{"/old":6,"old":7}'}


def test_nothing_is_lost_when_names_meet_without_room(rig: Rig) -> None:
    often = [{"a": 0}] * 3
    [row, *_] = rig.project({"a": 0, "uId": 1, "uid": 2, "uID": 3}, *often, max_columns=2).rows
    aside = msgspec.json.decode(row[UNMAPPED], type=dict[str, int])
    assert sorted(aside.values()) == [1, 2, 3]
    assert row[UNMAPPED].count(":") == 3


def test_a_constant_hides_what_it_replaces_when_events_have_the_field(rig: Rig) -> None:
    mapping = MappingSettings(fields=(FieldSettings(action="constant", dst="/email", value="hidden"),))
    rows = rig.project({"email": "a@b.c", "n": 1}, {"n": 2}, mapping=mapping).rows
    assert rows == [{"email": "hidden", "n": 1}, {"email": "hidden", "n": 2}]


def test_half_a_surrogate_pair_is_kept_as_text_when_arrays_have_one(rig: Rig) -> None:
    event = rb'{"a":["\ud800"],"i":["\udc00\ud83d\ude00"],"o":{"x":1}}'
    [row] = rig.project(event, existing=table_of("t", [Column("i", Kind.INT64)])).rows
    # no product reads JSON with such a text in it
    assert json.loads(row.pop(UNMAPPED)) == {"i": r'["\udc00\ud83d\ude00"]'}
    assert row == {"a": r'["\ud800"]', "o_x": 1}

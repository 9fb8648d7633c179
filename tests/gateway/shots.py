"""Hostile requests by number: a seed and a number always make the same bytes.

A shot is either well-formed HTTP with a body that may be anything, which must be answered once, or HTTP that
is broken itself, which must be answered or cut off. Made by a mutator of our own, since a hundred thousand
examples of hypothesis take longer to make than to be answered.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
import zstandard

from tests.gateway.openlineage_corpus import seeds

__all__ = ["CLIENT_SECRET", "SERVER_SECRET", "Shot", "shot"]

CLIENT_SECRET, SERVER_SECRET = "fuzz-client", "fuzz-server"

LINEAGE = ("/api/v1/lineage", "/api/v1/lineage/batch")
BROWSER = ("/api/v1/event", "/api/v1/events")
SERVER = ("/api/v1/s2s/event", "/api/v1/s2s/events", "/api/v1/events/bulk")
JSON = "application/json"
TYPES = (
    JSON,
    JSON,
    JSON,
    f"{JSON}; charset=utf-8",
    f"{JSON}; charset=UTF8",
    "application/x+json",
    "text/plain",
)
ODD_TYPES = (
    "application/json; charset=utf-16",
    "multipart/form-data",
    ";;;",
    "\xff",
    "application/x-ndjson",
    "",
)
CODINGS = ("gzip", "x-gzip", "zstd", "identity", "GZIP")
ODD_CODINGS = ("br", "gzip, gzip", "zstd;q=1", "", "\x80")
ATOMS = (
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b'"',
    b"\\",
    b"\\u",
    b"\\ud800",
    b"\n",
    b"\0",
    b"\xff",
    b"\xed\xa0",
)
NUMBERS = (
    b"1e999",
    b"-",
    b"-0",
    b"00",
    b"1" * 400,
    b"0." + b"3" * 400,
    b"NaN",
    b"Infinity",
    b"null",
    b"true",
)
LEAVES: tuple[Any, ...] = (None, True, 0, -1, 2**63, 2**64, 1.5, "", "text", "\x00", "ü😀", [], {}, "9" * 300)
ORIGINS = ("null", "https://shop.example", "http://[", "https://" + "a" * 300, "\xe9", "http://a:port", "*")
ADDRESSES = ("", ", ,", "::1", "x" * 300, "\xa0", "1.2.3.4, 5.6.7.8")
AGENTS = ("", "\xe9", "a" * 3000)
EVENTS = [orjson.dumps(seed.event) for seed in seeds()]


@dataclass(frozen=True)
class Shot:
    """What goes over the wire. `is_http`: one answer is due. `body`: as it was before coding and framing."""

    number: int
    data: bytes
    body: bytes
    is_http: bool


def shot(seed: int, number: int) -> Shot:
    """The request of this number."""
    dice = random.Random(f"{seed}/{number}")
    path = dice.choice(dice.choice((LINEAGE, LINEAGE, BROWSER, SERVER)))
    body = _body(dice, path)
    coded, headers = _coded(dice, body)
    data = _framed(dice, path, coded, headers)
    if dice.random() < 0.1:
        return Shot(number, _garbled(dice, data), body, is_http=False)
    return Shot(number, data, body, is_http=True)


# --- bodies ---------------------------------------------------------------------------------------------


def _body(dice: random.Random, path: str) -> bytes:
    if path.endswith(("/batch", "/events")) and dice.random() < 0.6:
        events = b",".join(_event(dice) for _ in range(dice.randrange(5)))
        if dice.random() < 0.3:
            return b'{"template":%b,"events":[%b]}' % (_event(dice), events)
        return b"[%b]" % events
    if path.endswith("/bulk") and dice.random() < 0.8:
        return dice.choice((b"\n", b"\r\n", b"\n\n")).join(_event(dice) for _ in range(dice.randrange(6)))
    return _event(dice)


def _event(dice: random.Random) -> bytes:
    return dice.choice(MAKERS)(dice)


def _whole(dice: random.Random) -> bytes:
    return dice.choice(EVENTS)


def _reshaped(dice: random.Random) -> bytes:
    """A sound event with values exchanged, removed and added, at any depth."""
    event = orjson.loads(dice.choice(EVENTS))
    for _ in range(dice.randint(1, 4)):
        place: Any = event
        while isinstance(place, dict | list) and place:
            name = dice.choice(list(place)) if isinstance(place, dict) else dice.randrange(len(place))
            inner = place[name]
            if not isinstance(inner, dict | list) or not inner or dice.random() < 0.3:
                if dice.random() < 0.3:
                    del place[name]
                else:
                    place[name] = dice.choice(LEAVES)
                break
            place = inner
        event[dice.choice(("run", "job", "dataset", "eventTime", "more", ""))] = dice.choice((event, *LEAVES))
        event = json.loads(_flat(event))
    return json.dumps(event, ensure_ascii=dice.random() < 0.5).encode(errors="surrogatepass")


def _flat(event: dict[str, Any]) -> str:
    """As JSON; an event that was put into itself is copied once."""
    return json.dumps(
        {name: dict(value, **{name: None}) if value is event else value for name, value in event.items()}
    )


def _bytes_changed(dice: random.Random) -> bytes:
    return _garbled(dice, dice.choice(EVENTS))


def _cut(dice: random.Random) -> bytes:
    event = dice.choice(EVENTS)
    return event[: dice.randrange(len(event))]


def _atoms(dice: random.Random) -> bytes:
    return b"".join(dice.choice(ATOMS + NUMBERS) for _ in range(dice.randrange(30)))


def _noise(dice: random.Random) -> bytes:
    return dice.randbytes(dice.randrange(400))


def _deep(dice: random.Random) -> bytes:
    opening, closing = dice.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"[{", b"}]"), (b'["]",', b"]")))
    depth = dice.randrange(3000)
    return opening * depth + b"0" + closing * (depth if dice.random() < 0.7 else 0)


def _wide(dice: random.Random) -> bytes:
    match dice.randrange(4):
        case 0:
            return b"[" + b"0," * dice.randrange(20_000) + b"0]"
        case 1:
            return orjson.dumps({f"k{i}": {} for i in range(dice.randrange(1500))})
        case 2:
            return b'{"job":' * 2 + b'{"a":1,' + b'"a":1,' * dice.randrange(2000) + b'"a":1}}}'
        case _:
            return orjson.dumps(
                {"job": {"name": "x" * dice.randrange(40_000)}, "inputs": [7] * dice.randrange(3000)}
            )


def _repeated(dice: random.Random) -> bytes:
    return dice.randbytes(dice.randint(1, 12)) * dice.randrange(3000)


def _in_other_letters(dice: random.Random) -> bytes:
    text = dice.choice(EVENTS).decode()
    return text.encode(dice.choice(("utf-16", "utf-32", "utf-8-sig", "cp037")))


MAKERS: tuple[Callable[[random.Random], bytes], ...] = (
    *(_whole, _whole, _reshaped, _reshaped, _bytes_changed, _bytes_changed, _cut),
    *(_atoms, _noise, _deep, _wide, _repeated, _in_other_letters),
)


# --- coding, framing, headers ---------------------------------------------------------------------------


def _coded(dice: random.Random, body: bytes) -> tuple[bytes, list[str]]:
    """The body as it is sent, and the header that says so, which may be a lie."""
    if dice.random() < 0.5:
        return body, []
    coding = dice.choice(CODINGS) if dice.random() < 0.9 else dice.choice(ODD_CODINGS)
    header = [f"Content-Encoding: {coding}"]
    if dice.random() < 0.05:  # a bomb
        body = dice.choice((b" ", b"[", b"\0")) * 1_000_000
    if "gzip" in coding.lower():
        packed = gzip.compress(body, 1, mtime=0)
        if dice.random() < 0.2:
            packed += gzip.compress(body[:50], 1, mtime=0)  # a second member
    else:
        packed = zstandard.compress(body) if coding.startswith("zstd") else body
    match dice.randrange(8):
        case 0:
            packed = packed[: dice.randrange(len(packed) + 1)]
        case 1:
            packed = _garbled(dice, packed or b"\0")
        case 2:
            packed = dice.choice((body, packed + b"garbage", b"", zstandard.compress(packed)))
    return packed, header


def _framed(dice: random.Random, path: str, body: bytes, headers: list[str]) -> bytes:
    if dice.random() < 0.8:
        headers.append(f"Content-Type: {dice.choice(TYPES if dice.random() < 0.9 else ODD_TYPES)}")
    if path in BROWSER or path in SERVER:
        path = _with_secret(dice, path, headers)
    if dice.random() < 0.15:
        headers += _odd_headers(dice)
    if dice.random() < 0.2:
        headers.append("Transfer-Encoding: chunked")
        body = _chunked(dice, body)
    else:
        headers.append(f"Content-Length: {len(body)}")
    dice.shuffle(headers)
    method = "POST" if dice.random() < 0.95 else dice.choice(("GET", "OPTIONS", "PUT", "DELETE", "PATCH"))
    head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: fuzz", *headers, "", ""])
    return head.encode("latin-1") + body


def _with_secret(dice: random.Random, path: str, headers: list[str]) -> str:
    secret = CLIENT_SECRET if path in BROWSER else SERVER_SECRET
    if dice.random() < 0.05:
        secret = dice.choice(("", "unknown", "\xff\xfe", CLIENT_SECRET, "x" * 5000))
    if path in BROWSER and dice.random() < 0.3:
        headers.append(f"Origin: {dice.choice(ORIGINS)}")
    match dice.randrange(4):
        case 0 if secret.isascii():
            return f"{path}?token={secret}{dice.choice(('', '&', '&%ff=%', '&a=' + '1' * 500))}"
        case 1:
            headers.append(f"Authorization: Bearer {secret}")
        case _:
            headers.append(f"X-Auth-Token: {secret}")
    return path


def _odd_headers(dice: random.Random) -> list[str]:
    match dice.randrange(7):
        case 0:
            return [f"X-{i}: {i}" for i in range(dice.randrange(300))]
        case 1:
            return [f"X-Long: {'x' * dice.randrange(30_000)}"]
        case 2:
            return ["Expect: 100-continue"]
        case 3:
            return ["Connection: close"]
        case 4:
            return ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"]
        case 5:
            return [f"X-Forwarded-For: {dice.choice(ADDRESSES)}"]
        case _:
            return [f"User-Agent: {dice.choice(AGENTS)}", "Authorization: Basic !!!"]


def _chunked(dice: random.Random, body: bytes) -> bytes:
    parts = []
    while body:
        size = dice.choice((1, 7, 500, 10_000)) if len(body) < 2000 else 10_000
        piece, body = body[:size], body[size:]
        extension = dice.choice((b"", b"", b";a=b", b';x="y z"'))
        parts.append(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece))
    trailer = dice.choice((b"", b"", b"X-Trailer: 1\r\n", b"Content-Length: 5\r\n"))
    return b"".join([*parts, b"0\r\n", trailer, b"\r\n"])


def _garbled(dice: random.Random, data: bytes) -> bytes:
    """A few bytes changed, removed, put in, or doubled."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(changed) + 1)
        match dice.randrange(4):
            case 0:
                changed[at : at + 1] = dice.randbytes(1)
            case 1:
                del changed[at : at + dice.randint(1, 20)]
            case 2:
                changed[at:at] = dice.choice(
                    (dice.randbytes(dice.randint(1, 9)), dice.choice(ATOMS + NUMBERS))
                )
            case _:
                changed[at:at] = changed[at : at + dice.randint(1, 60)]
    return bytes(changed)

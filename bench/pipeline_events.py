"""Generated analytics events of about 1 KB: nested, drifting, with fields whose type is not the same twice.

Half-way through a new field appears and at three quarters another; `value` is an integer, a float or text,
`flag` a boolean or an integer, `when` a time or text; there are arrays of scalars and of objects, and one
event in a hundred repeats an id. The same seed gives the same bytes. Without drift all events have the same
fields, each of one type.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

__all__ = ["events", "write"]

AGENTS = tuple(
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)"
    f" Chrome/{90 + i}.0.{i}.{7 * i} Safari/537.36"
    for i in range(40)
)
PAGES = tuple(f"/catalogue/section-{i % 17}/article-{i}" for i in range(300))
TYPES = ("pageview", "pageview", "pageview", "product_viewed", "product_viewed", "user_identify")
BASE = 1_793_500_000


def _time(seconds: float) -> str:
    # by hand: strftime would be most of the generator's time
    whole = int(seconds)
    day, rest = divmod(whole - BASE, 86_400)
    hour, rest = divmod(rest, 3_600)
    minute, second = divmod(rest, 60)
    micros = int(seconds * 1e6) % 1_000_000
    return f"2026-11-{1 + day % 28:02d}T{hour:02d}:{minute:02d}:{second:02d}.{micros:06d}Z"


def events(count: int, *, seed: int = 7, addresses: int = 1_000, drifts: bool = True) -> Iterator[bytes]:
    """`count` events in order, each one line of JSON without its newline."""
    rng = random.Random(seed)
    pick, number, fraction = rng.choice, rng.randrange, rng.random
    last_id = ""
    for i in range(count):
        kind = pick(TYPES)
        at = BASE + i * 0.05
        event_id = last_id if last_id and i % 100 == 99 else f"{rng.getrandbits(128):032x}"
        last_id = event_id
        page = pick(PAGES)
        address = number(addresses)
        value = (number(1000), round(fraction() * 100, 2), "N/A")[i % 3] if i % 7 == 0 else number(1000)
        network = f"{5 + (address >> 16) % 200}.{address >> 8 & 255}.{address & 255}"
        event: dict[str, Any] = {
            "api_key": "js.0a1b2c3d4e5f",
            "src": "eventn",
            "event_type": kind,
            "_timestamp": _time(at),
            "source_ip": f"{network}.{1 + address % 250}",
            "eventn_ctx": {
                "event_id": event_id,
                "user": {"anonymous_id": f"v{number(200_000):08x}", "id": number(50_000)},
                "ids": {"ga": f"GA1.2.{number(10**9)}.{number(10**9)}", "fbp": f"fb.1.{number(10**12)}"},
                "user_agent": pick(AGENTS),
                "utc_time": _time(at - fraction() * 3),
                "local_tz_offset": -60 * number(12),
                "referer": f"https://search.example/?q={number(10**6)}",
                "url": f"https://shop.example{page}?gclid={number(10**8)}",
                "page_title": f"Article {page[-3:]} of the catalogue",
                "doc_path": page,
                "doc_host": "shop.example",
                "screen_resolution": pick(("1280x720", "1920x1080", "390x844")),
                "vp_size": f"{300 + number(1600)}x{400 + number(700)}",
                "user_language": pick(("en-US", "de-DE", "fr-FR", "pt-BR")),
                "doc_encoding": "UTF-8",
                "utm": {"source": pick(("ads", "mail", "direct")), "campaign": f"c{number(50)}"},
            },
            "properties": {
                "value": value,
                "flag": number(2) if i % 11 == 0 else fraction() < 0.5,
                "when": "tomorrow" if i % 997 == 0 else _time(at),
                "price": round(fraction() * 500, 2),
                "quantity": number(9),
                "tags": [pick(("a", "b", "c", "d")), f"t{number(99)}"],
            },
        }
        if not drifts:
            event["properties"] |= {"value": number(1000), "flag": fraction() < 0.5, "when": _time(at)}
        if kind == "product_viewed" or not drifts:
            event["items"] = [
                {"sku": f"S{number(9999)}", "n": number(5)},
                {"sku": f"S{number(9999)}", "n": 1},
            ]
        if kind == "user_identify" or not drifts:
            event["traits"] = {
                "email": f"u{number(10**6)}@mail.example",
                "plan": pick(("free", "pro")),
                "age": number(90),
            }
        if i > count // 2 and drifts:
            event["experiment"] = {"name": f"exp-{number(20)}", "variant": number(3)}
        if i > count // 4 * 3 and drifts:
            event["late field"] = fraction()
        yield orjson.dumps(event)


def write(path: Path, count: int, *, seed: int = 7, addresses: int = 1_000, drifts: bool = True) -> int:
    """Write `count` events as lines; answers the bytes."""
    with path.open("wb", buffering=1 << 20) as file:
        for line in events(count, seed=seed, addresses=addresses, drifts=drifts):
            file.write(line)
            file.write(b"\n")
    return path.stat().st_size

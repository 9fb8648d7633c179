"""Events of a small shop as real senders produce them: nested, with types that drift and conflict."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

TEMPLATE = "{% if event_type %}{{ event_type | lower }}_{{ _timestamp | date('%Y') }}{% endif %}"
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Mobile/15E148 Safari/604.1",
)


def order_table(today: date) -> str:
    """The table that `TEMPLATE` gives the orders of a day."""
    return f"order_{today:%Y}"


def first_day(count: int, today: date) -> list[dict[str, Any]]:
    """Page views and orders; amounts are whole numbers in some and fractions in others."""
    chance = random.Random(1)
    return [_event(chance, n, today) for n in range(count)]


def second_day(count: int, today: date) -> list[dict[str, Any]]:
    """The same shop after a release: new fields, and values that do not fit the tables."""
    chance = random.Random(2)
    found = []
    for n in range(count):
        event = _event(chance, n, today)
        if event["event_type"] == "Order":
            event["coupon"] = {"code": f"C{n}", "percent": 10}
        if n % 20 == 3:
            event["amount"] = "on request"  # The column holds numbers: the value goes to _unmapped_data.
        if n % 20 == 9:
            event["event_type"] = ""  # No table: the event is skipped.
        if n % 20 == 15 and n > count // 2:
            event["_timestamp"] = "yesterday"  # The table's name needs a time: the event is rejected.
        found.append(event)
    return found


def _event(chance: random.Random, n: int, today: date) -> dict[str, Any]:
    event = _pageview(chance, n, today) if n % 3 else _order(chance, n)
    return event | {"_timestamp": f"{today}T10:{n % 60:02d}:00.000000Z"}


def _pageview(chance: random.Random, n: int, today: date) -> dict[str, Any]:
    return {
        "event_type": "Pageview",
        "eventn_ctx": {
            "event_id": f"view-{chance.getrandbits(48):012x}",
            "utc_time": f"{today}T10:{n % 60:02d}:00.000000Z",
            "user": {"anonymous_id": f"u{n % 17}", "is_new": chance.random() < 0.5},
            "url": f"https://shop.example/item/{n}?utm_source=demo",
        },
        "page": {"title": f"Item {n}", "load-ms": chance.choice([n, n + 0.5]), "tags": ["demo", n]},
    }


def _order(chance: random.Random, n: int) -> dict[str, Any]:
    return {
        "event_type": "Order",
        "event_id": f"order-{chance.getrandbits(48):012x}",
        "amount": chance.choice([n, n / 4, n > 10]),
        "customer": {
            "id": chance.choice([n, f"guest-{n}"]),
            "address": {"city": "Źdźbło", "zip": f"{n:05d}"},
        },
        "lines": [{"sku": f"S{i}", "count": i} for i in range(n % 3)],
    }

"""OpenLineage events for benchmarks: compliant, about 2 KB each, no two alike."""

from __future__ import annotations

import random
import uuid

import orjson

__all__ = ["event", "events"]

PRODUCER = "https://example.org/bench"
WORDS = ("amount", "customer", "order", "created", "status", "country", "channel", "price")
FACET = {"_producer": PRODUCER, "_schemaURL": "https://example.org/facet.json"}


def event(number: int) -> bytes:
    """The event of this number: always the same bytes."""
    chance = random.Random(number)
    run = str(uuid.UUID(int=chance.getrandbits(128), version=4))
    columns = [f"{chance.choice(WORDS)}_{chance.getrandbits(32):08x}" for _ in range(7)]
    fields = [{"name": name, "type": chance.choice(["bigint", "string", "double"])} for name in columns]
    lineage = {
        name: {
            "inputFields": [{"namespace": "s3://lake", "name": f"raw/{chance.randrange(99)}", "field": name}]
        }
        for name in columns
    }
    return orjson.dumps(
        {
            "eventType": "COMPLETE",
            "eventTime": f"2026-11-16T10:{number // 60 % 60:02d}:{number % 60:02d}.000Z",
            "producer": PRODUCER,
            "schemaURL": "https://example.org/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
            "run": {
                "runId": run,
                "facets": {
                    "parent": FACET
                    | {"run": {"runId": run}, "job": {"namespace": "bench", "name": f"dag_{number % 50}"}},
                },
            },
            "job": {"namespace": "bench", "name": f"dag_{number % 50}.task_{number}"},
            "inputs": [{"namespace": "s3://lake", "name": f"raw/{chance.randrange(99)}"}],
            "outputs": [
                {
                    "namespace": "postgres://db:5432",
                    "name": f"shop.public.table_{chance.randrange(500)}",
                    "facets": {
                        "schema": FACET | {"fields": fields},
                        "columnLineage": FACET | {"fields": lineage},
                    },
                }
            ],
        }
    )


def events(count: int) -> list[bytes]:
    return [event(number) for number in range(count)]

"""The cases of batch mode, through both modes: in the end the tables are the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from headwater.settings import Settings
from tests.pipeline.rig import BROWSER_KEY
from tests.pipeline.stream_rig import StreamRig, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENT = "2026-11-16T10:00:00.123456Z"
AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"

# By name: settings of the destination, and events batch after batch.
CASES: dict[str, tuple[dict[str, Any], list[list[Any]]]] = {
    # the only table's columns drift from batch to batch
    "drift": (
        {"primary_key": ["id"]},
        [
            [
                {"id": "e1", "_timestamp": MOMENT, "user": {"id": 7, "name": "Ann"}, "a": 1, "tags": ["a"]},
                {"id": "e2", "_timestamp": MOMENT, "user": {"id": 8}, "a": 2, "new": True, "big": 2**70},
                {"id": "e1", "b": "first"},
            ],
            [{"id": "e1", "a": "many", "c": True}, {"id": "e3", "a": 2.0}, {"id": "e2", "a": True}],
            [{"id": "e4", "a": None, "d": {}}, {}],
        ],
    ),
    # tables by name; some events are skipped, some are none
    "tables": (
        {"table_name_template": "{{ event_type | lower | default('events') }}"},
        [
            [
                {"event_type": "Page View", "n": 1},
                {"event_type": "buy", "n": "x"},
                {"n": 3.5},
                {"event_type": "", "n": 4},
                b'{"event_type": "buy", "n": 5',
                b"[]",
                {"event_type": "Page View", "n": 6, "late": True},
            ]
        ],
    ),
    # enrichment, mapping, a table with too few columns
    "steps": (
        {
            "enrichment": [{"name": "user_agent_parse", "from": "/agent", "to": "/parsed"}],
            "mappings": {
                "fields": [
                    {"src": "/user/mail", "action": "remove"},
                    {"src": "/price", "dst": "/money/value", "action": "move"},
                    {"dst": "origin", "action": "constant", "value": "shop"},
                ]
            },
            "max_columns": 12,
        },
        [
            [
                {"api_key": BROWSER_KEY, "source_ip": "8.8.8.8", "eventn_ctx": {"user_agent": AGENT}},
                {"api_key": "web", "source_ip": "8.8.8.8", "agent": AGENT},
                {"user": {"mail": "a@b", "id": 1}, "price": 1.5},
                {"x1": 1, "x2": 2, "x3": 3, "x4": 4, "x5": 5},
            ]
        ],
    ),
}


def destinations(mode: str) -> list[dict[str, Any]]:
    return [
        {"id": f"{mode}-{name}", "mode": mode, "only_keys": [name]} | own for name, (own, _) in CASES.items()
    ]


def tokens() -> list[dict[str, Any]]:
    return [{"id": name, "client_secret": BROWSER_KEY, "server_secret": f"s-{name}"} for name in CASES]


@pytest.fixture(scope="module")
def rig(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamRig]:
    """All cases through both modes at once: what costs time is a query, not an event."""
    with StreamRig(spark, tmp_path_factory.mktemp("conformance")) as made:
        batch(made, made.settings(*destinations("batch"), tokens=tokens()))
        stream(made, made.stream_settings(*destinations("stream"), tokens=tokens()))
        yield made


def batch(rig: StreamRig, settings: Settings) -> None:
    for name, (_, rounds) in CASES.items():
        for events in rounds:
            rig.file(events, token=name)
    report = rig.cycle(settings)
    assert report.is_complete, report.errors


def stream(rig: StreamRig, settings: Settings) -> None:
    with rig.stream(settings):
        for number in range(max(len(rounds) for _, rounds in CASES.values())):
            ends = {
                f"stream-{name}": rig.put(settings, *rounds[number], id=f"stream-{name}")
                for name, (_, rounds) in CASES.items()
                if number < len(rounds)
            }
            for id, end in ends.items():
                until(lambda id=id, end=end: rig.cursor(id).position == end, id)  # type: ignore[misc]


@pytest.mark.parametrize("name", CASES)
def test_the_tables_are_the_same_in_the_end_when_events_come_by_stream(rig: StreamRig, name: str) -> None:
    one, other = f"batch-{name}", f"stream-{name}"
    tables = rig.tables(one)
    assert rig.tables(other) == tables
    assert tables
    for table in tables:
        assert rig.types(table, other) == rig.types(table, one)
        found = [sorted(map(repr, rig.rows(table, id))) for id in (one, other)]
        assert found[0] == found[1]
        assert found[0]
    told = [
        sorted((each.error, bytes(each.event) or each.malformed_event) for each in rig.rejects(id))
        for id in (one, other)
    ]
    assert told[0] == told[1]

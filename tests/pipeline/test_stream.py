"""Stream mode: what is put into a queue becomes rows at once, exactly once, whatever happens on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.rig import BROWSER_KEY
from tests.pipeline.stream_rig import StreamRig, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENT = "2026-11-16T10:00:00.123456Z"


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path) -> Iterator[StreamRig]:
    with StreamRig(spark, tmp_path) as made:
        yield made


def test_events_become_rows_when_they_are_in_the_queue(rig: StreamRig) -> None:
    settings = rig.stream_settings()
    end = rig.put(settings, {"_timestamp": MOMENT, "user": {"id": 7}, "price": 1, "tags": ["a"]})
    with rig.stream(settings):
        until(lambda: rig.cursor().position == end)
        # while it runs: a new column, a wider value, a bad line
        end = rig.put(settings, {"price": 2.5, "new": True}, b"[1]", {"price": "x"})
        until(lambda: rig.cursor().position == end)
    assert rig.types() == {
        "_timestamp": "TIMESTAMP",
        "user_id": "BIGINT",
        "price": "BIGINT",
        "tags": "VARCHAR",
        "new": "BOOLEAN",
        "_unmapped_data": "JSON",
    }
    assert [row.get("price") for row in rig.rows()] == [1, None, None]
    cursor = rig.cursor()
    assert (cursor.events, cursor.rows, cursor.rejected, cursor.unmapped) == (4, 3, 1, 2)
    assert (cursor.planned, cursor.missing, cursor.error) == (None, 0, "")
    [reject] = rig.rejects()
    assert reject.malformed_event == "[1]"
    assert reject.source.startswith("queue.dst=dwh/")
    assert reject.source.endswith(":3")
    # archived under the seed's name when it stops, and only then collected
    [(name, content)] = rig.archived().items()
    assert name.startswith("streaming-archive.dst=dwh-")
    assert len(content.splitlines()) == 4
    assert cursor.archived == end
    assert rig.queues is not None
    log = rig.queues.log("dwh")
    until(lambda: log.stat().readers[0].position == end)


def test_a_restart_goes_on_where_it_was_when_it_was_stopped(rig: StreamRig) -> None:
    settings = rig.stream_settings()
    for number in range(3):
        cursor = rig.drained(settings, {"n": number})
        assert (cursor.position, cursor.rows) == (number + 2, number + 1)
    assert rig.rows() == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert len(rig.archived()) == 3

"""What streams are fed with has the names that any other job would give it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.lineage.naming.names import kafka_id, path_id
from headwater.log.queue.commit_format import Commit
from headwater.pipeline.stream.next_range import limit_bytes
from headwater.pipeline.stream.sources import KafkaSource, QueueSource
from headwater.settings import Settings, parse


def settings_of(folder: Path, **more: Any) -> Settings:
    destination = {"id": "dwh", "type": "duckdb", "path": "x.duckdb", "mode": "stream"}
    return parse(json.dumps({"data_dir": str(folder), "destinations": [destination], **more}))


@pytest.mark.parametrize(
    "servers", ["broker:9092", "one:9093,two:9093", " SASL_SSL://broker:9094 ", "broker"]
)
def test_a_topic_has_the_name_that_spark_jobs_give_it_in_lineage(servers: str, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, events={"kafka": {"servers": servers}})
    assert settings.events.kafka is not None
    feed = KafkaSource(settings, settings.destinations[0], "web", 0, runs_replays=True)
    assert feed.dataset() == kafka_id(servers, settings.events.kafka.topic("web"))


def test_a_queue_has_the_name_of_its_folder_in_lineage(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    feed = QueueSource(settings, settings.destinations[0])
    assert feed.dataset() == path_id(str(tmp_path / "events" / "queue.dst=dwh"))


COMMITS = [Commit(1, 0.0, [b"aa", b"bb", b"cc"]), Commit(6, 0.0, [b"dd", b"e" * 100, b"ff"])]


@pytest.mark.parametrize(
    ("max_bytes", "positions", "end"),
    [
        (1000, [1, 2, 3, 6, 7, 8], 10),  # all, and the gap at the end with them
        (5, [1, 2], 3),  # within a commit
        (6, [1, 2, 3], 6),  # between commits: the gap belongs to what was before it
        (8, [1, 2, 3, 6], 7),
        (1, [1], 2),  # one at least
    ],
)
def test_no_more_bytes_are_taken_when_there_is_a_limit(
    max_bytes: int, positions: list[int], end: int
) -> None:
    taken, stopped = limit_bytes(iter(COMMITS), 10, max_bytes)
    assert [place for commit in taken for place in range(commit.first, commit.end)] == positions
    assert stopped == end


def test_an_event_goes_alone_when_it_is_over_the_limit() -> None:
    taken, end = limit_bytes([Commit(7, 0.0, COMMITS[1].bodies[1:])], 9, 50)
    assert [len(body) for commit in taken for body in commit.bodies] == [100]
    assert end == 8

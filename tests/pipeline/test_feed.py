"""What streams are fed with has the names that any other job would give it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.lineage.naming.names import kafka_id, path_id
from headwater.pipeline.stream.sources import QueueFeed, TopicFeed
from headwater.settings import Settings, parse


def settings_of(folder: Path, **more: Any) -> Settings:
    destination = {"id": "dwh", "type": "duckdb", "path": "x.duckdb", "mode": "stream"}
    return parse(json.dumps({"data_dir": str(folder), "destinations": [destination], **more}))


@pytest.mark.parametrize(
    "servers", ["broker:9092", "one:9093,two:9093", " SASL_SSL://broker:9094 ", "broker"]
)
def test_a_topic_has_the_name_that_spark_jobs_give_it_when_lineage_tells_it(
    servers: str, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, events={"kafka": {"servers": servers}})
    assert settings.events.kafka is not None
    feed = TopicFeed(settings, settings.destinations[0], "web", 0, leads=True)
    assert feed.dataset() == kafka_id(servers, settings.events.kafka.topic("web"))


def test_a_queue_has_the_name_of_its_folder_when_lineage_tells_it(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    feed = QueueFeed(settings, settings.destinations[0])
    assert feed.dataset() == path_id(str(tmp_path / "events" / "queue.dst=dwh"))

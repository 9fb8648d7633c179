"""A JVM that does not accept the agent: the application's events and a warning give the reason."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.lineage.jvm import compile as jvm
from headwater.lineage.process.install import LineageUnavailable
from headwater.testing.lineage import collect_lineage
from tests.lineage.conftest import validate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_applications_events_say_why_when_the_agent_does_not_compile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = jvm._sources() | {"Agent": "public class Agent extends NothingThatSparkHas {}"}
    monkeypatch.setattr(jvm, "_sources", lambda: sources)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with (
        pytest.warns(LineageUnavailable, match=r"cannot be compiled.*NothingThatSparkHas"),
        collect_lineage(spark) as events,
    ):
        spark.range(10).write.parquet(str(tmp_path / "out"))
    validate(events.all)
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    for event in events:
        (error,) = event["run"]["facets"]["extractionError"]["errors"]
        assert error["task"] == "agent"
        assert "NothingThatSparkHas" in error["errorMessage"]
    assert not list((tmp_path / "cache").rglob("*.classes")), "an agent that does not compile is not cached"

"""One Spark session for all tests of lineage, with lineage installed and its events collected."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import headwater.lineage
from headwater.gateway.openlineage_validator import Validator
from headwater.testing.lineage import CollectingTransport, Events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALIDATOR = Validator(strict=True)


def validate(events: list[dict[str, object]]) -> None:
    """Check every event against the specification, strictly."""
    for event in events:
        verdict = VALIDATOR.check(event)
        assert verdict.errors == (), f"{event}"


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two threads, without lineage: tests that want it take `events`, or install it."""
    from pyspark.sql import SparkSession

    # workers would take the first `python3` of the PATH, which has none of our packages
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.Builder()
        .master("local[2]")
        .appName("Lineage Tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config(
            "spark.driver.extraJavaOptions",
            f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={folder}",
        )
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    headwater.lineage.uninstall()
    session.stop()


@pytest.fixture(scope="package")
def transport() -> CollectingTransport:
    """Where the events of all tests go."""
    return CollectingTransport()


@pytest.fixture
def events(spark: SparkSession, transport: CollectingTransport) -> Iterator[Events]:
    """The events of this test alone, each checked strictly; lineage stays installed between tests."""
    # an event that is late is partial: right on a machine that is too busy, and no use in a test
    headwater.lineage.install(spark, transport=transport, deadline_millis=120_000)
    assert headwater.lineage.flush(200)
    found = Events(transport)
    yield found
    validate(found.all)
    found.assert_paired()

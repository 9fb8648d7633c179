"""One Spark session for all tests of the pipeline: starting one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.pipeline.spark.session import start
from headwater.settings import PipelineSettings
from tests.pipeline.rig import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two threads. Only the quick compiler of the JVM: tests end before the other one pays."""
    more = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
    }
    log_file = tmp_path_factory.mktemp("spark") / "spark.log"
    session = start(PipelineSettings(master="local[2]", memory="1g"), log_file=log_file, more=more)
    yield session
    session.stop()


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path) -> Iterator[Rig]:
    """A folder of events, a DuckDB destination, and cycles over them."""
    with Rig(spark, tmp_path) as made:
        yield made

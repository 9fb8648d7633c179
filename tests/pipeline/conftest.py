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


NO_CODEGEN = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two threads, with the quick compiler of the JVM alone and without generated code.

    Tests end before the other compiler, or compiled code for small batches, pays off.
    """
    more = NO_CODEGEN | {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
    }
    log_file = tmp_path_factory.mktemp("spark") / "spark.log"
    session = start(PipelineSettings(master="local[2]", memory="1g"), log_file=log_file, more=more)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def codegen(spark: SparkSession) -> Iterator[None]:
    """Expressions are compiled, as in production."""
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    yield
    for name, value in NO_CODEGEN.items():
        spark.conf.set(name, value)


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path) -> Iterator[Rig]:
    """A folder of events, a DuckDB destination, and cycles over them."""
    with Rig(spark, tmp_path) as made:
        yield made

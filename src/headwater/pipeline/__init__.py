"""Events become rows of warehouse tables, on Spark.

Start reading at `batch.cycle.run_cycle`, then `load.Loader.load`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.pipeline.load_report import Report
    from headwater.settings import Settings

__all__ = ["into", "register", "run"]


def register(spark: SparkSession) -> None:
    """Lets the session read logs: `spark.readStream.format("headwater").option("path", …)`.

    The columns and the options are those of `headwater.pipeline.spark.log_source`.
    """
    from headwater.pipeline.spark.log_source import register as register_source

    register_source(spark)


def into(
    destination: str, settings: Settings | str | Path | None = None, *, column: str | None = None
) -> Callable[[DataFrame, int], None]:
    """A function for `df.writeStream.foreachBatch(…)`: each micro-batch becomes rows of tables, once (G5).

    `destination` is an id of the settings, which are given, or read as the command line reads them. `column`
    names the column of JSON texts, such as Kafka's `value`; without it a row is an event, with its columns as
    fields.
    """
    from headwater.pipeline.foreach_batch import into as loader

    return loader(destination, settings, column=column)


def run(spark: SparkSession, settings: Settings | str | Path | None = None) -> Report:
    """Loads all complete event files, as `headwater pipeline run` does, on a Spark that runs already.

    Nothing of the given session changes: the jobs run in one of their own beside it.
    """
    from headwater.pipeline.existing_session import run as run_on_session

    return run_on_session(spark, settings)

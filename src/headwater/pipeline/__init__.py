"""Events become rows of warehouse tables, on Spark.

Start reading at `batch.cycle.run_cycle`, then `load.Loader.load`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Lets the session read logs: `spark.readStream.format("headwater").option("path", …)`.

    The columns and the options are those of `headwater.pipeline.spark.log_source`.
    """
    from headwater.pipeline.spark.log_source import register as register_source

    register_source(spark)

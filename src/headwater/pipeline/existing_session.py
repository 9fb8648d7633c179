"""Batch mode on a session that runs already: in a notebook, in `spark-submit`, on a managed platform."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headwater.pipeline.batch.cycle import run_cycle
from headwater.pipeline.load_report import Report
from headwater.pipeline.spark import compiled_classes
from headwater.pipeline.spark.java_runtime import SparkUnavailable
from headwater.pipeline.spark.session import own_sql_settings
from headwater.settings import Settings, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, settings: Settings | str | Path | None = None) -> Report:
    """Loads all complete event files, as `headwater pipeline run` does, on the user's Spark.

    The jobs run in a session of their own beside the given one: its settings, temporary views and functions
    stay as they are.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise SparkUnavailable(
            "the pipeline needs a Spark context, which a session of Spark Connect does not have.",
            hint="Use a classic session: `SparkSession.builder.master(…)`, not `remote(…)`.",
        )
    found = settings if isinstance(settings, Settings) else load(settings)
    session = spark.newSession()
    with own_sql_settings(session, found.pipeline):
        compiled_classes.prepare(session)
        return run_cycle(found, session)

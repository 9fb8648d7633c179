"""A table that is not there: FAIL, with the reason."""

from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    try:
        spark.sql("SELECT * FROM nothing").collect()
    except AnalysisException:
        pass

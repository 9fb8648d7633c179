"""A table of Delta: CREATE TABLE AS SELECT, INSERT, read."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.range(3).selectExpr("id", "CAST(id AS string) AS name").write.format("delta").save(str(tmp / "in"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE delta_t USING delta AS SELECT * FROM delta.`%s`" % (tmp / "in"))
    spark.sql("INSERT INTO delta_t SELECT * FROM delta.`%s`" % (tmp / "in"))
    spark.table("delta_t").write.parquet(str(tmp / "out"))

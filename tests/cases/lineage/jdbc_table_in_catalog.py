"""A table of the catalog that stands for one in a database."""

from pathlib import Path

from pyspark.sql import SparkSession

URL = "jdbc:derby:memory:jdbc_table;create=true"


def setup(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.select("id").write.jdbc(URL, "people")
    spark.sql(f"CREATE TABLE t USING jdbc OPTIONS (url '{URL}', dbtable 'people')")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("SELECT * FROM t").collect()
    spark.sql("INSERT INTO t SELECT id FROM parquet.`%s`" % (tmp / "people"))

"""A catalog of the second API over a database."""

from pathlib import Path

from pyspark.sql import SparkSession

URL = "jdbc:derby:memory:jdbc_catalog;create=true"


def setup(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.select("id").write.jdbc(URL, "APP.PEOPLE")
    spark.conf.set(
        "spark.sql.catalog.derby", "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
    )
    spark.conf.set("spark.sql.catalog.derby.url", URL)
    spark.conf.set("spark.sql.catalog.derby.driver", "org.apache.derby.iapi.jdbc.AutoloadedDriver")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("INSERT INTO derby.APP.PEOPLE SELECT id FROM parquet.`%s`" % (tmp / "people"))
    spark.sql("SELECT * FROM derby.APP.PEOPLE").collect()

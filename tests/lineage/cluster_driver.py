"""A driver on a cluster: writes something, then serves Spark Connect until its standard input ends.

    python -m tests.lineage.cluster_driver MASTER FOLDER [KEY=VALUE…]

Lineage comes by HEADWATER_LINEAGE alone.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(master: str, folder: str, settings: list[str]) -> None:
    """Say `ready` when clients may come."""
    builder = SparkSession.Builder().master(master).appName("Cluster Driver")
    config = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        **dict(each.split("=", 1) for each in settings),
    }
    for key, value in config.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.range(0, 20, 1, 2).selectExpr("id", "id * 2 AS twice").write.parquet(f"{folder}/own")
    print("ready", flush=True)
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])

"""Runs cases that need another Spark session, with jars or with Hive; writes the lineage of each.

    python -m tests.lineage.case_process FOLDER JARS BOOTSTRAP CASE…

JARS is `hive` for a session with Hive. The cases are as in test_cases.py; `tmp` has the file `bootstrap` with
the address of a Kafka broker in it.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headwater.lineage.process.install import flush, install
from headwater.testing.lineage import CollectingTransport, Events
from tests.lineage.golden import summary

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def hive(folder: Path) -> SparkSession:
    """A session whose catalog is Hive's, with its metastore in the folder."""
    store = f"jdbc:derby:;databaseName={folder}/metastore;create=true"
    builder = SparkSession.Builder().master("local[2]").appName("Hive").enableHiveSupport()
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"{QUICK_JVM} -Dderby.system.home={folder}",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": store,
        "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def session(folder: Path, jars: str) -> SparkSession:
    """One session for all cases: Delta is the session's catalog, Iceberg's is called `ice`."""
    iceberg = "org.apache.iceberg.spark"
    extensions = f"io.delta.sql.DeltaSparkSessionExtension,{iceberg}.extensions.IcebergSparkSessionExtensions"
    builder = SparkSession.Builder().master("local[2]").appName("Jars").config("spark.jars", jars)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.extensions": extensions,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": f"{iceberg}.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(folder / "ice"),
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def main(folder: Path, jars: str, bootstrap: str, cases: list[Path]) -> None:
    """Run each case in its own folder; writes `<case>.lineage`, or `<case>.failed` with a traceback."""
    spark = hive(folder) if jars == "hive" else session(folder, jars)
    transport = CollectingTransport()
    install(spark, transport=transport, deadline_millis=120_000)
    for path in cases:
        tmp = folder / path.stem / "lake"
        tmp.mkdir(parents=True)
        (tmp / "bootstrap").write_text(bootstrap)
        places = {"<tmp>": str(tmp), "<folder>": str(folder), "<broker>": bootstrap}
        try:
            (folder / f"{path.stem}.lineage").write_text(
                json.dumps(_events(spark, path, tmp, transport, places))
            )
        except Exception:
            (folder / f"{path.stem}.failed").write_text(traceback.format_exc())
    spark.stop()


def _events(
    spark: SparkSession, path: Path, tmp: Path, transport: CollectingTransport, places: dict[str, str]
) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location(f"case_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    case = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(case)
    if hasattr(case, "setup"):
        case.setup(spark, tmp)
    assert flush(200)
    events = Events(transport)
    case.run(spark, tmp)
    found = events.all
    return {"summary": summary(found, places), "events": found}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], [Path(each) for each in sys.argv[4:]])

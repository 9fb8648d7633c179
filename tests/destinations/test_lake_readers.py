"""Tables in open formats are read by engines that did not write them: the rows are equal."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headwater.destinations.base import Destination
from headwater.destinations.column_types import Kind
from headwater.destinations.lake.delta import DeltaDestination, DeltaSettings
from headwater.destinations.lake.iceberg import IcebergDestination, IcebergSettings
from headwater.destinations.table import Column, Table, table_of
from headwater.testing.destinations import staged_load
from tests.parts.cache import Missing
from tests.parts.spark_jars import SPARK_VERSION, find_spark_jars
from tests.parts.spark_versions import python_of
from tests.parts.venvs import python_with
from tests.sources import ROOT

KEY = ["k"]
COLUMNS = {
    "k": Kind.STRING,
    "flag": Kind.BOOL,
    "number": Kind.INT64,
    "share": Kind.FLOAT64,
    "moment": Kind.TIMESTAMP,
}
AT = dt.datetime(2026, 11, 16, 10, 0, 0, 123456, tzinfo=dt.UTC)

# Prints the rows as JSON lines, sorted by `k`; times as microseconds since 1970.
DUCKDB = """
import duckdb, glob, sys
from importlib.util import find_spec
scan, path, *extensions = sys.argv[1:]
connection = duckdb.connect()
connection.execute("SET TimeZone = 'UTC'")
for name in extensions:
    found = find_spec(f"duckdb_extension_{name}").submodule_search_locations[0]
    [file] = glob.glob(f"{found}/**/*.duckdb_extension*", recursive=True)
    connection.execute(f"LOAD '{file}'")
query = f"SELECT * REPLACE (epoch_us(moment) AS moment) FROM {scan}('{path}')"
for row in connection.execute(f"SELECT to_json(t) FROM ({query}) AS t ORDER BY k").fetchall():
    print(row[0])
"""
SPARK = """
import sys
from pyspark.sql import SparkSession
format, path, jars, *settings = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.jars", jars)
builder = builder.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC")
for setting in settings:
    builder = builder.config(*setting.split("=", 1))
rows = builder.getOrCreate().read.format(format).load(path)
rows = rows.selectExpr("* EXCEPT (moment)", "unix_micros(moment) AS moment").orderBy("k")
for row in rows.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))").collect():
    print(row[0])
"""

DELTA_IN_SPARK = (
    "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
)


def lake_table(folder: Path, destination: Destination) -> list[dict[str, Any]]:
    """A table with loads that append, add a column and change rows; the rows that it must have."""

    def load(table: Table, *rows: dict[str, Any]) -> None:
        kinds = {**COLUMNS, "late": Kind.STRING}
        present = {name: kinds[name] for name in kinds if any(name in row for row in rows)}
        destination.load(staged_load(folder, table, rows, kinds=present))

    columns = [Column(name, kind) for name, kind in COLUMNS.items()]
    made = destination.patch(table_of("t", columns, KEY))
    first = {"k": "a", "flag": True, "number": 2**60, "share": 0.1, "moment": AT}
    load(made, first, {"k": "b", "number": 2, "moment": AT}, {"k": "ü", "share": -1e-9})
    made = destination.patch(table_of("t", [*columns, Column("late", Kind.STRING)], KEY))
    load(made, {"k": "b", "number": 3, "late": "x"}, {"k": "c", "late": 'quote " \n', "moment": AT})
    since = int(AT.timestamp()) * 1_000_000 + AT.microsecond
    empty = dict.fromkeys([*COLUMNS, "late"])
    return [
        empty | first | {"moment": since},
        empty | {"k": "b", "number": 3, "late": "x", "moment": since},
        empty | {"k": "c", "late": 'quote " \n', "moment": since},
        empty | {"k": "ü", "share": -1e-9},
    ]


def printed(python: Path, code: str, *arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [str(python), "-c", code, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def without(rows: Sequence[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def delta_table(folder: Path) -> tuple[str, list[dict[str, Any]]]:
    options = DeltaSettings(path=str(folder / "lake"), partition_by=("days(moment)",))
    destination = DeltaDestination("delta", options)
    destination.connect()
    try:
        expected = lake_table(folder, destination)
    finally:
        destination.close()
    path = str(folder / "lake" / "t")
    DeltaTable(path).create_checkpoint()
    return path, expected


@pytest.mark.long
def test_duckdb_reads_the_same_rows_when_delta_has_written_them(tmp_path: Path) -> None:
    try:
        python = python_with("duckdb-delta", "duckdb==1.5.5", "duckdb-extension-delta==1.5.5")
    except Missing as missing:
        pytest.skip(str(missing))
    path, expected = delta_table(tmp_path)
    assert without(printed(python, DUCKDB, "delta_scan", path, "delta"), "moment_day") == expected


@pytest.mark.long
def test_sparks_connector_reads_the_same_rows_when_delta_has_written_them(tmp_path: Path) -> None:
    try:
        python, jars = python_of(SPARK_VERSION), find_spark_jars()
    except Missing as missing:
        pytest.skip(str(missing))
    path, expected = delta_table(tmp_path)
    found = printed(python, SPARK, "delta", path, ",".join(map(str, jars)), *DELTA_IN_SPARK)
    assert without(found, "moment_day") == expected
    assert [row["moment_day"] for row in found] == ["2026-11-16"] * 3 + [None]


def iceberg_table(folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """The table's folder or its metadata file, and the rows that it must have."""
    options = IcebergSettings(path=str(folder / "lake"), partition_by=("days(moment)",))
    destination = IcebergDestination("iceberg", options)
    destination.connect()
    try:
        expected = lake_table(folder, destination)
        stored = destination.catalog.load_table(("headwater", "t"))
    finally:
        destination.close()
    return stored.metadata_location.removeprefix("file://"), expected


@pytest.mark.long
def test_duckdb_reads_the_same_rows_when_iceberg_has_written_them(tmp_path: Path) -> None:
    extensions = ("duckdb-extension-iceberg==1.5.5", "duckdb-extension-avro==1.5.5")
    try:
        python = python_with("duckdb-iceberg", "duckdb==1.5.5", *extensions)
    except Missing as missing:
        pytest.skip(str(missing))
    path, expected = iceberg_table(tmp_path)
    assert printed(python, DUCKDB, "iceberg_scan", path, "avro", "iceberg") == expected


@pytest.mark.long
def test_sparks_connector_reads_the_same_rows_when_iceberg_has_written_them(tmp_path: Path) -> None:
    try:
        python, jars = python_of(SPARK_VERSION), find_spark_jars()
    except Missing as missing:
        pytest.skip(str(missing))
    path, expected = iceberg_table(tmp_path)
    assert printed(python, SPARK, "iceberg", path, ",".join(map(str, jars))) == expected

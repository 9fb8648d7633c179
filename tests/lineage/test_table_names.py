"""A table has one name: when its write starts, when it ends, and when it is read, symlinks included."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.lineage.naming.names import path_id
from headwater.testing.lineage import Events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Each makes the table `<database>.<name>` with a column `a`, and the name may be written in any case.
WAYS = {
    "ctas": "create table {t} using parquet as select 1 a",
    "ctas_at_place": "create table {t} using parquet location '{place}' as select 1 a",
    "create_and_insert": "create table {t} (a int) using csv; insert into {t} select 1",
    "insert_overwrite": "create table {t} (a int) using parquet; insert overwrite {t} select 1",
    "partitioned": "create table {t} using parquet partitioned by (a) as select 2 b, 1 a",
    "like": "create table {t} like {source} using parquet; insert into {t} select 1",
    "replace_rows": "create table {t} using json as select 1 a; insert into {t} select 2",
    "rename": "create table {t}_before using parquet as select 1 a; alter table {t}_before rename to {t}",
    "camel": "create table {T} using parquet as select 1 a",
    "set_location": "create table {t} (a int) using parquet; alter table {t} set location '{place}';"
    " insert into {t} select 1",
}


@pytest.fixture(scope="module", params=["default", "inside", "outside"])
def database(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The default database, one in the warehouse, and one with a location of its own."""
    name = f"names_{request.param}" if request.param != "default" else "default"
    if request.param == "inside":
        spark.sql(f"create database {name}")
    elif request.param == "outside":
        spark.sql(f"create database {name} location '{tmp_path_factory.mktemp('else')}/deep.place'")
    yield name
    if name != "default":
        spark.sql(f"drop database {name} cascade")


def _location(spark: SparkSession, table: str) -> str:
    rows = spark.sql(f"describe table extended {table}").collect()
    return next(str(row[1]) for row in rows if row[0] == "Location")


def _identity(dataset: dict[str, Any]) -> tuple[str, str, str]:
    return (
        dataset["namespace"],
        dataset["name"],
        str(dataset["facets"].get("symlinks", {}).get("identifiers")),
    )


def _drop(spark: SparkSession, *tables: str) -> None:
    for table in tables:
        spark.sql(f"drop table if exists {table}")


def test_a_table_has_one_name_when_it_is_created_written_and_read(
    spark: SparkSession, events: Events, database: str, tmp_path: Path
) -> None:
    source = f"{database}.source"
    spark.sql(f"create table {source} (a int) using parquet")
    wrong = []
    for way, text in WAYS.items():
        table = f"{database}.t_{way}"
        shown = table.replace("t_camel", "T_Camel")
        before = len(events.all)
        for each in text.format(t=table, T=shown, source=source, place=tmp_path / way).split("; "):
            spark.sql(each)
        location = path_id(_location(spark, table))
        spark.sql(f"select * from {shown}").collect()
        found = events.all[before:]
        # of the last write, the old place or name is another dataset
        last = found[-4:-2] if way in ("set_location", "rename") else found[:-2]
        seen = {
            _identity(each) for event in last for each in event["outputs"] if "_before" not in each["name"]
        }
        seen |= {_identity(each) for event in found[-2:] for each in event["inputs"]}
        if way == "rename":
            seen = {one for one in seen if "_before" not in one[1]}
        elif way == "like":
            seen = {one for one in seen if "source" not in one[1]}
        symlinks = {one[2] for one in seen}
        if (
            {one[:2] for one in seen} != {tuple(location)}
            or len(symlinks) != 1
            or f"t_{way}" not in str(seen)
        ):
            wrong.append((way, tuple(location), sorted(seen)))
        _drop(spark, table)
    _drop(spark, source)
    assert wrong == []


def test_a_saved_table_has_one_name_when_its_database_is_the_current_one(
    spark: SparkSession, events: Events, database: str
) -> None:
    spark.catalog.setCurrentDatabase(database)
    try:
        spark.range(3).write.saveAsTable("saved")
        location = path_id(_location(spark, "saved"))
        spark.table("saved").collect()
        seen = {_identity(each)[:2] for event in events for each in event["outputs"] + event["inputs"]}
        links = {_identity(each)[2] for event in events for each in event["outputs"] + event["inputs"]}
        _drop(spark, "saved")
    finally:
        spark.catalog.setCurrentDatabase("default")
    assert seen == {tuple(location)}
    assert len(links) == 1
    assert f"{database}.saved" in links.pop()


def test_two_datasets_stay_two_when_a_batch_creates_a_table_and_writes_files(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    spark.range(3).write.parquet(str(source))

    def both(batch: DataFrame, number: int) -> None:
        batch.sparkSession.sql("create table audit (a int) using parquet")
        batch.write.parquet(str(tmp_path / "b"))

    stream = spark.readStream.schema("id long").parquet(str(source)).writeStream.foreachBatch(both)
    stream.option("checkpointLocation", str(tmp_path / "c")).trigger(
        availableNow=True
    ).start().awaitTermination()
    (end,) = events.select("COMPLETE", job_type="MICRO_BATCH")
    names = {each["name"].rpartition("/")[2]: each["facets"] for each in end["outputs"]}
    spark.sql("drop table audit")
    assert names.keys() == {"audit", "b"}
    assert "symlinks" not in names["b"]
    assert "lifecycleStateChange" not in names["b"]
    assert "default.audit" in str(names["audit"]["symlinks"])
    assert names["audit"]["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"

"""Tables and columns of the queries that databases run for JDBC sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headwater.lineage.datasets.jdbc_query import JdbcQuery, read_query
from headwater.testing.lineage import Events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

URL = "jdbc:postgresql://h/shop"
DERBY = "jdbc:derby:memory:columns_of_query;create=true"


def read(query: str, *result: str) -> JdbcQuery:
    found = read_query(query, URL, result)
    assert found is not None
    return found


def text(found: JdbcQuery) -> dict[str, str]:
    """Columns by name, and the rows' as `*`."""
    named = {**found.columns, **({"*": found.rows} if found.rows else {})}
    return {
        name: "; ".join(f"{one.table}.{one.column} {one.use}" for one in origins)
        for name, origins in named.items()
    }


@pytest.mark.parametrize(
    ("query", "result", "expected"),
    [
        ("select a, b + 1 as c from t", ["a", "c"], {"a": "t.a IDENTITY", "c": "t.b TRANSFORMATION"}),
        ("select * from s.t where z = 1", ["p"], {"p": "s.t.p IDENTITY", "*": "s.t.z FILTER"}),
        (
            "select x.a, max(y.v) as m from t x join u y on x.id = y.id group by x.a",
            ["a", "m"],
            {
                "a": "t.a IDENTITY",
                "m": "u.v AGGREGATION",
                "*": "t.a GROUP_BY; t.id JOIN; u.id JOIN",
            },
        ),
        (
            "with c as (select id, sum(v) as s from t group by id) "
            "select id, s from c union all select k, m from u",
            ["id", "s"],
            {
                "id": "t.id IDENTITY; u.k IDENTITY",
                "s": "t.v AGGREGATION; u.m IDENTITY",
                "*": "t.id GROUP_BY",
            },
        ),
        (
            "select (select max(v) from u) as m, a from t where b in (select k from w)",
            ["m", "a"],
            {"m": "u.v AGGREGATION", "a": "t.a IDENTITY", "*": "t.b FILTER; w.k FILTER"},
        ),
        ("select count(*) as n from t", ["n"], {"n": ""}),
        ("select upper(a) as u from t order by u", ["u"], {"u": "t.a TRANSFORMATION", "*": "t.a SORT"}),
    ],
)
def test_columns_have_their_origins_when_a_database_runs_the_query(
    query: str, result: list[str], expected: dict[str, str]
) -> None:
    assert text(read(query, *result)) == expected


def test_a_column_is_unknown_when_several_tables_may_have_it() -> None:
    found = read("select X, AA.z from AA join BB on AA.id = BB.id", "X", "z")
    assert found.tables == ["AA", "BB"]
    assert set(found.columns) == {"z"}
    assert found.unknown == ["X"]
    assert read("select * from a, b", "x").columns == {}


@pytest.mark.parametrize("query", ["select from from", "", "select " + "(" * 5000, "x" * 200_000])
def test_nothing_is_read_when_the_query_cannot_be_parsed(query: str) -> None:
    found = read_query(query, URL)
    assert found is None or found.tables == []


def test_only_read_columns_have_edges_when_a_frame_comes_from_a_query(
    spark: SparkSession, events: Events, tmp_path: object
) -> None:
    spark.sql("select 1 id, 'x' name").write.jdbc(DERBY, "aa", mode="overwrite")
    spark.sql("select 1 id, 2 age, 3 size").write.jdbc(DERBY, "bb", mode="overwrite")
    query = 'select a."name", b."age" + 1 as older, "size" from aa a join bb b on a."id" = b."id"'
    frame = spark.read.format("jdbc").option("url", DERBY).option("query", query).load()
    frame.write.parquet(f"{tmp_path}/out")
    event = events.only("COMPLETE", output=f"{tmp_path}/out")
    assert [each["name"] for each in event["inputs"]] == ["columns_of_query.aa", "columns_of_query.bb"]
    schemas = [(each["facets"].get("schema") or {}).get("fields") for each in event["inputs"]]
    assert [[field["name"] for field in fields or ()] for fields in schemas] == [["name"], []]
    facet = event["outputs"][0]["facets"]["columnLineage"]
    found = {
        name: [(each["name"], each["field"]) for each in one["inputFields"]]
        for name, one in facet["fields"].items()
    }
    assert found == {
        "name": [("columns_of_query.aa", "name")],
        "OLDER": [("columns_of_query.bb", "age")],
        "size": [],
    }
    assert [(each["name"], each["field"]) for each in facet["dataset"]] == [
        ("columns_of_query.aa", "id"),
        ("columns_of_query.bb", "id"),
    ]
    assert any("size may belong to several" in each["reason"] for each in facet["unknown"])

"""Golden cases of column lineage in tests/cases/columns; HEADWATER_UPDATE_CASES=1 rewrites their edges."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from headwater.lineage.columns.written_columns import column_lineage
from tests.lineage.column_cases import FOLDER, Case, as_text, read_cases, write_cases
from tests.lineage.plans import Walker, table_of
from tests.lineage.rows_catalog import install_catalogs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = [case for path in sorted(FOLDER.glob("*.txt")) for case in read_cases(path)]
UPDATE = bool(os.environ.get("HEADWATER_UPDATE_CASES"))


@pytest.fixture(scope="module")
def walker(spark: SparkSession) -> Walker:
    return Walker(spark)


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Iterator[Any]:
    """Creates the tables of a file, once; drops those of the file before."""
    install_catalogs(spark)
    made: dict[str, str] = {}

    def provide(wanted: dict[str, str]) -> None:
        if wanted == made:
            return
        for name in list(made):
            spark.sql(f"drop table if exists {name}")
        made.clear()
        for name, columns in wanted.items():
            spark.sql(f"drop table if exists {name}")
            columns, _, more = columns.partition("|")
            provider = "" if "." in name else "using parquet"
            spark.sql(f"create table {name} ({columns}) {provider} {more}")
        made.update(wanted)

    yield provide
    provide({})


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.file}: {case.name}")
def test_edges_are_as_expected_when_a_query_is_analyzed(case: Case, walker: Walker, tables: Any) -> None:
    tables(case.tables)
    if case.is_python:
        names: dict[str, Any] = {"spark": walker.spark, "walker": walker}
        exec(compile(textwrap.dedent(case.query.removeprefix("python\n")), case.name, "exec"), names)
        plan = walker.frame(names["df"])
    else:
        plan = walker.sql(case.query)
    found = as_text(column_lineage(plan, table_of))
    if UPDATE:
        write_cases(FOLDER / f"{case.file}.txt", {case.name: found})
        return
    assert found == case.expected


def test_there_are_enough_cases_and_each_has_a_name_of_its_own() -> None:
    assert len(CASES) >= 150
    assert len({(case.file, case.name) for case in CASES}) == len(CASES)

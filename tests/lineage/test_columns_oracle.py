"""Every input that changes an output must be among its edges: random queries, without expectations.

50 queries in the short tier, 100 in the long one, 2,200 with `--full` (`make oracle-columns`), of which the
engines refuse some. The figures are printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings

from headwater.lineage.columns.written_columns import ColumnLineage, column_lineage
from tests.lineage.oracle import Figures, Oracle
from tests.lineage.plans import Walker, table_of
from tests.lineage.queries import TABLES, queries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT, LONG, FULL = 50, 100, 2200


class Bench:
    """Spark analyzes, DuckDB runs; the figures of all queries."""

    def __init__(self, spark: SparkSession) -> None:
        self.walker = Walker(spark)
        self.oracle = Oracle()
        self.figures = Figures()
        self.refused: list[str] = []


@pytest.fixture(scope="module")
def bench(spark: SparkSession) -> Iterator[Bench]:
    for table, columns in TABLES.items():
        spark.sql(f"drop table if exists {table}")
        kinds = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        spark.sql(f"create table {table} ({kinds}) using parquet")
    made = Bench(spark)
    yield made
    for table in TABLES:
        spark.sql(f"drop table {table}")
    print(f"\n{made.figures}; {len(made.refused)} queries refused by one of the engines")


def inputs_of(lineage: ColumnLineage, place: int) -> dict[tuple[str, str], str]:
    """The inputs of an output, each as direct or indirect; `place` is its position."""
    inputs = list(lineage.fields.values())[place]
    found = {(one.dataset.name, one.field): "indirect" for one in lineage.dataset}
    for one in inputs:
        if any(kind.direct for kind in one.transformations):
            found[one.dataset.name, one.field] = "direct"
        else:
            found.setdefault((one.dataset.name, one.field), "indirect")
    return found


def check_many(bench: Bench, count: int) -> None:
    """Check so many random queries, the same in every run."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    limits = settings(
        max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=checks
    )
    limits(given(query=queries())(lambda query: check(bench, query)))()
    assert bench.figures.queries >= count * 0.8, bench.refused[:5]
    assert bench.figures.influences > bench.figures.queries


def check(bench: Bench, query: str) -> None:
    try:
        seen = bench.oracle.influences(query)
        plan = bench.walker.sql(query)
    except (duckdb.Error, _analysis_error()) as error:
        bench.refused.append(f"{type(error).__name__}: {str(error)[:200]}: {query}")
        return
    lineage = column_lineage(plan, table_of)
    assert (lineage.gaps, lineage.cut) == ([], []), query
    assert len(lineage.fields) == seen.outputs, query
    figures = bench.figures
    figures.queries += 1
    figures.influences += len(seen.pairs)
    for place in range(seen.outputs):
        edges = inputs_of(lineage, place)
        changed = {source for output, source in seen.pairs if output == place}
        assert changed <= set(edges), f"{sorted(changed - set(edges))} of output {place} of {query}"
        for source, kind in edges.items():
            figures.edges[kind] += 1
            figures.seen[kind] += source in changed


def _analysis_error() -> type[Exception]:
    from pyspark.errors import AnalysisException

    found: type[Exception] = AnalysisException
    return found


def test_no_edge_is_missing_when_inputs_are_changed(bench: Bench) -> None:
    check_many(bench, SHORT)


@pytest.mark.long
@pytest.mark.timeout(7200)  # with --full
def test_no_edge_is_missing_when_inputs_of_many_queries_are_changed(bench: Bench, full: bool) -> None:
    check_many(bench, FULL if full else LONG)

"""Tells lineage from which queue rows come, and for which table they are staged.

Spark only sees rows that it is handed, a folder, or rows that are handed over. Local properties of the thread
say what they are, and `headwater.lineage`, where it is installed, tells it; otherwise nobody looks at them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from headwater.destinations.table import ROW
from headwater.settings import DestinationSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["dataset_of", "doing", "reading", "staging_for"]

INPUT = "headwater.lineage.input"
OUTPUT = "headwater.lineage.output"
DESCRIPTION = "spark.job.description"


@contextmanager
def staging_for(spark: SparkSession, settings: DestinationSettings, table: str) -> Iterator[None]:
    """What this thread lets Spark run in the block makes rows of the table."""
    namespace, name = dataset_of(settings, table)
    told = {"namespace": namespace, "name": name, "without": [ROW]}
    with _telling(spark, OUTPUT, told), doing(spark, f"load {table} into {settings.id}"):
        yield


@contextmanager
def reading(spark: SparkSession, dataset: tuple[str, str], column: str) -> Iterator[None]:
    """Rows with this column that this thread hands to Spark in the block are those of a dataset."""
    namespace, name = dataset
    with _telling(spark, INPUT, {"namespace": namespace, "name": name, "columns": [column]}):
        yield


@contextmanager
def _telling(spark: SparkSession, key: str, told: dict[str, Any]) -> Iterator[None]:
    context = spark.sparkContext
    context.setLocalProperty(key, msgspec.json.encode(told).decode())
    try:
        yield
    finally:
        context.setLocalProperty(key, None)  # type: ignore[arg-type]  # None takes it away


@contextmanager
def doing(spark: SparkSession, what: str) -> Iterator[None]:
    """Spark's own pages, and the names of jobs in the graph, tell what this thread does in the block."""
    context = spark.sparkContext
    before = context.getLocalProperty(DESCRIPTION)
    context.setLocalProperty(DESCRIPTION, what)
    try:
        yield
    finally:
        context.setLocalProperty(DESCRIPTION, before)  # type: ignore[arg-type]  # None takes it away


def dataset_of(settings: DestinationSettings, table: str) -> tuple[str, str]:
    """Namespace and name of a table, as OpenLineage has them; without what is secret in a URL."""
    options = settings.options
    if settings.type == "duckdb":
        return f"duckdb://{Path(str(options.get('path', ''))).resolve()}", f"main.{table}"
    if settings.type == "postgres":
        url = urlsplit(str(options.get("url", "")))
        database = url.path.strip("/") or "postgres"
        host = f"{url.hostname or 'localhost'}:{url.port or 5432}"
        return f"postgres://{host}", f"{database}.{options.get('schema', 'public')}.{table}"
    if settings.type == "clickhouse":
        url = urlsplit(str(options.get("url", "")))
        host = f"{url.hostname or 'localhost'}:{url.port or 8123}"
        return f"clickhouse://{host}", f"{options.get('database', 'default')}.{table}"
    if settings.type == "redshift":
        url = urlsplit(str(options.get("url", "")))
        schema = f"{url.path.strip('/')}.{options.get('schema', 'public')}"
        return f"redshift://{url.hostname or 'localhost'}:{url.port or 5439}", f"{schema}.{table}"
    if settings.type == "snowflake":
        schema = f"{options.get('database', '')}.{options.get('schema', 'PUBLIC')}"
        return f"snowflake://{options.get('account', '')}", f"{schema}.{table}".upper()
    if settings.type == "bigquery":
        return "bigquery", f"{options.get('project', '')}.{options.get('dataset', '')}.{table}"
    return f"{settings.type}://{settings.id}", table

"""Lines sorted by their table, where a template gives more than one.

One pass reads only the fields that the template looks at and writes the lines to staging, in a few buckets;
each table is then read from its bucket alone, however many tables there are. A small file is not written
again: each Spark job costs more than reading such a file, so one job routes it and scans all of its tables.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.pipeline import jvm
from headwater.pipeline.convert import literal
from headwater.pipeline.header import MAX_DEPTH, MAX_NODES, Scanned
from headwater.pipeline.reading import Reading
from headwater.pipeline.route import Template
from headwater.pipeline.source import LINE, REASON
from headwater.warehouse.tables import ROW

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

__all__ = [
    "SMALL_BYTES",
    "TABLE",
    "Split",
    "name_tables",
    "scan_tables",
    "split_lines",
    "table_sql",
]

BUCKETS = 32
SMALL_BYTES = 16 * 1024 * 1024
"""Up to here a file is routed and scanned in one job."""
MAX_TABLES = 1_000
"""Tables that one file may have; a template that gives more is a mistake, and its events are rejects."""

TABLE = "_headwater_table"
_BUCKET = "_headwater_bucket"
_VERDICT = "_headwater_verdict"


@dataclass
class Split:
    """Lines by table. `rejected` have none because of an error, `skipped` want none."""

    lines: DataFrame
    tables: dict[str, int]
    skipped: int
    rejected: int
    scanned: dict[str, Scanned] = field(default_factory=dict)
    """What is known of the tables' fields already."""

    def table(self, name: str) -> DataFrame:
        """The lines of a table with their numbers."""
        own = f"{TABLE} = {literal(name)}"
        if _BUCKET in self.lines.columns:
            own += f" AND {_BUCKET} = pmod(hash({literal(name)}), {BUCKETS})"
        return self.lines.where(own).select(LINE, ROW)

    def rejects(self) -> DataFrame:
        """The lines that have no table because of an error, with the reason."""
        known = ", ".join(literal(name) for name in self.tables) or "''"
        too_many = literal(f"the template gives more than {MAX_TABLES} tables in one file")
        surplus = f"{TABLE} != '' AND {TABLE} NOT IN ({known})"
        return self.lines.where(f"{REASON} IS NOT NULL OR ({surplus})").selectExpr(
            LINE, ROW, f"coalesce({REASON}, {too_many}) AS {REASON}"
        )


def table_sql(name: str, max_bytes: int) -> str:
    """SQL of `names.sanitise`, for names that are only known event by event."""
    plain = f"regexp_replace(lower({name}), '[^a-z0-9_]', '_')"
    digest = f"substring(md5({name}), 1, 8)"
    cut = f"concat(left({plain}, {max_bytes - 9}), '_', {digest})"
    return f"if({name} RLIKE '^[\\\\x00-\\\\x7f]*$' AND length({plain}) <= {max_bytes}, {plain}, {cut})"


def name_tables(lines: DataFrame, template: Template, *, max_identifier_length: int) -> DataFrame:
    """The lines, but for blank ones, with the name of their table (empty: none) and why it has none."""
    from pyspark.sql import functions

    reading = Reading(LINE)
    for path in template.paths:
        reading.want(path, "string")
    reading.plan()
    name, failure = template.sql(lambda path: reading.path(path).sql)
    named = reading.apply(lines).selectExpr(LINE, ROW, f"{name} AS {TABLE}", f"{failure} AS {REASON}")
    # Most lines have a table and are not judged here; that a line is malformed is then seen by the scan.
    judge = jvm.verdict(lines.sparkSession, named[LINE])
    judged = named.withColumn(
        _VERDICT, functions.when((named[TABLE] == "") | named[REASON].isNotNull(), judge)
    )
    table = table_sql(TABLE, max_identifier_length)
    return judged.where(f"coalesce({_VERDICT}, 'x') != ''").selectExpr(
        LINE,
        ROW,
        f"coalesce({_VERDICT}, {REASON}) AS {REASON}",
        f"CASE WHEN {_VERDICT} IS NOT NULL OR {REASON} IS NOT NULL OR {TABLE} = '' THEN '' "
        f"ELSE {table} END AS {TABLE}",
    )


def scan_tables(
    lines: DataFrame, template: Template, *, max_identifier_length: int, browser_key: str = ""
) -> Split:
    """Name the tables of the lines of a small file, and tell the fields of each, in one job."""
    placed = name_tables(lines, template, max_identifier_length=max_identifier_length)
    answers = jvm.scan(
        placed, LINE, TABLE, REASON, max_depth=MAX_DEPTH, max_nodes=MAX_NODES, browser_key=browser_key
    )
    scanned = Scanned.by_table(answers)
    nowhere = scanned.pop("", Scanned())
    found = {name: each.events + each.bad for name, each in scanned.items() if each.events + each.bad}
    order = sorted(found, key=lambda name: (-found[name], name))
    surplus = sum(found[name] for name in order[MAX_TABLES:])
    tables = {name: found[name] for name in order[:MAX_TABLES]}
    return Split(placed, tables, nowhere.skipped, nowhere.bad + surplus, scanned)


def split_lines(lines: DataFrame, template: Template, folder: Path, *, max_identifier_length: int) -> Split:
    """Write the lines by their tables and count them."""
    from pyspark.sql import functions
    from pyspark.sql.types import IntegerType

    placed = name_tables(lines, template, max_identifier_length=max_identifier_length)
    (
        placed.withColumn(_BUCKET, functions.expr(f"pmod(hash({TABLE}), {BUCKETS})"))
        .write.partitionBy(_BUCKET)
        .option("parquet.enable.dictionary", "false")
        .option(f"parquet.enable.dictionary#{TABLE}", "true")
        .option("compression", "lz4_raw")
        .parquet(str(folder))
    )
    schema = placed.schema.add(_BUCKET, IntegerType())
    return _counted(lines.sparkSession.read.schema(schema).parquet(str(folder)))


def _counted(stored: DataFrame) -> Split:
    counts = (
        stored.groupBy(TABLE)
        .agg({"*": "count", REASON: "count"})
        .withColumnsRenamed({"count(1)": "lines", f"count({REASON})": "reasons"})
    )
    ordered = counts.orderBy(counts["lines"].desc(), TABLE)
    tables: dict[str, int] = {}
    skipped = rejected = 0
    for row in ordered.toLocalIterator():
        if not row[TABLE]:
            rejected += row["reasons"]
            skipped += row["lines"] - row["reasons"]
        elif len(tables) < MAX_TABLES:
            tables[row[TABLE]] = row["lines"]
        else:
            rejected += row["lines"]
    return Split(stored, tables, skipped, rejected)

"""Lines sorted by their table, where a template gives more than one.

One pass reads only the fields that the template looks at and writes the lines to staging, in a few buckets;
each table is then read from its bucket alone, however many tables there are. Small files are not written
again: each Spark job costs more than reading such a file, so one job routes them and scans all their tables.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.destinations.table import ROW
from headwater.pipeline.spark import compiled_classes as jvm
from headwater.pipeline.spark.storage import ObjectFolder, fetch, store
from headwater.pipeline.steps.batch_schema import MAX_DEPTH, MAX_NODES, Scanned
from headwater.pipeline.steps.convert import literal
from headwater.pipeline.steps.parse import Reading
from headwater.pipeline.steps.read_lines import FILE, LINE, REASON, lines_of, scan_lines
from headwater.pipeline.steps.stage import Shared
from headwater.pipeline.steps.template import Template

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "SMALL_BYTES",
    "TABLE",
    "Split",
    "Splits",
    "name_tables",
    "scan_files",
    "scan_table",
    "scan_tables",
    "split_lines",
    "table_sql",
]

BUCKETS = 32
SMALL_BYTES = 16 * 1024 * 1024
"""Up to here files are routed and scanned in one job."""
MAX_TABLES = 1_000
"""Tables that one file may have; a template that gives more is a mistake, and its events are rejects."""

TABLE = "_headwater_table"
_BUCKET = "_headwater_bucket"
_FILE = "_headwater_file"
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
    bucket: Callable[[int], DataFrame] | None = None
    """Reads those of the lines that are in a bucket, where they were written by buckets."""

    def table(self, name: str) -> DataFrame:
        """The lines of a table with their numbers."""
        near = self.bucket(zlib.crc32(name.encode()) % BUCKETS) if self.bucket else self.lines
        return near.where(f"{TABLE} = {literal(name)}").select(LINE, ROW)

    def rejects(self) -> DataFrame:
        """The lines that have no table because of an error, with the reason."""
        return _reasoned(self.lines.where(self.is_rejected))

    @property
    def is_rejected(self) -> str:
        """SQL condition: the line has no table because of an error."""
        known = ", ".join(literal(name) for name in self.tables) or "''"
        return f"{REASON} IS NOT NULL OR ({TABLE} != '' AND {TABLE} NOT IN ({known}))"


@dataclass
class Splits:
    """Files that were read together: what is loaded of them together, and what each of them has."""

    whole: Split
    files: list[Split]

    @property
    def tables(self) -> list[str]:
        """All tables, in the order of the files."""
        return list(dict.fromkeys(table for file in self.files for table in file.tables))

    def rejects(self, files: Sequence[int]) -> DataFrame:
        """The lines of these files that have no table because of an error, with the reason."""
        if len(self.files) == 1:
            return self.whole.rejects()
        own = [f"({FILE} = {number} AND ({self.files[number].is_rejected}))" for number in files]
        return _reasoned(self.whole.lines.where(" OR ".join(own) or "false"))


def _reasoned(lines: DataFrame) -> DataFrame:
    too_many = literal(f"the template gives more than {MAX_TABLES} tables in one file")
    return lines.selectExpr(LINE, ROW, f"coalesce({REASON}, {too_many}) AS {REASON}")


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


def scan_table(lines: DataFrame, table: str, browser_key: str = "") -> Split:
    """All lines go to one table: tell its fields."""
    scanned = scan_lines(lines, browser_key)
    named = lines.selectExpr("*", f"{literal(table)} AS {TABLE}", f"cast(NULL AS string) AS {REASON}")
    return _split(named, {table: scanned})


def scan_tables(
    lines: DataFrame, template: Template, *, max_identifier_length: int, browser_key: str = ""
) -> Split:
    """Name the tables of some lines, and tell the fields of each, in one job."""
    placed = name_tables(lines, template, max_identifier_length=max_identifier_length)
    return _split(placed, Scanned.by_table(_scan(placed, "0L", browser_key)))


def scan_files(
    lines: DataFrame, template: Template, files: int, *, max_identifier_length: int, browser_key: str = ""
) -> Splits:
    """The same for the lines of several small files, also in one job."""
    placed = name_tables(lines, template, max_identifier_length=max_identifier_length)
    answers = _scan(placed, FILE, browser_key)
    found = Scanned.by_file(answers)
    return Splits(
        _split(placed, Scanned.by_table(answers)),
        [_split(lines_of(placed, number), found.get(number, {})) for number in range(files)],
    )


def _scan(placed: DataFrame, file: str, browser_key: str) -> list[str]:
    return jvm.scan(
        placed.selectExpr("*", f"{file} AS {_FILE}"),
        LINE,
        TABLE,
        REASON,
        _FILE,
        max_depth=MAX_DEPTH,
        max_nodes=MAX_NODES,
        browser_key=browser_key,
    )


def _split(placed: DataFrame, scanned: dict[str, Scanned]) -> Split:
    nowhere = scanned.pop("", Scanned())
    found = {name: each.events + each.bad for name, each in scanned.items() if each.events + each.bad}
    order = sorted(found, key=lambda name: (-found[name], name))
    surplus = sum(found[name] for name in order[MAX_TABLES:])
    tables = {name: found[name] for name in order[:MAX_TABLES]}
    return Split(placed, tables, nowhere.skipped, nowhere.bad + surplus, scanned)


def split_lines(lines: DataFrame, template: Template, folder: Shared, *, max_identifier_length: int) -> Split:
    """Write the lines by their tables and count them."""
    from pyspark.sql import functions
    from pyspark.sql.types import IntegerType

    spark = lines.sparkSession
    placed = name_tables(lines, template, max_identifier_length=max_identifier_length)
    bucketed = placed.withColumn(_BUCKET, functions.expr(f"cast(crc32({TABLE}) % {BUCKETS} AS int)"))
    if isinstance(folder, ObjectFolder):
        files = store(bucketed, folder, by=_BUCKET)
        schema = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in placed.schema.fields)
        split = _counted(fetch(spark, folder, files, schema))
        split.bucket = lambda key: fetch(spark, folder, [f for f in files if f.key == key], schema)
        return split
    (
        bucketed.write.partitionBy(_BUCKET)
        .option("parquet.enable.dictionary", "false")
        .option(f"parquet.enable.dictionary#{TABLE}", "true")
        .option("compression", "lz4_raw")
        .parquet(str(folder))
    )
    stored = spark.read.schema(placed.schema.add(_BUCKET, IntegerType())).parquet(str(folder))
    split = _counted(stored)
    split.bucket = lambda key: stored.where(f"{_BUCKET} = {key}")
    return split


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

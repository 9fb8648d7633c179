"""The route step: the table of each line, by the template of the destination.

Large files are routed in one pass that reads only the fields of the template and writes the lines to staging,
in a few buckets; each table is then read from its bucket alone. Small files are not written again: a Spark
job costs more than reading such a file, so one job routes them and finds the fields of all their tables.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.destinations.column_types import Kind
from headwater.destinations.table import ROW
from headwater.pipeline.spark import compiled_classes
from headwater.pipeline.spark.storage import ExecutorFolder, ObjectFolder, read_objects, write_objects
from headwater.pipeline.steps.batch_schema import table_name, table_name_sql
from headwater.pipeline.steps.convert import literal
from headwater.pipeline.steps.field_tree import BatchFields
from headwater.pipeline.steps.parse_events import EventParser, find_fields
from headwater.pipeline.steps.read_lines import FILE, LINE, REASON, lines_of_file
from headwater.pipeline.steps.table_rules import TableRules
from headwater.pipeline.steps.template import Template

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKETS = 32
SMALL_BYTES = 16 * 1024 * 1024
"""Files up to this size are routed and scanned for their fields in one job."""

TABLE = "_headwater_table"
_BUCKET = "_headwater_bucket"
_FILE = "_headwater_file"
_CHECK = "_headwater_check"


@dataclass
class RoutedLines:
    """Lines by table. `rejected` have none because of an error, `skipped` have an empty name."""

    lines: DataFrame
    tables: Mapping[str, int | None]
    """The tables, each with the number of its lines, or None if they are not counted yet."""
    skipped: int
    rejected: int
    fields: dict[str, BatchFields] = field(default_factory=dict)
    """The fields of the tables, where routing found them in the same pass."""
    bucket: Callable[[int], DataFrame] | None = None
    """Reads the lines of one bucket, where they were written by buckets."""
    too_many: str = ""
    """The reason of lines whose table is one too many."""

    def count(self, table: str) -> int:
        """The number of lines of a table that are not blank."""
        known = self.tables[table]
        if known is None:
            fields = find_fields(self.lines_for(table))
            return fields.events + fields.malformed
        return known

    def lines_for(self, table: str) -> DataFrame:
        """The lines of a table with their numbers."""
        bucket_lines = self.bucket(zlib.crc32(table.encode()) % BUCKETS) if self.bucket else self.lines
        return bucket_lines.where(f"{TABLE} = {literal(table)}").select(LINE, ROW)

    def rejects(self) -> DataFrame:
        """The lines that have no table because of an error, with the reason."""
        return _with_reason(self.lines.where(self.is_rejected), self.too_many)

    @property
    def is_rejected(self) -> str:
        """SQL condition: the line has no table because of an error."""
        known = ", ".join(literal(name) for name in self.tables) or "''"
        over_limit = f"{TABLE} != '' AND {TABLE} NOT IN ({known}) AND {LINE} RLIKE '[^ \\t\\r]'"
        return f"{REASON} IS NOT NULL OR ({over_limit})"


@dataclass
class RoutedFiles:
    """Files that were read together: their lines in all, and those of each."""

    all_files: RoutedLines
    files: list[RoutedLines]

    @property
    def tables(self) -> list[str]:
        """All tables, in the order of the files."""
        return list(dict.fromkeys(table for file in self.files for table in file.tables))

    def rejects(self, files: Sequence[int]) -> DataFrame:
        """The lines of these files that have no table because of an error, with the reason."""
        if len(self.files) == 1:
            return self.all_files.rejects()
        own = [f"({FILE} = {number} AND ({self.files[number].is_rejected}))" for number in files]
        return _with_reason(self.all_files.lines.where(" OR ".join(own) or "false"), self.all_files.too_many)


def _with_reason(lines: DataFrame, too_many: str) -> DataFrame:
    return lines.selectExpr(LINE, ROW, f"coalesce({REASON}, {literal(too_many)}) AS {REASON}")


def name_tables(
    lines: DataFrame, template: Template, *, max_identifier_length: int, rules: TableRules | None = None
) -> DataFrame:
    """The lines that are not blank, with the name of their table (empty: none) and the reason for none."""
    from pyspark.sql import functions

    parser = EventParser()
    fields = {path: parser.value(path, Kind.STRING, is_whole=True) for path in template.paths}
    name, failure = template.sql(fields.__getitem__)
    named = parser.apply(lines).selectExpr(LINE, ROW, f"{name} AS {TABLE}", f"{failure} AS {REASON}")
    sanitised = table_name_sql(TABLE, max_identifier_length)
    named = named.selectExpr(
        LINE, ROW, REASON, f"if({REASON} IS NOT NULL OR {TABLE} = '', '', {sanitised}) AS {TABLE}"
    )
    table, reason = (rules or TableRules()).sql(TABLE, REASON)
    named = named.selectExpr(LINE, ROW, f"{table} AS {TABLE}", f"{reason} AS {REASON}")
    # Most lines have a table and are not checked here; `find_fields` counts the malformed ones among them.
    check = compiled_classes.event_check(named, LINE)
    checked = named.withColumn(
        _CHECK, functions.when((named[TABLE] == "") | named[REASON].isNotNull(), check)
    )
    return checked.where(f"coalesce({_CHECK}, 'x') != ''").selectExpr(
        LINE,
        ROW,
        f"coalesce({_CHECK}, {REASON}) AS {REASON}",
        f"if({_CHECK} IS NULL, {TABLE}, '') AS {TABLE}",
    )


class Router:
    """Routes lines by a template; `browser_keys` are the api_key values of browser events, one per line."""

    def __init__(
        self,
        template: Template,
        *,
        max_identifier_length: int,
        browser_keys: str = "",
        rules: TableRules | None = None,
    ) -> None:
        self._template = template
        self._rules = rules or TableRules()
        self._max_length = max_identifier_length
        self._browser_keys = browser_keys
        self.constant = table_name(template.constant, max_identifier_length) if template.constant else ""
        """The one table of all lines, where the template always gives the same; else empty."""
        self._rules.check(self.constant)

    def route(self, lines: DataFrame) -> RoutedLines:
        """Names the table of each line and finds the fields of each table, in one job."""
        if self.constant:
            fields = find_fields(lines, self._browser_keys)
            return _routed(self._of_constant(lines), {self.constant: fields}, self._rules)
        named = self._named(lines)
        return _routed(named, BatchFields.by_table(self._scan(named, "0L")), self._rules)

    def route_files(self, lines: DataFrame, files: int) -> RoutedFiles:
        """Routes the lines of several small files, also in one job."""
        named = self._named(lines)
        answers = self._scan(named, FILE)
        found = BatchFields.by_file(answers)
        return RoutedFiles(
            _routed(named, BatchFields.by_table(answers), self._rules),
            [
                _routed(lines_of_file(named, number), found.get(number, {}), self._rules)
                for number in range(files)
            ],
        )

    def route_large(self, lines: DataFrame, folder: ExecutorFolder) -> RoutedLines:
        """Writes the lines of a large file to `folder` by their tables; the fields are found later."""
        if self.constant:
            return RoutedLines(self._of_constant(lines), {self.constant: None}, 0, 0)
        if self._template.constant is not None:
            return self.route(lines)
        spark, named = lines.sparkSession, self._named(lines)
        bucketed = named.selectExpr("*", f"cast(crc32({TABLE}) % {BUCKETS} AS int) AS {_BUCKET}")
        schema = f"{LINE} string, {ROW} bigint, {REASON} string, {TABLE} string"
        is_checked = compiled_classes.have_checksums(lines, LINE)

        def as_read(stored: DataFrame) -> DataFrame:
            return compiled_classes.with_checksums(stored, LINE) if is_checked else stored

        if isinstance(folder, ObjectFolder):
            files = write_objects(bucketed, folder, by=_BUCKET)
            routed = _counted(as_read(read_objects(spark, folder, files, schema)), self._rules)
            routed.bucket = lambda key: as_read(
                read_objects(spark, folder, [file for file in files if file.key == key], schema)
            )
            return routed
        (
            bucketed.write.partitionBy(_BUCKET)
            .option("parquet.enable.dictionary", "false")
            .option(f"parquet.enable.dictionary#{TABLE}", "true")
            .option("compression", "lz4_raw")
            .parquet(str(folder))
        )
        stored = as_read(spark.read.schema(f"{schema}, {_BUCKET} int").parquet(str(folder)))
        routed = _counted(stored, self._rules)
        routed.bucket = lambda key: stored.where(f"{_BUCKET} = {key}")
        return routed

    def _of_constant(self, lines: DataFrame) -> DataFrame:
        return lines.selectExpr(
            "*", f"{literal(self.constant)} AS {TABLE}", f"cast(NULL AS string) AS {REASON}"
        )

    def _named(self, lines: DataFrame) -> DataFrame:
        return name_tables(lines, self._template, max_identifier_length=self._max_length, rules=self._rules)

    def _scan(self, named: DataFrame, file: str) -> list[str]:
        numbered = named.selectExpr("*", f"{file} AS {_FILE}")
        return compiled_classes.scan(numbered, LINE, TABLE, REASON, _FILE, browser_keys=self._browser_keys)


def _routed(named: DataFrame, fields: dict[str, BatchFields], rules: TableRules) -> RoutedLines:
    nowhere = fields.pop("", BatchFields())
    lines = {name: each.events + each.malformed for name, each in fields.items()}
    order = sorted((name for name in lines if lines[name]), key=lambda name: (-lines[name], name))
    over_limit = sum(lines[name] for name in order[rules.max_tables :])
    tables = {name: lines[name] for name in order[: rules.max_tables]}
    rejected = nowhere.malformed + over_limit
    return RoutedLines(named, tables, nowhere.skipped, rejected, fields, too_many=rules.too_many)


def _counted(stored: DataFrame, rules: TableRules) -> RoutedLines:
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
        elif len(tables) < rules.max_tables:
            tables[row[TABLE]] = row["lines"]
        else:
            rejected += row["lines"]
    return RoutedLines(stored, tables, skipped, rejected, too_many=rules.too_many)

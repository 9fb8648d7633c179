"""The enrich step: a rule runs once per distinct value of its field, and its results are joined back.

So the cost grows with the distinct values, not with the events. It is the only Python code that a load runs
per value.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.destinations.column_types import Kind
from headwater.pipeline.spark.storage import ObjectFolder, read_objects, write_objects
from headwater.pipeline.steps.convert import literal, value_sql
from headwater.pipeline.steps.enrich.base import Enricher, load_enricher
from headwater.pipeline.steps.field_tree import BatchFields, Field, JsonTypes, Lookup, parse_pointer
from headwater.pipeline.steps.parse_events import FieldParser
from headwater.pipeline.steps.read_lines import LINE
from headwater.pipeline.steps.stage import ExecutorFolder, Staging
from headwater.settings import EnrichmentSettings, PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IMPLICIT = (
    EnrichmentSettings(name="ip_lookup", from_="/source_ip", to="/eventn_ctx/location"),
    EnrichmentSettings(name="user_agent_parse", from_="/eventn_ctx/user_agent", to="/eventn_ctx/parsed_ua"),
)
"""Rules for all browser events; a configured rule for the same target replaces one."""

FEW_VALUES = 10_000
"""Up to so many distinct values are looked up by the driver."""
RULES_SECONDS = 300.0
"""An enrichment rule stays open this long; then it is opened again, and with it the file that it reads."""

BROADCAST_VALUES = 200_000
"""Up to so many distinct values are broadcast to every task; more are joined by a shuffle (G8)."""

_JSON_TYPES = {
    Kind.BOOL: JsonTypes.BOOL,
    Kind.INT64: JsonTypes.INT64,
    Kind.FLOAT64: JsonTypes.FLOAT64,
    Kind.STRING: JsonTypes.STRING,
    Kind.TIMESTAMP: JsonTypes.TIMESTAMP,
}
_SPARK = {
    Kind.BOOL: "boolean",
    Kind.INT64: "bigint",
    Kind.FLOAT64: "double",
    Kind.STRING: "string",
    Kind.TIMESTAMP: "string",
}


@dataclass(frozen=True)
class Rule:
    """An open enrichment rule.

    `browser_keys` limits it to browser events: those that carry one of these keys, one per line.
    """

    name: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    enricher: Enricher
    browser_keys: str = ""


@dataclass
class LookupTable:
    """The results of a rule: a table of value and result, joined to the events by the rule's source."""

    rule: Rule
    number: int
    results: DataFrame
    is_small: bool
    json_types: JsonTypes
    """The JSON types at the rule's source."""

    @property
    def name(self) -> str:
        return f"_headwater_lookup_{self.number}"

    def join(self, events: DataFrame, parser: FieldParser) -> DataFrame:
        """The events with the results as a further column."""
        from pyspark.sql import functions

        key = f"_headwater_key_{self.number}"
        keyed = events.selectExpr("*", f"{_key(self.rule, parser, self.json_types)} AS {key}")
        results = self.results.select(
            functions.col("value").alias(f"{key}_found"), functions.col("found").alias(self.name)
        )
        if self.is_small:
            results = functions.broadcast(results)
        return keyed.join(results, functions.expr(f"{key} = {key}_found"), "left")


def rules_of(
    configured: Iterable[EnrichmentSettings], settings: PipelineSettings, *, browser_keys: str = ""
) -> list[Rule]:
    """The open rules of a destination; with keys, the implicit ones for browser events too."""
    rules = [
        Rule(line.name, parse_pointer(line.from_), parse_pointer(line.to), load_enricher(line.name, settings))
        for line in configured
    ]
    if browser_keys:
        taken = {rule.target for rule in rules}
        for line in IMPLICIT:
            target = parse_pointer(line.to)
            if target not in taken:
                enricher = load_enricher(line.name, settings)
                rules.append(Rule(line.name, parse_pointer(line.from_), target, enricher, browser_keys))
    return rules


class Lookups:
    """The rules of a destination. With a `staging`, executors look up values too; else the driver alone."""

    def __init__(
        self,
        configured: Sequence[EnrichmentSettings],
        settings: PipelineSettings,
        *,
        browser_keys: str = "",
        staging: Staging | None = None,
    ) -> None:
        self._configured = configured
        self._settings = settings
        self._browser_keys = browser_keys
        self._staging = staging
        self._open: dict[str, tuple[float, list[Rule]]] = {}

    def find(self, events: DataFrame, fields: BatchFields, folder: Path) -> list[LookupTable]:
        """Looks up the values of all rules, and adds the fields of the results to the tree."""
        rules = self._rules(self._browser_keys if fields.from_browser else "")
        if self._staging is None:
            return look_up_in_driver(events, fields.root, rules)
        return look_up(events, fields.root, rules, self._staging.executor_folder(folder))

    def _rules(self, browser_keys: str) -> list[Rule]:
        """The open rules, kept for a while: to open them takes longer than to look up a few values."""
        found = self._open.get(browser_keys)
        if found is None or time.monotonic() - found[0] > RULES_SECONDS:
            rules = rules_of(self._configured, self._settings, browser_keys=browser_keys)
            found = self._open[browser_keys] = time.monotonic(), rules
        return found[1]


def look_up(
    lines: DataFrame, root: Field, rules: Sequence[Rule], folder: ExecutorFolder
) -> list[LookupTable]:
    """Finds the distinct values of all rules in one pass, looks them up, and adds the results to the tree.

    A field that no result has becomes no column. Fields of the event have priority over looked-up ones.
    """
    usable = _usable(root, rules)
    if not usable:
        return []
    values_of = _stored_values(_values(lines, usable).distinct(), folder / "values")
    tables = []
    for number, rule, source in usable:
        results = _results(values_of(number), rule.enricher, folder / f"results-{number}")
        counts = [f"count(found.`{name}`)" for name in rule.enricher.fields]
        total, *present = results.selectExpr("count(*)", *counts).collect()[0]
        names = [name for name, count in zip(rule.enricher.fields, present, strict=True) if count]
        if names:
            _add_lookup_fields(root, rule, number, names)
            is_small = total <= BROADCAST_VALUES
            tables.append(LookupTable(rule, number, results, is_small, source.json_types))
    return tables


def look_up_in_driver(lines: DataFrame, root: Field, rules: Sequence[Rule]) -> list[LookupTable]:
    """`look_up` for a few lines, in one job."""
    import pyarrow as pa

    usable = _usable(root, rules)
    if not usable:
        return []
    found_values = _values(lines, usable).toArrow()
    distinct: dict[int, dict[str, None]] = {number: {} for number, _, _ in usable}
    numbers, texts = (found_values.column(name).to_pylist() for name in ("rule", "value"))
    for number, value in zip(numbers, texts, strict=True):
        distinct[number][value] = None
    tables = []
    for number, rule, source in usable:
        values = pa.RecordBatch.from_arrays([pa.array(distinct[number], pa.string())], ["value"])
        found = pa.Table.from_batches(list(_function(rule.enricher)(iter([values]))))
        found = found.filter(found.column("found").is_valid())
        parts = found.column("found").combine_chunks().flatten() if found.num_rows else []
        fields = zip(rule.enricher.fields, parts, strict=False)
        names = [name for name, part in fields if part.null_count < len(part)]
        if names:
            _add_lookup_fields(root, rule, number, names)
            results = lines.sparkSession.createDataFrame(found, _schema(rule.enricher))
            tables.append(LookupTable(rule, number, results, True, source.json_types))
    return tables


def _usable(root: Field, rules: Sequence[Rule]) -> list[tuple[int, Rule, Field]]:
    """The rules whose source is a text somewhere in the batch, with their numbers."""
    return [
        (number, rule, source)
        for number, rule in enumerate(rules)
        if (source := root.find(rule.source)) is not None
        and source.json_types & (JsonTypes.STRING | JsonTypes.TIMESTAMP)
    ]


def _values(lines: DataFrame, usable: Sequence[tuple[int, Rule, Field]]) -> DataFrame:
    """The values that rules look up: number of the rule, value."""
    parser = FieldParser(LINE)
    for _, rule, _ in usable:
        request_lookup_key(parser, rule)
    parser.plan()
    pairs = ", ".join(
        f"struct({number} AS rule, {_key(rule, parser, source.json_types)} AS value)"
        for number, rule, source in usable
    )
    return parser.apply(lines).selectExpr(f"inline(array({pairs}))").where("value IS NOT NULL")


def _stored_values(values: DataFrame, folder: ExecutorFolder) -> Callable[[int], DataFrame]:
    """Writes the values to `folder` by rule; returns a function that reads those of one."""
    spark = values.sparkSession
    if isinstance(folder, ObjectFolder):
        files = write_objects(values, folder, by="rule")
        return lambda rule: read_objects(spark, folder, [f for f in files if f.key == rule], "value string")
    values.write.partitionBy("rule").parquet(str(folder))
    stored = spark.read.schema("value string, rule int").parquet(str(folder))
    return lambda rule: stored.where(f"rule = {rule}").select("value")


def _schema(enricher: Enricher) -> str:
    fields = ", ".join(f"`{name}`: {_SPARK[kind]}" for name, kind in enricher.fields.items())
    return f"value string, found struct<{fields}>"


def _results(values: DataFrame, enricher: Enricher, folder: ExecutorFolder) -> DataFrame:
    """A table of value and result, without values that have none."""
    import pyarrow as pa

    spark = values.sparkSession
    schema = _schema(enricher)
    few = values.limit(FEW_VALUES + 1).toArrow()
    if few.num_rows <= FEW_VALUES:
        # starts no worker process
        batches = list(_function(enricher)(iter(few.to_batches())))
        table = pa.Table.from_batches(batches) if batches else None
        found = spark.createDataFrame(table, schema) if table else spark.createDataFrame([], schema)
    elif isinstance(folder, ObjectFolder):
        files = write_objects(values.mapInArrow(_function(enricher), schema), folder)
        found = read_objects(spark, folder, files, schema)
    else:
        values.mapInArrow(_function(enricher), schema).write.parquet(str(folder))
        found = spark.read.schema(schema).parquet(str(folder))
    return found.where("found IS NOT NULL")


def request_lookup_key(parser: FieldParser, rule: Rule) -> None:
    """Requests the fields that the rule reads."""
    parser.request(rule.source, "string")
    if rule.browser_keys:
        parser.request(("api_key",), "string")


def _key(rule: Rule, parser: FieldParser, json_types: JsonTypes) -> str:
    path = parser.path(rule.source)
    key = value_sql(path.sql, path.parse_as, json_types, Kind.STRING)
    if not rule.browser_keys:
        return key
    api_key = parser.path(("api_key",))
    sent = value_sql(api_key.sql, api_key.parse_as, JsonTypes.STRING, Kind.STRING)
    known = ", ".join(map(literal, rule.browser_keys.split("\n")))
    return f"if({sent} IN ({known}), {key}, NULL)"


def _add_lookup_fields(root: Field, rule: Rule, number: int, names: Sequence[str]) -> None:
    at = root
    for part in rule.target:
        at = at.children.setdefault(part, Field(Lookup(number, ()), JsonTypes.OBJECT))
    for name in names:
        found = Field(Lookup(number, (name,)), _JSON_TYPES[rule.enricher.fields[name]])
        own = at.children.get(name)
        if own is None:
            at.children[name] = found
        else:
            own.fallbacks.append(found)


def _function(enricher: Enricher) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        arrow = {
            Kind.BOOL: pa.bool_(),
            Kind.INT64: pa.int64(),
            Kind.FLOAT64: pa.float64(),
            Kind.STRING: pa.string(),
            Kind.TIMESTAMP: pa.string(),
        }
        kind = pa.struct([(name, arrow[field]) for name, field in enricher.fields.items()])
        for batch in batches:
            values = batch.column(0).to_pylist()
            found = pa.array(enricher.lookup(values), kind)
            yield pa.RecordBatch.from_arrays([batch.column(0), found], ["value", "found"])

    return run

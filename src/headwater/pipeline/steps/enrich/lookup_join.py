"""The enrich step: a rule runs once per distinct value of its field, and its results are joined back.

So the cost grows with the distinct values, not with the events. It is the only Python code that a load runs
per value.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.destinations.column_types import Kind
from headwater.pipeline.spark.storage import (
    ExecutorFolder,
    ObjectFolder,
    Staging,
    read_objects,
    write_objects,
)
from headwater.pipeline.steps.convert import literal
from headwater.pipeline.steps.enrich.base import Enricher, load_enricher
from headwater.pipeline.steps.field_tree import BatchFields, Field, JsonTypes, Lookup, parse_pointer
from headwater.pipeline.steps.parse_events import EventParser
from headwater.settings import EnrichmentSettings, PipelineSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

IMPLICIT = (
    EnrichmentSettings(name="ip_lookup", from_="/source_ip", to="/eventn_ctx/location"),
    EnrichmentSettings(name="user_agent_parse", from_="/eventn_ctx/user_agent", to="/eventn_ctx/parsed_ua"),
)
"""Rules for all browser events; a configured rule for the same target replaces one."""

FEW_VALUES = 10_000
"""Up to this many distinct values are looked up by the driver."""
RULES_SECONDS = 300.0
"""An enrichment rule stays open this long; then it is opened again, and with it the file that it reads."""

BROADCAST_VALUES = 200_000
"""Up to this many distinct values are broadcast to every task; more are joined by a shuffle (G8)."""

_TYPES = {
    Kind.BOOL: (JsonTypes.BOOL, "boolean", "bool"),
    Kind.INT64: (JsonTypes.INT64, "bigint", "int64"),
    Kind.FLOAT64: (JsonTypes.FLOAT64, "double", "float64"),
    Kind.STRING: (JsonTypes.STRING, "string", "string"),
    Kind.TIMESTAMP: (JsonTypes.TIMESTAMP, "string", "string"),
}
"""Types of results: as JSON, in Spark, in Arrow."""


@dataclass(frozen=True)
class Rule:
    """An open enrichment rule.

    `browser_keys` limits it to browser events: those that carry one of these keys, one per line.
    """

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
    fields: list[str]

    @property
    def name(self) -> str:
        return f"_headwater_lookup_{self.number}"

    def key(self, parser: EventParser) -> str:
        """SQL of the value that is looked up; the parser must be applied to the events."""
        return _key(self.rule, parser)

    def join(self, events: DataFrame, key_sql: str) -> DataFrame:
        """The events with the results as a further column."""
        from pyspark.sql import functions

        key = f"_headwater_key_{self.number}"
        keyed = events.selectExpr("*", f"{key_sql} AS {key}")
        results = self.results.select(
            functions.col("value").alias(f"{key}_found"), functions.col("found").alias(self.name)
        )
        if self.is_small:
            results = functions.broadcast(results)
        return keyed.join(results, functions.expr(f"{key} = {key}_found"), "left")


@dataclass
class Lookups:
    """The rules of a destination. With a `staging`, executors look up values too; else the driver alone."""

    configured: Sequence[EnrichmentSettings]
    settings: PipelineSettings
    browser_keys: str = ""
    staging: Staging | None = None
    _open: dict[str, tuple[float, list[Rule]]] = field(default_factory=dict)

    def find(self, events: DataFrame, fields: BatchFields, folder: Path) -> list[LookupTable]:
        """Looks up the values of all rules, and adds the fields of the results to the tree."""
        rules = self._rules(self.browser_keys if fields.from_browser else "")
        results = self.staging.executor_folder(folder) if self.staging is not None else None
        return look_up(events, fields.root, rules, results)

    def usable(self, fields: BatchFields) -> list[int]:
        """The numbers of the rules whose source is among the fields."""
        rules = self._rules(self.browser_keys if fields.from_browser else "")
        return [number for number, _ in _usable(fields.root, rules)]

    @staticmethod
    def add_fields(fields: BatchFields, tables: Sequence[LookupTable]) -> None:
        """Adds the fields of results that were found with other lines of the same batch."""
        for table in tables:
            _add_lookup_fields(fields.root, table.rule, table.number, table.fields)

    def _rules(self, browser_keys: str) -> list[Rule]:
        """The open rules, kept for a while: to open them takes longer than to look up a few values."""
        found = self._open.get(browser_keys)
        if found is None or time.monotonic() - found[0] > RULES_SECONDS:
            found = self._open[browser_keys] = time.monotonic(), self._opened(browser_keys)
        return found[1]

    def _opened(self, browser_keys: str) -> list[Rule]:
        """The rules; with keys, the implicit ones for browser events too."""
        wanted = [(line, "") for line in self.configured]
        if browser_keys:
            taken = {parse_pointer(line.to) for line in self.configured}
            wanted += [(line, browser_keys) for line in IMPLICIT if parse_pointer(line.to) not in taken]
        return [
            Rule(
                parse_pointer(line.from_),
                parse_pointer(line.to),
                load_enricher(line.name, self.settings),
                keys,
            )
            for line, keys in wanted
        ]


def look_up(
    lines: DataFrame, root: Field, rules: Sequence[Rule], folder: ExecutorFolder | None = None
) -> list[LookupTable]:
    """Looks up the values of all rules, and adds the fields of the results to the tree.

    The driver looks up a few distinct values, and all of them where there is no `folder` for the results of
    executors. A field that no result has becomes no column. Fields of the event have priority over looked-up
    ones.
    """
    usable = _usable(root, rules)
    if not usable:
        return []
    values = _values(lines, usable)
    if folder is not None:
        values = _stored(values.distinct(), folder / "values", "rule int, value string")
    few = (values if folder is None else values.limit(FEW_VALUES + 1)).toArrow()
    tables = []
    for number, rule in usable:
        if folder is None or few.num_rows <= FEW_VALUES:
            found = _look_up_in_driver(few, number, rule.enricher, lines.sparkSession)
        else:
            own = values.where(f"rule = {number}").select("value")
            found = _look_up_on_executors(own, rule.enricher, folder / f"results-{number}")
        if found.fields:
            _add_lookup_fields(root, rule, number, found.fields)
            is_small = found.count <= BROADCAST_VALUES
            tables.append(LookupTable(rule, number, found.results, is_small, found.fields))
    return tables


@dataclass
class _LookedUp:
    """Values with their results, without values that have none; and the fields that any result has."""

    results: DataFrame
    count: int
    fields: list[str]


def _look_up_in_driver(values: pa.Table, number: int, enricher: Enricher, spark: SparkSession) -> _LookedUp:
    """Starts no job and no worker process."""
    import pyarrow as pa
    import pyarrow.compute as pc

    own = values.filter(pc.equal(values.column("rule"), number)).column("value").combine_chunks().unique()
    batch = pa.RecordBatch.from_arrays([own], ["value"])
    found = pa.Table.from_batches(_function(enricher)(iter([batch])))
    found = found.filter(found.column("found").is_valid())
    parts = found.column("found").combine_chunks().flatten()
    fields = [name for name, part in zip(enricher.fields, parts, strict=True) if part.null_count < len(part)]
    results = spark.createDataFrame(found if found.num_rows else [], _schema(enricher))
    return _LookedUp(results, found.num_rows, fields)


def _look_up_on_executors(values: DataFrame, enricher: Enricher, folder: ExecutorFolder) -> _LookedUp:
    schema = _schema(enricher)
    found = values.mapInArrow(_function(enricher), schema).where("found IS NOT NULL")
    results = _stored(found, folder, schema)
    counts = [f"count(found.`{name}`)" for name in enricher.fields]
    count, *present = results.selectExpr("count(*)", *counts).collect()[0]
    return _LookedUp(
        results, count, [name for name, has in zip(enricher.fields, present, strict=True) if has]
    )


def _stored(rows: DataFrame, folder: ExecutorFolder, schema: str) -> DataFrame:
    """The rows, written by the executors and read again, so that they are computed once."""
    if isinstance(folder, ObjectFolder):
        return read_objects(rows.sparkSession, folder, write_objects(rows, folder), schema)
    rows.write.parquet(str(folder))
    return rows.sparkSession.read.schema(schema).parquet(str(folder))


def _usable(root: Field, rules: Sequence[Rule]) -> list[tuple[int, Rule]]:
    """The rules whose source is a text somewhere in the batch, with their numbers."""
    return [
        (number, rule)
        for number, rule in enumerate(rules)
        if (source := root.find(rule.source)) is not None
        and source.json_types & (JsonTypes.STRING | JsonTypes.TIMESTAMP)
    ]


def _values(lines: DataFrame, usable: Sequence[tuple[int, Rule]]) -> DataFrame:
    """The values that rules look up: number of the rule, value."""
    parser = EventParser()
    pairs = ", ".join(f"struct({number} AS rule, {_key(rule, parser)} AS value)" for number, rule in usable)
    return parser.apply(lines).selectExpr(f"inline(array({pairs}))").where("value IS NOT NULL")


def _schema(enricher: Enricher) -> str:
    fields = ", ".join(f"`{name}`: {_TYPES[kind][1]}" for name, kind in enricher.fields.items())
    return f"value string, found struct<{fields}>"


def _key(rule: Rule, parser: EventParser) -> str:
    key = parser.value(rule.source, Kind.STRING)
    if not rule.browser_keys:
        return key
    sent = parser.value(("api_key",), Kind.STRING)
    known = ", ".join(map(literal, rule.browser_keys.split("\n")))
    return f"if({sent} IN ({known}), {key}, NULL)"


def _add_lookup_fields(root: Field, rule: Rule, number: int, names: Sequence[str]) -> None:
    at = root
    for part in rule.target:
        at = at.children.setdefault(part, Field(Lookup(number, ()), JsonTypes.OBJECT))
    for name in names:
        found = Field(Lookup(number, (name,)), _TYPES[rule.enricher.fields[name]][0])
        own = at.children.get(name)
        if own is None:
            at.children[name] = found
        else:
            own.fallbacks.append(found)


def _function(enricher: Enricher) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        kind = pa.struct([(name, _TYPES[kind][2]) for name, kind in enricher.fields.items()])
        for batch in batches:
            values = batch.column(0).to_pylist()
            found = pa.array(enricher.lookup(values), kind)
            yield pa.RecordBatch.from_arrays([batch.column(0), found], ["value", "found"])

    return run

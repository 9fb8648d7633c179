"""Lookup enrichment (seed 003): a rule runs once per distinct value, and its results are joined back.

So the cost grows with the distinct values, not with the events. It is the only Python that a load has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.destinations.column_types import Kind
from headwater.pipeline.spark.storage import ObjectFolder, fetch, store
from headwater.pipeline.steps.batch_schema import Lookup, Node, Seen
from headwater.pipeline.steps.convert import literal, value_sql
from headwater.pipeline.steps.enrich.base import Enricher, load_enricher
from headwater.pipeline.steps.names import parse_pointer
from headwater.pipeline.steps.parse import Reading
from headwater.pipeline.steps.read_lines import LINE
from headwater.pipeline.steps.stage import Shared
from headwater.settings import EnrichmentSettings, PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["IMPLICIT", "Joined", "Rule", "look_up", "look_up_few", "rules_of", "want_key"]

IMPLICIT = (
    EnrichmentSettings(name="ip_lookup", from_="/source_ip", to="/eventn_ctx/location"),
    EnrichmentSettings(name="user_agent_parse", from_="/eventn_ctx/user_agent", to="/eventn_ctx/parsed_ua"),
)
"""Rules for all browser events; a configured rule for the same place takes theirs."""

FEW_VALUES = 10_000
"""Up to so many are looked up by the driver itself."""

BROADCAST_VALUES = 200_000
"""Up to so many distinct values go to every task as a table; more are joined by a shuffle (G8)."""

_SEEN = {
    Kind.BOOL: Seen.BOOL,
    Kind.INT64: Seen.INT64,
    Kind.FLOAT64: Seen.FLOAT64,
    Kind.STRING: Seen.STRING,
    Kind.TIMESTAMP: Seen.TIMESTAMP,
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
    """An enrichment rule, ready.

    `browser_key` limits it to browser events: those that carry this key, or one of several, one a line.
    """

    name: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    enricher: Enricher
    browser_key: str = ""


@dataclass
class Joined:
    """The results of a rule: a table of value and result, to be joined to the events by `source`."""

    rule: Rule
    number: int
    results: DataFrame
    is_small: bool
    seen: Seen
    """What was seen at the rule's source."""

    @property
    def name(self) -> str:
        return f"_headwater_lookup_{self.number}"

    def join(self, events: DataFrame, reading: Reading) -> DataFrame:
        """The events with the results beside them."""
        from pyspark.sql import functions

        key = f"_headwater_key_{self.number}"
        keyed = events.selectExpr("*", f"{_key(self.rule, reading, self.seen)} AS {key}")
        results = self.results.select(
            functions.col("value").alias(f"{key}_found"), functions.col("found").alias(self.name)
        )
        if self.is_small:
            results = functions.broadcast(results)
        return keyed.join(results, functions.expr(f"{key} = {key}_found"), "left")


def rules_of(
    configured: Iterable[EnrichmentSettings], settings: PipelineSettings, *, browser_key: str = ""
) -> list[Rule]:
    """The rules of a destination, the implicit ones among them if there are browser events."""
    rules = [
        Rule(line.name, parse_pointer(line.from_), parse_pointer(line.to), load_enricher(line.name, settings))
        for line in configured
    ]
    if browser_key:
        taken = {rule.target for rule in rules}
        for line in IMPLICIT:
            target = parse_pointer(line.to)
            if target not in taken:
                enricher = load_enricher(line.name, settings)
                rules.append(Rule(line.name, parse_pointer(line.from_), target, enricher, browser_key))
    return rules


def look_up(lines: DataFrame, root: Node, rules: Sequence[Rule], folder: Shared) -> list[Joined]:
    """Find the distinct values of all rules in one pass, look them up, and graft the results onto the tree.

    A field that no value has becomes no column. What the event brings itself has priority over what is found.
    """
    wanted = _wanted(root, rules)
    if not wanted:
        return []
    values_of = _stored_values(_values(lines, wanted).distinct(), folder / "values")
    joined = []
    for number, rule, node in wanted:
        own = values_of(number)
        results = _results(own, rule.enricher, folder / f"results-{number}")
        counts = [f"count(found.`{name}`)" for name in rule.enricher.fields]
        total, *present = results.selectExpr("count(*)", *counts).collect()[0]
        names = [name for name, count in zip(rule.enricher.fields, present, strict=True) if count]
        if names:
            _graft(root, rule, number, names)
            joined.append(Joined(rule, number, results, total <= BROADCAST_VALUES, node.seen))
    return joined


def look_up_few(lines: DataFrame, root: Node, rules: Sequence[Rule]) -> list[Joined]:
    """`look_up` for a few lines, in one job: the driver looks up what it finds."""
    import pyarrow as pa

    wanted = _wanted(root, rules)
    if not wanted:
        return []
    seen = _values(lines, wanted).toArrow()
    distinct: dict[int, dict[str, None]] = {number: {} for number, _, _ in wanted}
    for number, value in zip(seen.column("rule").to_pylist(), seen.column("value").to_pylist(), strict=True):
        distinct[number][value] = None
    joined = []
    for number, rule, node in wanted:
        values = pa.RecordBatch.from_arrays([pa.array(distinct[number], pa.string())], ["value"])
        found = pa.Table.from_batches(list(_function(rule.enricher)(iter([values]))))
        found = found.filter(found.column("found").is_valid())
        parts = found.column("found").combine_chunks().flatten() if found.num_rows else []
        fields = zip(rule.enricher.fields, parts, strict=False)
        names = [name for name, part in fields if part.null_count < len(part)]
        if names:
            _graft(root, rule, number, names)
            results = lines.sparkSession.createDataFrame(found, _schema(rule.enricher))
            joined.append(Joined(rule, number, results, True, node.seen))
    return joined


def _wanted(root: Node, rules: Sequence[Rule]) -> list[tuple[int, Rule, Node]]:
    return [
        (number, rule, node)
        for number, rule in enumerate(rules)
        if (node := root.find(rule.source)) is not None and node.seen & (Seen.STRING | Seen.TIMESTAMP)
    ]


def _values(lines: DataFrame, wanted: Sequence[tuple[int, Rule, Node]]) -> DataFrame:
    """What the rules look at: number of the rule, value."""
    reading = Reading(LINE)
    for _, rule, _ in wanted:
        want_key(reading, rule)
    reading.plan()
    pairs = ", ".join(
        f"struct({number} AS rule, {_key(rule, reading, node.seen)} AS value)"
        for number, rule, node in wanted
    )
    return reading.apply(lines).selectExpr(f"inline(array({pairs}))").where("value IS NOT NULL")


def _stored_values(values: DataFrame, folder: Shared) -> Callable[[int], DataFrame]:
    """Write the values down, by rule; a function that reads those of one."""
    spark = values.sparkSession
    if isinstance(folder, ObjectFolder):
        files = store(values, folder, by="rule")
        return lambda rule: fetch(spark, folder, [f for f in files if f.key == rule], "value string")
    values.write.partitionBy("rule").parquet(str(folder))
    stored = spark.read.schema("value string, rule int").parquet(str(folder))
    return lambda rule: stored.where(f"rule = {rule}").select("value")


def _schema(enricher: Enricher) -> str:
    fields = ", ".join(f"`{name}`: {_SPARK[kind]}" for name, kind in enricher.fields.items())
    return f"value string, found struct<{fields}>"


def _results(values: DataFrame, enricher: Enricher, folder: Shared) -> DataFrame:
    """A table of value and result, without those that have none."""
    import pyarrow as pa

    spark = values.sparkSession
    schema = _schema(enricher)
    few = values.limit(FEW_VALUES + 1).toArrow()
    if few.num_rows <= FEW_VALUES:
        # no worker process has to start for a few
        batches = list(_function(enricher)(iter(few.to_batches())))
        table = pa.Table.from_batches(batches) if batches else None
        found = spark.createDataFrame(table, schema) if table else spark.createDataFrame([], schema)
    elif isinstance(folder, ObjectFolder):
        files = store(values.mapInArrow(_function(enricher), schema), folder)
        found = fetch(spark, folder, files, schema)
    else:
        values.mapInArrow(_function(enricher), schema).write.parquet(str(folder))
        found = spark.read.schema(schema).parquet(str(folder))
    return found.where("found IS NOT NULL")


def want_key(reading: Reading, rule: Rule) -> None:
    """Have what the rule looks at read."""
    reading.want(rule.source, "string")
    if rule.browser_key:
        reading.want(("api_key",), "string")


def _key(rule: Rule, reading: Reading, seen: Seen) -> str:
    path = reading.path(rule.source)
    key = value_sql(path.sql, path.read, seen, Kind.STRING)
    if not rule.browser_key:
        return key
    api_key = reading.path(("api_key",))
    sent = value_sql(api_key.sql, api_key.read, Seen.STRING, Kind.STRING)
    known = ", ".join(map(literal, rule.browser_key.split("\n")))
    return f"if({sent} IN ({known}), {key}, NULL)"


def _graft(root: Node, rule: Rule, number: int, names: Sequence[str]) -> None:
    at = root
    for part in rule.target:
        at = at.children.setdefault(part, Node(Lookup(number, ()), Seen.OBJECT))
    for name in names:
        found = Node(Lookup(number, (name,)), _SEEN[rule.enricher.fields[name]])
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

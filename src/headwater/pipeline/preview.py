"""The row that one event becomes in each destination, without storing it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.destinations.base import load_destination
from headwater.destinations.table import ROW, UNMAPPED
from headwater.pipeline.steps.enrich.lookup_join import Lookups
from headwater.pipeline.steps.fit_table import plan_table, wanted_columns
from headwater.pipeline.steps.parse_events import find_fields, malformed_lines
from headwater.pipeline.steps.project import project
from headwater.pipeline.steps.read_lines import REASON, read_lines
from headwater.pipeline.steps.route import TABLE, name_tables
from headwater.pipeline.steps.table_rules import TableRules
from headwater.pipeline.steps.template import Template
from headwater.settings import DestinationSettings, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class PreviewColumn:
    """A column: its kind, its type in the destination's SQL, and the event's value."""

    name: str
    kind: str
    sql_type: str
    value: Any


@dataclass
class Preview:
    """The row of a destination. No table: the event is skipped, or rejected if there is a `reason`."""

    destination: str
    table: str = ""
    reason: str = ""
    columns: list[PreviewColumn] = field(default_factory=list)
    unmapped: str = ""


def preview(settings: Settings, spark: SparkSession, event: bytes) -> list[Preview]:
    """The row of an event in a new table of each destination. Connects to none of them."""
    with tempfile.TemporaryDirectory(prefix="headwater-preview-") as folder:
        path = Path(folder, "event.log")
        path.write_bytes(event.strip().replace(b"\n", b" ") + b"\n")
        return [_preview(settings, each, spark, path) for each in settings.destinations]


def _preview(
    settings: Settings, destination: DestinationSettings, spark: SparkSession, path: Path
) -> Preview:
    found = Preview(destination.id)
    lines = read_lines(spark, path)
    malformed = malformed_lines(lines).collect()
    if malformed:
        found.reason = malformed[0][REASON]
        return found
    product = load_destination(destination)
    capabilities = product.capabilities
    template = Template(destination.table_name_template)
    limit = capabilities.max_identifier_length
    rules = TableRules.of(destination)
    for row in name_tables(lines, template, max_identifier_length=limit, rules=rules).collect():
        found.table, found.reason = row[TABLE], row[REASON] or ""
    if not found.table:
        return found
    browser_keys = "\n".join(token.client_secret for token in settings.tokens if token.client_secret)
    fields = find_fields(lines, browser_keys)
    lookups = Lookups(destination.enrichment, settings.pipeline, browser_keys=browser_keys)
    tables = lookups.find(lines, fields, path.parent)
    columns = wanted_columns(fields.root, destination, capabilities)
    fit, table = plan_table(found.table, fields.root, columns, None, destination, capabilities)
    for row in project(lines, fit, tables, text_numbers=destination.text_numbers).drop(ROW).collect():
        values = row.asDict()
        found.unmapped = values.pop(UNMAPPED, None) or ""
        for name, value in values.items():
            column = table.columns[name]
            sql_type = column.sql_type or capabilities.types[column.kind]
            found.columns.append(PreviewColumn(name, str(column.kind), sql_type, value))
    return found

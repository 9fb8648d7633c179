"""What one event would become, destination by destination, without storing anything."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.destinations.base import load_destination
from headwater.destinations.locks import FileLocks
from headwater.destinations.table import ROW, UNMAPPED
from headwater.pipeline.load import Loader
from headwater.pipeline.steps.enrich.lookup_join import look_up, rules_of
from headwater.pipeline.steps.project import project
from headwater.pipeline.steps.read_lines import REASON, bad_lines, read_lines, scan_lines
from headwater.pipeline.steps.route import TABLE, name_tables
from headwater.pipeline.steps.stage import Staging
from headwater.pipeline.steps.template import Template
from headwater.settings import DestinationSettings, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Preview", "PreviewColumn", "preview"]


@dataclass
class PreviewColumn:
    """A column: its kind, its type in the destination's SQL, and the event's value."""

    name: str
    kind: str
    sql_type: str
    value: Any


@dataclass
class Preview:
    """What a destination would get. No table: the event is skipped, or rejected if there is a `reason`."""

    destination: str
    table: str = ""
    reason: str = ""
    columns: list[PreviewColumn] = field(default_factory=list)
    unmapped: str = ""


def preview(settings: Settings, spark: SparkSession, event: bytes) -> list[Preview]:
    """What each destination would make of an event if its table were new. No destination is connected to."""
    with tempfile.TemporaryDirectory(prefix="headwater-preview-") as folder:
        path = Path(folder, "event.log")
        path.write_bytes(event.strip().replace(b"\n", b" ") + b"\n")
        with Staging(Path(folder, "staging")) as staging:
            return [_one(settings, each, spark, path, staging) for each in settings.destinations]


def _one(
    settings: Settings, destination: DestinationSettings, spark: SparkSession, path: Path, staging: Staging
) -> Preview:
    found = Preview(destination.id)
    lines = read_lines(spark, path)
    bad = bad_lines(lines).collect()
    if bad:
        found.reason = bad[0][REASON]
        return found
    product = load_destination(destination)
    limit = product.capabilities.max_identifier_length
    named = name_tables(lines, Template(destination.table_name_template), max_identifier_length=limit)
    for row in named.collect():
        found.table, found.reason = row[TABLE], row[REASON] or ""
    if not found.table:
        return found
    keys = [token.client_secret for token in settings.tokens if token.client_secret]
    key, scanned = "", scan_lines(lines)
    for key in keys:
        scanned = scan_lines(lines, key)
        if scanned.browser:
            break
    rules = rules_of(destination.enrichment, settings.pipeline, browser_key=key if scanned.browser else "")
    locks = FileLocks(staging.path / "locks")
    loader = Loader(destination, settings.pipeline, product, locks, staging, browser_key=key)
    with staging.folder() as folder:
        joined = look_up(lines, scanned.root, rules, folder)
        fitted, table = loader.wanted(found.table, scanned, None)
        for row in project(lines, fitted, joined).drop(ROW).collect():
            values = row.asDict()
            found.unmapped = values.pop(UNMAPPED, None) or ""
            for name, value in values.items():
                column = table.columns[name]
                sql_type = column.sql_type or product.capabilities.types[column.kind]
                found.columns.append(PreviewColumn(name, str(column.kind), sql_type, value))
    return found

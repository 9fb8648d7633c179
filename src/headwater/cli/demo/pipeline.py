"""The second half of the demo: events become tables, and each column is followed to where it comes from."""

from __future__ import annotations

import gzip
import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import httpx2
import msgspec

from headwater.cli.demo.processes import Server, free_port
from headwater.cli.demo.shop import AGENTS, first_day, second_day
from headwater.cli.demo.trace import make_report, trace_report
from headwater.cli.output import format_table
from headwater.destinations.base import load_destination
from headwater.errors import HeadwaterError
from headwater.log.files.event_counts import stat_events
from headwater.log.files.layout import EventFolder
from headwater.log.rejects.destination_file import DestinationRejects
from headwater.settings import load

__all__ = ["TableTally", "Tally", "is_possible", "print_tally", "run_pipeline", "show_page"]

TOKEN = {"id": "shop", "client_secret": "shop-client", "server_secret": "shop-server"}
TEMPLATE = "{% if event_type %}{{ event_type | lower }}_{{ _timestamp | date('%Y') }}{% endif %}"
PIPELINE_SECONDS = 900.0  # patience for machines that do much else


class TableTally(msgspec.Struct):
    """One table that the demo has made."""

    name: str
    rows: int
    columns: dict[str, str]


class Tally(msgspec.Struct):
    """What became of the events: acknowledged = rows + skipped + rejected (G3)."""

    acknowledged: int
    rows: int
    skipped: int
    rejected: int
    unmapped: int
    tables: list[TableTally]
    reasons: list[str]
    trace: list[str] = []
    """Where the columns of a report on these tables come from, as `headwater lineage show` draws it."""
    seconds: float = 0.0

    @property
    def adds_up(self) -> bool:
        return self.acknowledged == self.rows + self.skipped + self.rejected


class Shop(Server):
    """`headwater up` with a token, and a warehouse behind it: gateway, pipeline, graph and page."""

    stop_seconds = 120.0  # a cycle of the pipeline ends what it has begun

    def __init__(self, folder: Path, *command: str) -> None:
        super().__init__(folder, "up", free_port())
        self._command = command or ("up", "--every", "1s")
        self.config = folder / "pipeline.yml"
        settings = {
            "data_dir": str(folder / "pipeline-data"),
            "gateway": {"port": self.port},
            "tokens": [TOKEN],
            "events": {"rotation_minutes": 0.02},  # impatient, so that the demo is short
            "destinations": [
                {
                    "id": "warehouse",
                    "type": "duckdb",
                    "path": str(folder / "warehouse.duckdb"),
                    "table_name_template": TEMPLATE,
                    "primary_key": ["eventn_ctx_event_id"],
                }
            ],
        }
        # JSON is YAML too
        self.config.write_bytes(msgspec.json.format(msgspec.json.encode(settings), indent=2))

    def arguments(self) -> Sequence[str]:
        return ("headwater", *self._command, "--config", str(self.config))

    def send(self, events: list[dict[str, Any]]) -> int:
        """By browsers one by one, by a server as an array and as compressed lines; how many came in."""
        third = len(events) // 3
        taken = 0
        with httpx2.Client(base_url=self.url, timeout=30) as client:
            for number, event in enumerate(events[:third]):
                headers = {
                    "User-Agent": AGENTS[number % 2],
                    "X-Forwarded-For": f"{81 + number % 3}.2.69.{number % 200}",
                }
                answer = client.post("/api/v1/event?token=shop-client", json=event, headers=headers)
                taken += answer.status_code == 200
            secret = {"X-Auth-Token": "shop-server"}
            answer = client.post("/api/v1/s2s/events", json=events[third : 2 * third], headers=secret)
            taken += int(answer.json()["accepted"])
            lines = gzip.compress(b"\n".join(msgspec.json.encode(event) for event in events[2 * third :]))
            types = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
            answer = client.post("/api/v1/events/bulk", content=lines, headers=secret | types)
            taken += int(answer.json()["accepted"])
        return taken


def is_possible() -> bool:
    """Whether the extras are there that it needs."""
    return all(importlib.util.find_spec(name) is not None for name in ("pyspark", "duckdb"))


def run_pipeline(folder: Path, events: int, step: Callable[[str], None]) -> Tally:
    """Send events, load them; send more that fit badly, load those; report on them, trace that; count."""
    began = time.monotonic()
    shop = Shop(folder)
    acknowledged = 0
    try:
        step("starting everything: `headwater up`")
        shop.start()
        for day, made in enumerate((first_day(events), second_day(events)), 1):
            step(f"day {day}: posting {len(made)} events of a shop: one by one, as an array, in bulk")
            acknowledged += shop.send(made)
            step(f"day {day}: waiting until they are rows in DuckDB")
            _wait(shop)
        step("a PySpark job makes a report of them: `headwater lineage run demo_report.py`")
        report = make_report(shop.url, folder)
        step("asking the graph where the report's columns come from: `headwater lineage show`")
        trace = trace_report(shop.config, report)
    finally:
        shop.stop()
    tally = _count(shop.config, acknowledged)
    tally.trace = trace
    tally.seconds = time.monotonic() - began
    return tally


def show_page(folder: Path) -> None:
    """Serve the page on what the demo has made, until Ctrl-C; without Spark, which is not needed for that."""
    shop = Shop(folder, "serve", "--graph")
    try:
        shop.start()
        click.echo(f"\nThe page is at {shop.url}/   Ctrl-C ends the demo.")
        while shop.is_running:
            time.sleep(0.2)
    except KeyboardInterrupt:
        click.echo()
    finally:
        shop.stop()


def _wait(shop: Shop) -> None:
    """Until no file is being written or waits."""
    folder = EventFolder(load(shop.config).events_dir)
    deadline = time.monotonic() + PIPELINE_SECONDS
    while folder.active_files() or folder.rotated_files():
        if not shop.is_running or time.monotonic() > deadline:
            raise HeadwaterError(
                "The pipeline of the demo did not load the events.", hint=f"It printed: {shop.printed()}"
            )
        time.sleep(0.1)


def _count(config: Path, acknowledged: int) -> Tally:
    settings = load(config)
    stat = stat_events(settings.events_dir, time.time())
    reasons = [error.error for error in DestinationRejects(settings.events_dir).read("warehouse")]
    warehouse = load_destination(settings.destinations[0])
    warehouse.connect()
    try:
        totals = warehouse.totals()
        tables = [
            TableTally(name, total.rows, {each.name: each.sql_type for each in found.columns.values()})
            for name, total in sorted(totals.items())
            if (found := warehouse.table(name)) is not None
        ]
    finally:
        warehouse.close()
    skipped = sum(each.skipped for each in stat.destinations)
    unmapped = sum(each.unmapped for each in stat.destinations)
    rows = sum(table.rows for table in tables)
    return Tally(acknowledged, rows, skipped, len(reasons), unmapped, tables, sorted(set(reasons)))


def print_tally(tally: Tally, folder: Path | None) -> None:
    """The tables with their types, then the numbers."""
    for table in tally.tables:
        click.echo()
        rows = list(table.columns.items())
        click.echo(format_table((f"table {table.name}", f"{table.rows:,} rows"), rows))
    click.echo()
    numbers = [
        ("acknowledged", tally.acknowledged, "answered 200, hence on disk (G1)"),
        ("rows", tally.rows, "loaded, exactly once (G5)"),
        ("skipped", tally.skipped, "their template gave no table"),
        ("rejected", tally.rejected, "see `headwater rejects` (G6)"),
    ]
    click.echo(format_table(("events", "", ""), numbers))
    click.echo(
        f"acknowledged {'=' if tally.adds_up else 'IS NOT'} rows + skipped + rejected; "
        f"{tally.unmapped:,} value(s) that fit no column are in _unmapped_data"
    )
    for reason in tally.reasons:
        click.echo(f"rejected: {reason}")
    click.echo("\nwhere the report's columns come from")
    for line in tally.trace:
        click.echo(line)
    click.echo(f"\n{tally.seconds:.0f} seconds.")
    if folder is not None:
        click.echo(f"configuration  {folder / 'pipeline.yml'}   (try: headwater -c … status)")
        click.echo(f"warehouse      {folder / 'warehouse.duckdb'}")
        click.echo(f"page           headwater -c {folder / 'pipeline.yml'} up   (then open its address)")
        click.echo(f"lines printed  {folder / 'up.txt'}")

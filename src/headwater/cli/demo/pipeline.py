"""The second half of the demo: `headwater up` loads events into tables, and a report on them is traced."""

from __future__ import annotations

import gzip
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import msgspec

from headwater.cli.demo.shop import AGENTS, TEMPLATE, first_day, order_table, second_day
from headwater.cli.output import echo, format_table
from headwater.destinations.base import load_destination
from headwater.errors import HeadwaterError
from headwater.log.files.event_counts import stat_events
from headwater.log.files.layout import EventFolder
from headwater.log.rejects.destination_file import DestinationRejects
from headwater.settings import load
from headwater.system.installation import typeable
from headwater.testing.processes import HeadwaterProcess, free_port

TOKEN = {"id": "shop", "client_secret": "shop-client", "server_secret": "shop-server"}
PIPELINE_SECONDS = 900.0  # generous: the machine may be busy
STOP_SECONDS = 120.0  # a cycle of the pipeline finishes its load
TRACED = "revenue"
SCRIPT = Path(__file__).with_name("report_job.py")
COLUMNS = ("city", TRACED)
INGEST_TIMEOUT_SECONDS = 120.0


class TableReport(msgspec.Struct):
    """One table of the demo."""

    name: str
    rows: int
    columns: dict[str, str]
    version: str = ""
    """Where the format keeps versions."""


class LoadReport(msgspec.Struct):
    """Counts of the events: acknowledged = rows + skipped + rejected (G3)."""

    acknowledged: int
    rows: int
    skipped: int
    rejected: int
    unmapped: int
    tables: list[TableReport]
    reasons: list[str]
    trace: list[str] = []
    """The origins of the report's columns, as `headwater lineage show` prints them."""
    seconds: float = 0.0

    @property
    def adds_up(self) -> bool:
        return self.acknowledged == self.rows + self.skipped + self.rejected


class DemoServer(HeadwaterProcess):
    """`headwater up` with a token and a DuckDB or Delta destination: gateway, pipeline, graph and page."""

    def __init__(self, folder: Path, *command: str, lake: bool = False) -> None:
        settings = _settings(folder, lake)
        super().__init__(folder, *(command or ("up", "--every", "1s")), settings=settings, name="up")

    def send(self, events: list[dict[str, Any]]) -> int:
        """Send a third one by one, as an array and as gzip lines; return the number accepted."""
        third = len(events) // 3
        accepted = 0
        with httpx2.Client(base_url=self.url, timeout=30) as client:
            for number, event in enumerate(events[:third]):
                headers = {
                    "User-Agent": AGENTS[number % 2],
                    "X-Forwarded-For": f"{81 + number % 3}.2.69.{number % 200}",
                }
                answer = client.post("/api/v1/event?token=shop-client", json=event, headers=headers)
                accepted += answer.status_code == 200
            secret = {"X-Auth-Token": "shop-server"}
            answer = client.post("/api/v1/s2s/events", json=events[third : 2 * third], headers=secret)
            accepted += int(answer.json()["accepted"])
            lines = gzip.compress(b"\n".join(msgspec.json.encode(event) for event in events[2 * third :]))
            types = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
            answer = client.post("/api/v1/events/bulk", content=lines, headers=secret | types)
            accepted += int(answer.json()["accepted"])
        return accepted


def tables_place(folder: Path, lake: bool) -> Path:
    """Where the demo's tables are stored."""
    return folder / ("lake" if lake else "warehouse.duckdb")


def _settings(folder: Path, lake: bool) -> dict[str, Any]:
    return {
        "data_dir": str(folder / "data"),
        "gateway": {"port": free_port()},
        "tokens": [TOKEN],
        "events": {"rotation_minutes": 0.02},  # so that the demo is short
        "destinations": [
            {
                "id": "warehouse",
                "type": "delta" if lake else "duckdb",
                "path": str(tables_place(folder, lake)),
                "table_name_template": TEMPLATE,
                "primary_key": ["eventn_ctx_event_id"],
            }
        ],
    }


def is_possible(lake: bool) -> bool:
    """Whether the extras that it needs are installed."""
    needed = ("pyspark", "duckdb", *(("deltalake",) if lake else ()))
    return all(importlib.util.find_spec(name) is not None for name in needed)


def run_pipeline(
    folder: Path,
    events: int,
    step: Callable[[str], None],
    today: date | None = None,
    *,
    lake: bool = False,
) -> LoadReport:
    """Load the events of two days, run a report on the tables, trace its columns, count."""
    began = time.monotonic()
    today = today or datetime.now(UTC).date()
    shop = DemoServer(folder, lake=lake)
    acknowledged = 0
    try:
        step("starting `headwater up`")
        shop.start()
        for day, made in enumerate((first_day(events, today), second_day(events, today)), 1):
            step(f"day {day}: posting {len(made)} events of a shop: one by one, as an array, in bulk")
            acknowledged += shop.send(made)
            step(f"day {day}: waiting until they are rows in {'Delta Lake' if lake else 'DuckDB'}")
            _wait(shop)
        step("a PySpark job writes a report on them: `headwater lineage run report_job.py`")
        target = _make_report(shop.url, folder, tables_place(folder, lake), order_table(today))
        step("asking the graph for the origins of the report's columns: `headwater lineage show`")
        trace = _trace_report(shop.config, target)
    finally:
        shop.stop(seconds=STOP_SECONDS)
    report = _count(shop.config, acknowledged)
    report.trace = trace
    report.seconds = time.monotonic() - began
    return report


def _make_report(url: str, folder: Path, tables: Path, table: str) -> Path:
    """Run the script on a table as its author would; return the report's folder."""
    report = folder / "report"
    done = _headwater(
        "lineage", "run", str(SCRIPT), str(tables), table, str(report),
        OPENLINEAGE_URL=url, OPENLINEAGE_NAMESPACE="shop",
    )  # fmt: skip
    if done.returncode:
        raise HeadwaterError("The report of the demo failed.", hint=f"Its output: {done.stderr[-2000:]}")
    return report


def _trace_report(config: Path, report: Path) -> list[str]:
    """Trace each column of the report, as a tree, to the JSON pointer in the event file."""
    deadline = time.monotonic() + INGEST_TIMEOUT_SECONDS
    found: list[str] = []
    for column in COLUMNS:
        while True:
            arguments = ("lineage", "show", "-n", "file", str(report), "--column", column, "--up", "--direct")
            done = _headwater("-c", str(config), *arguments)
            # Lineage of the pipeline and of the report arrive independently.
            if done.returncode == 0 and "incoming" in done.stdout:
                found += ["", *done.stdout.splitlines()]
                break
            if time.monotonic() > deadline:
                raise HeadwaterError(
                    f"The graph of the demo has no origin of {column}.",
                    hint=f"Its output: {done.stdout[-2000:]}{done.stderr[-2000:]}",
                )
            time.sleep(0.5)
    return found


def _headwater(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def trace_address(url: str, folder: Path) -> str:
    """The address of the page that traces the report's revenue to the events."""
    report = str((folder / "report").resolve())
    place = urlencode({"namespace": "file", "name": report, "column": TRACED})
    return f"{url}/lineage?{place}"


def show_page(folder: Path, *, with_pipeline: bool, lake: bool) -> None:
    """Serve the page on the demo's data until Ctrl-C; the pipeline, and so Spark, only where asked for."""
    shop = DemoServer(folder, *(() if with_pipeline else ("serve", "--graph")), lake=lake)
    try:
        shop.start()
        echo(f"\nThe trace of the report's revenue: {trace_address(shop.url, folder)}")
        if with_pipeline:
            secret = TOKEN["client_secret"]
            echo(f"send more events: curl '{shop.url}/api/v1/event?token={secret}' \\")
            echo("""  -H 'Content-Type: application/json' -d '{"event_type": "Order", "amount": 5}'""")
            echo(typeable("what becomes of them: `headwater status`", str(shop.config)))
        echo("Ctrl-C ends the demo.")
        while shop.is_running:
            time.sleep(0.2)
    except KeyboardInterrupt:
        echo()
    finally:
        shop.stop(seconds=STOP_SECONDS)


def _wait(shop: DemoServer) -> None:
    """Wait until every event file is loaded."""
    folder = EventFolder(load(shop.config).events_dir)
    deadline = time.monotonic() + PIPELINE_SECONDS
    while folder.active_files() or folder.rotated_files():
        if not shop.is_running or time.monotonic() > deadline:
            raise HeadwaterError(
                "The pipeline of the demo did not load the events.", hint=f"Its output: {shop.tail()}"
            )
        time.sleep(0.1)


def _count(config: Path, acknowledged: int) -> LoadReport:
    settings = load(config)
    stat = stat_events(settings.events_dir, time.time())
    reasons = [error.error for error in DestinationRejects(settings.events_dir).read("warehouse")]
    warehouse = load_destination(settings.destinations[0])
    warehouse.connect()
    try:
        totals = warehouse.totals()
        tables = [
            TableReport(
                name,
                total.rows,
                {each.name: each.sql_type for each in found.columns.values()},
                warehouse.version(name),
            )
            for name, total in sorted(totals.items())
            if (found := warehouse.table(name)) is not None
        ]
    finally:
        warehouse.close()
    skipped = sum(each.skipped for each in stat.destinations)
    unmapped = sum(each.unmapped for each in stat.destinations)
    rows = sum(table.rows for table in tables)
    return LoadReport(acknowledged, rows, skipped, len(reasons), unmapped, tables, sorted(set(reasons)))


def print_report(report: LoadReport, folder: Path | None) -> None:
    """Print the tables with their types, then the counts, then the trace."""
    for table in report.tables:
        echo()
        rows = list(table.columns.items())
        version = f", version {table.version}" if table.version else ""
        echo(format_table((f"table {table.name}", f"{table.rows:,} rows{version}"), rows))
    echo()
    numbers = [
        ("acknowledged", report.acknowledged, "answered 200, hence on disk (G1)"),
        ("rows", report.rows, "loaded, exactly once (G5)"),
        ("skipped", report.skipped, "their template gave no table"),
        ("rejected", report.rejected, "see `headwater rejects` (G6)"),
    ]
    echo(format_table(("events", "", ""), numbers))
    echo(
        f"acknowledged {'=' if report.adds_up else 'IS NOT'} rows + skipped + rejected; "
        f"{report.unmapped:,} value(s) that fit no column are in _unmapped_data"
    )
    for reason in report.reasons:
        echo(f"rejected: {reason}")
    echo("\norigins of the report's columns")
    for line in report.trace:
        echo(line)
    echo(f"\n{report.seconds:.0f} seconds.")
    if folder is not None:
        echo(f"configuration  {folder / 'headwater.yml'}   (try: headwater -c … status)")
        for place in filter(Path.exists, (tables_place(folder, lake) for lake in (False, True))):
            echo(f"tables         {place}")
        echo(f"page           headwater -c {folder / 'headwater.yml'} up   (then open its address)")
        echo(f"output         {folder / 'up.txt'}")

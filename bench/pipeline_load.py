"""Our side of `make bench-pipeline`: a pipeline in a process of its own, which prints the cost of each step.

    python -m bench.pipeline_load PLAN

PLAN is JSON: {"folder": …, "destination": {…}, "steps": [{"label": …, "file": …, "enrichment": […]}, …]}. One
Spark session runs all steps, each a cycle over one file; one line of JSON for the start and for each.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psutil

from bench.usage import cpu_seconds, tree
from headwater.log.files.layout import rotated_name
from headwater.pipeline.batch.cycle import run_cycle
from headwater.pipeline.spark.session import start
from headwater.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Done", "Plan", "Step"]


class Step(msgspec.Struct):
    """One file, for one cycle."""

    label: str
    file: str
    enrichment: list[dict[str, str]] = []
    template: str = ""
    """The table of each event; empty: one table."""


class Plan(msgspec.Struct):
    """What to do, where, and into which destination."""

    folder: str
    destination: dict[str, Any]
    steps: list[Step]
    memory: str = ""


class Done(msgspec.Struct):
    """What a step cost. The first is the start of Spark."""

    label: str
    seconds: float
    cpu: float
    rows: int = 0
    columns: int = 0
    times: dict[str, float] = {}
    python_bytes: int = 0
    jvm_bytes: int = 0
    heap_bytes: int = 0
    """What lives on the JVM's heap after a collection."""
    peak_bytes: int = 0
    """The most that Python and the JVM had together during the step; the sampling process sets it."""


def main(text: str) -> None:
    plan = msgspec.json.decode(text, type=Plan)
    folder = Path(plan.folder)
    incoming = folder / "events" / "incoming"
    incoming.mkdir(parents=True, exist_ok=True)
    began, cpu = time.monotonic(), cpu_seconds(os.getpid())
    spark = start(_settings(plan, plan.steps[0]).pipeline, log_file=folder / "spark.log")
    _report(Done("start", time.monotonic() - began, cpu_seconds(os.getpid()) - cpu))
    for number, step in enumerate(plan.steps):
        at = datetime(2026, 11, 16, tzinfo=UTC) + timedelta(minutes=5 * number)
        os.link(step.file, incoming / rotated_name("incoming", "web", at))
        _report(_run(step, _settings(plan, step), spark))


def _run(step: Step, settings: Settings, spark: SparkSession) -> Done:
    began, cpu = time.monotonic(), cpu_seconds(os.getpid())
    report = run_cycle(settings, spark)
    if not report.is_complete:
        raise SystemExit(f"not everything was loaded: {report.errors}")
    seconds, used = time.monotonic() - began, cpu_seconds(os.getpid()) - cpu
    jvm: Any = spark._jvm
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    rows = sum(each.rows for file in report.files for each in file.destinations)
    sizes = {process.pid: process.memory_info().rss for process in tree(os.getpid())}
    own = sizes.pop(os.getpid())
    return Done(
        step.label,
        seconds,
        used,
        rows,
        times=report.times.seconds,
        python_bytes=own,
        jvm_bytes=sum(sizes.values()),
        heap_bytes=runtime.totalMemory() - runtime.freeMemory(),
    )


def _settings(plan: Plan, step: Step) -> Settings:
    own: dict[str, Any] = {"enrichment": step.enrichment}
    if step.template:
        own |= {"table_name_template": step.template, "max_new_tables_per_hour": 10_000}
    raw = {
        "data_dir": plan.folder,
        "tokens": [{"id": "web", "server_secret": "bench"}],
        "pipeline": {"memory": plan.memory, "master": f"local[{psutil.cpu_count()}]"},
        "destinations": [plan.destination | own],
    }
    return msgspec.convert(raw, Settings)


def _report(done: Done) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])

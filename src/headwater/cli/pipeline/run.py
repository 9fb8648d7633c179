"""`headwater pipeline run`: loads complete event files into the destinations."""

from __future__ import annotations

import logging
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from headwater.cli.options import as_json, with_master, with_settings
from headwater.cli.output import progress
from headwater.cli.pipeline.backfill import backfill_command
from headwater.cli.pipeline.report import print_report
from headwater.cli.pipeline.spark import start_spark, with_lineage
from headwater.cli.pipeline.stream import stream
from headwater.cli.process import configure_logging, on_stop_signal
from headwater.errors import HeadwaterError, SettingsError
from headwater.log.files.archive import clean_archive
from headwater.log.files.file_status import LastCycle
from headwater.log.files.incoming import finish_interrupted
from headwater.pipeline.batch.cycle import batch_files
from headwater.pipeline.spark.session import SparkGone, require_running
from headwater.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.pipeline.load_report import Report

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5  # how often --follow looks for new files
GATHER_SECONDS = 10.0  # between two cycles of --follow, so that files of many tokens share a cycle
RETRY_SECONDS = 60.0  # after which --follow tries files again that could not be loaded
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class Duration(click.ParamType[float]):
    """`30s`, `5m`, `1.5h`; a number alone is seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float | int):
            return float(value)
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(value).strip())
        if match is None or not float(match[1]):
            self.fail(f"{value!r} is not a time such as 30s, 5m or 1h.", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


@click.group("pipeline")
def command() -> None:
    """Load events into tables."""


@command.command("run")
@click.option("--every", type=Duration(), help="Keep running: a cycle every `30s`, `5m` or `1h`.")
@click.option("--follow", is_flag=True, help="Keep running: load each file as soon as it is complete.")
@with_lineage
@as_json
@with_settings
@with_master
@click.pass_context
def run(
    ctx: click.Context,
    settings: Settings,
    every: float | None,
    follow: bool,
    lineage: bool | None,
    as_json: bool,
) -> None:
    """Load all complete event files into the destinations.

    A running server completes the file that it writes after `events.rotation_minutes`. Files that cannot be
    loaded are kept, and the next cycle tries them again; the exit code is 1 if there are any. SIGTERM or
    Ctrl-C stops --every and --follow after the cycle in progress; a second signal exits at once, which
    neither loses nor doubles an event. If Spark itself dies, the exit code is 1.
    """
    configure_logging(settings)
    if every is not None and follow:
        raise click.UsageError("--every and --follow exclude each other.")
    if not settings.destinations:
        raise SettingsError(["`destinations` is empty; there is nowhere to load events into"])
    if not any(destination.is_batch for destination in settings.destinations):
        text = "no destination is in batch mode; `headwater pipeline stream` serves those in stream mode"
        raise SettingsError([text])
    cycles = _Cycles(settings, as_json, lineage)
    if follow:
        cycles.follow()
    elif every is not None:
        cycles.repeat(every)
    else:
        ctx.exit(0 if cycles.run() else 1)


command.add_command(stream)
command.add_command(backfill_command)


class _Cycles:
    """Batch cycles of one process, which share a Spark session."""

    def __init__(self, settings: Settings, as_json: bool, lineage: bool | None = None) -> None:
        self._settings = settings
        self._as_json = as_json
        self._lineage = lineage
        self._spark: SparkSession | None = None
        self._cycles = 0
        self._loaded = False  # whether the last cycle had files to load
        self._stop = threading.Event()

    def run(self) -> bool:
        """Run one cycle; return whether every waiting file is loaded."""
        settings = self._settings
        self._cycles += 1
        finish_interrupted(settings.events_dir)
        report = self._load() if batch_files(settings) else None
        self._print(report)
        removed = clean_archive(settings.events_dir, settings.events.archive_days, time.time())
        if removed:
            log.info("Removed %d archived files, older than `events.archive_days`.", removed)
        return report is None or report.is_complete

    def repeat(self, every_seconds: float) -> None:
        """Run a cycle every so many seconds, until a signal."""
        on_stop_signal(self._stop.set, "after the cycle in progress")
        while not self._stop.is_set():
            began = time.monotonic()
            self._try()
            self._stop.wait(max(0.0, every_seconds - (time.monotonic() - began)))

    def follow(self) -> None:
        """Run a cycle whenever a file becomes complete, until a signal.

        Spark starts before the first file is there, so that its start delays no row.
        """
        on_stop_signal(self._stop.set, "after the cycle in progress")
        self._session()
        while not self._stop.is_set():
            began = time.monotonic()
            self._try()
            left = {file.path for file in batch_files(self._settings)}
            gathered = began + (GATHER_SECONDS if self._loaded else 0.0)
            while not self._stop.wait(POLL_SECONDS):
                now = time.monotonic()
                if now >= began + RETRY_SECONDS:
                    break
                if now >= gathered and any(file.path not in left for file in batch_files(self._settings)):
                    break

    def _try(self) -> None:
        """Run a cycle; an error is logged, and the next cycle tries the files again."""
        self._loaded = False
        try:
            self.run()
        except SparkGone:
            raise  # No later cycle of this process can succeed.
        except HeadwaterError as error:
            log.error("The cycle failed: %s", error)
        except Exception:
            log.exception("The cycle failed; the next one tries again.")

    def _load(self) -> Report:
        from headwater.pipeline.batch.cycle import run_cycle

        settings = self._settings
        self._loaded = True
        began = time.monotonic()
        last = LastCycle(at=time.time(), seconds=0.0, files=len(batch_files(settings)))
        try:
            spark = self._session()
            with progress("loading") as update:
                report = run_cycle(settings, spark, update)
            last.files, last.errors = len(report.files), report.errors
            last.done = sum(file.archived for file in report.files)
            return report
        except Exception as error:
            last.errors = [str(error) or type(error).__name__]
            raise
        finally:
            last.seconds = time.monotonic() - began
            last.save(settings.events_dir)

    def _session(self) -> SparkSession:
        if self._spark is None:
            self._spark = start_spark(self._settings, self._lineage, "pipeline")
        else:
            require_running(self._spark)
        return self._spark

    def _print(self, report: Report | None) -> None:
        if report is None and self._cycles > 1:
            return
        if self._as_json:
            # One line a cycle, for programs that read along.
            click.echo(msgspec.json.encode(report or {"files": []}).decode())
        elif report is not None:
            print_report(report)
        else:
            click.echo("no complete files are waiting")

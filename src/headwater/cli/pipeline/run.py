"""`headwater pipeline`: what has gathered in event files becomes rows of tables."""

from __future__ import annotations

import logging
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from headwater.cli.options import as_json, with_master, with_settings
from headwater.cli.output import progress
from headwater.cli.pipeline.backfill import backfill_command
from headwater.cli.pipeline.own_lineage import tell_own_lineage, with_lineage
from headwater.cli.pipeline.report import print_report
from headwater.cli.pipeline.stream import stream
from headwater.cli.process import configure_logging, on_stop_signal
from headwater.errors import HeadwaterError, SettingsError
from headwater.log.files.archive import clean_archive
from headwater.log.files.file_status import LastCycle
from headwater.log.files.incoming import finish_interrupted
from headwater.pipeline.modes import batch_files
from headwater.pipeline.spark.session import SparkGone, require_running, start
from headwater.settings import Settings

if TYPE_CHECKING:
    from headwater.pipeline.batch.cycle import Report

__all__ = ["Duration", "command"]

log = logging.getLogger(__name__)

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
    """Turn events into rows of tables."""


@command.command("run")
@click.option("--every", type=Duration(), help="Go on for ever: a cycle every `30s`, `5m` or `1h`.")
@with_lineage
@as_json
@with_settings
@with_master
@click.pass_context
def run(
    ctx: click.Context, settings: Settings, every: float | None, lineage: bool | None, as_json: bool
) -> None:
    """Load all complete event files into the destinations.

    Files that a running server still writes are left until they are complete (`events.rotation_minutes`).
    Whatever cannot be loaded is kept and tried again by the next cycle; exit code 1 if there is such a thing.
    SIGTERM or Ctrl-C ends it after the step under way; a second one at once, and nothing is lost or doubled
    by that either. If Spark itself dies, it ends with exit code 1.
    """
    configure_logging(settings)
    if not settings.destinations:
        raise SettingsError(["`destinations` is empty; there is nowhere to load events into"])
    if not any(destination.is_batch for destination in settings.destinations):
        text = "no destination is in batch mode; `headwater pipeline stream` serves those in stream mode"
        raise SettingsError([text])
    cycles = _Cycles(settings, as_json, lineage)
    if every is None:
        ctx.exit(0 if cycles.once() else 1)
    cycles.forever(every)


command.add_command(stream)
command.add_command(backfill_command)


class _Cycles:
    """Cycles of one process. Spark starts when there is something to do, and stays."""

    def __init__(self, settings: Settings, as_json: bool, lineage: bool | None = None) -> None:
        self._settings = settings
        self._as_json = as_json
        self._lineage = lineage
        self._spark: Any = None
        self._cycles = 0
        self._stop = threading.Event()

    def once(self) -> bool:
        """One cycle; whether everything is loaded that was there."""
        settings = self._settings
        self._cycles += 1
        finish_interrupted(settings.events_dir)
        report = self._load() if batch_files(settings) else None
        self._tell(report)
        removed = clean_archive(settings.events_dir, settings.events.archive_days, time.time())
        if removed:
            log.info("Removed %d files of the archive, older than `events.archive_days`.", removed)
        return report is None or report.is_complete

    def _load(self) -> Report:
        settings = self._settings
        began = time.monotonic()
        last = LastCycle(at=time.time(), seconds=0.0, files=len(batch_files(settings)))
        try:
            from headwater.pipeline.batch.cycle import run_cycle

            if self._spark is not None:
                require_running(self._spark)
            else:
                log_file = Path(settings.data_dir) / "spark.log"
                click.echo(f"starting Spark on {settings.pipeline.master} ({log_file}) ...", err=True)
                self._spark = start(settings.pipeline, log_file=log_file)
                tell_own_lineage(settings, self._spark, self._lineage, "pipeline")
            with progress("loading") as tell:
                report = run_cycle(settings, self._spark, tell)
            last.files, last.errors = len(report.files), report.errors
            last.done = sum(file.archived for file in report.files)
            return report
        except Exception as error:
            last.errors = [str(error) or type(error).__name__]
            raise
        finally:
            last.seconds = time.monotonic() - began
            last.save(settings.events_dir)

    def _tell(self, report: Report | None) -> None:
        if report is None and self._cycles > 1:
            return
        if self._as_json:
            # one line a cycle, so that a program can read them as they come
            click.echo(msgspec.json.encode(report or {"files": []}).decode())
        elif report is not None:
            print_report(report)
        else:
            click.echo("no complete files are waiting")

    def forever(self, every_seconds: float) -> None:
        """Cycle after cycle, until a signal comes. A cycle that fails is told and tried again."""
        on_stop_signal(self._stop.set, "after the cycle in progress")
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self.once()
            except SparkGone:
                raise  # no cycle of this process will succeed any more
            except HeadwaterError as error:
                log.error("The cycle failed: %s", error)
            except Exception:
                log.exception("The cycle failed; it is tried again.")
            self._stop.wait(max(0.0, every_seconds - (time.monotonic() - began)))

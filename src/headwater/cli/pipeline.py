"""`headwater pipeline`: run, stream and backfill load events into tables; verify reads them."""

from __future__ import annotations

import importlib.util
import ipaddress
import logging
import signal
import threading
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from headwater.cli.options import Duration, Moment, as_json, with_master, with_settings
from headwater.cli.output import echo, format_seconds, format_table, json_text, progress
from headwater.cli.server.process import announce, announce_ready, configure_logging
from headwater.cli.server.signals import Signals
from headwater.errors import HeadwaterError, SettingsError
from headwater.formats.printable import printable_line
from headwater.log.backup import refuse_half_restored
from headwater.log.files.archive import clean_archive
from headwater.log.files.archive_counts import keep_counts
from headwater.log.files.file_status import STOPPED, LastCycle, PipelineNow
from headwater.log.files.incoming import finish_interrupted
from headwater.log.files.verify import verify_events
from headwater.log.orphans import (
    forget_destination,
    has_left_over_files,
    left_over_queues,
    orphans,
    refuse_orphans,
)
from headwater.pipeline.batch.cycle import batch_files, run_cycle
from headwater.pipeline.spark.class_archive import make_in_background
from headwater.pipeline.spark.session import SparkGone, require_running
from headwater.settings import GatewaySettings, Settings
from headwater.system.installation import install_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.pipeline.load_report import Report

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5  # how often --follow looks for new files, and `stream` for ended streams
GATHER_SECONDS = 10.0  # between two cycles of --follow, so that files of many tokens share a cycle
RETRY_SECONDS = 60.0  # after which --follow tries files again that could not be loaded
STOP_SECONDS = 280.0  # less than supervisors give: the process itself says what hangs
MAX_LISTED = 20  # columns without room that a report names
LINEAGE_SPOOL = "lineage-spool"
# A staging folder exists for one cycle: it is cut from names, so that staged files are one dataset.
STAGING_FOLDER = r"(?P<remove>/cycle-[0-9a-f]{32}(/[0-9a-f]{32})?)(?=/)"

with_lineage = click.option(
    "--lineage/--no-lineage",
    "lineage",
    default=None,
    help="Send lineage of the tables, or not; default: `pipeline.lineage.enabled`.",
)


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
    Ctrl-C stops it after the load in progress, without --every and --follow with exit code 1 if files may
    be left; Ctrl-C then exits at once, which neither loses nor doubles an event. A stop that takes longer
    than 280 s is ended, with exit code 1. If Spark itself dies, the exit code is 1.
    """
    configure_logging(settings)
    if every is not None and follow:
        raise click.UsageError("--every and --follow exclude each other.")
    if not settings.destinations:
        raise SettingsError(["`destinations` is empty; there is nowhere to load events into"])
    refuse_half_restored(Path(settings.data_dir))
    refuse_orphans(settings)
    if not any(each.is_batch for each in settings.destinations) and not has_left_over_files(settings):
        text = "no destination is in batch mode; `headwater pipeline stream` serves those in stream mode"
        raise SettingsError([text])
    cycles = _Cycles(settings, as_json, lineage)
    if follow:
        cycles.follow()
    elif every is not None:
        cycles.repeat(every)
    else:
        ctx.exit(0 if cycles.once() else 1)


@command.command("stream")
@with_lineage
@with_settings
@with_master
def stream(settings: Settings, lineage: bool | None) -> None:
    """Load events into the destinations in stream mode, as they arrive.

    SIGTERM or Ctrl-C stops it after the micro-batches in progress; Ctrl-C then exits at once, which
    neither loses nor doubles an event. A destination that cannot be reached is retried without limit and
    delays no other one; its events stay in its queue. If Spark itself dies, the exit code is 1.
    """
    configure_logging(settings)
    refuse_half_restored(Path(settings.data_dir))
    wanted = [each.id for each in settings.destinations if each.is_stream]
    if not wanted:
        raise SettingsError(["no destination is in stream mode; set `mode: stream` in one of `destinations`"])
    refuse_orphans(settings)
    stopping = threading.Event()
    _stop_signals(stopping, "after the micro-batches in progress")
    from headwater.pipeline.left_overs import LeftOvers
    from headwater.pipeline.stream.streams import Streams

    spark = start_spark(settings, lineage, "stream")
    finish_interrupted(settings.events_dir)
    left_overs = LeftOvers(settings, spark, stopping)
    left_overs.load()  # these events are older than those of the streams
    with Streams(settings, spark) as streams:
        make_in_background()  # for the next start
        announce_ready(settings, f"streaming into {', '.join(wanted)}")
        while not stopping.wait(POLL_SECONDS):
            streams.tend()
            left_overs.load()
    logger.info("Stopped.")


@command.command("backfill")
@click.option("--destination", "id", required=True, help="Id of the destination to load into.")
@click.option("--since", type=Moment(), required=True, help="Load events from this time on.")
@click.option(
    "--until", type=Moment(), help="... and before this; default: when its own queue began, or now."
)
@click.option("--from", "origin", help="`incoming`, or the stream destination whose archive to load.")
@click.option(
    "--token",
    "former",
    multiple=True,
    help="Also events of a token that had this id or client secret before.",
)
@with_settings
@with_master
@click.pass_context
def backfill(
    ctx: click.Context,
    settings: Settings,
    id: str,
    since: datetime,
    until: datetime | None,
    origin: str | None,
    former: tuple[str, ...],
) -> None:
    """Load archived events into a destination that was added later, or lost its tables.

    Times are those of the events' `_timestamp`. Events that the destination has, by whichever way, are left
    out: its ledger knows them. Exit code 1 if a file could not be loaded.
    """
    configure_logging(settings)
    refuse_half_restored(Path(settings.data_dir))
    destination = next((each for each in settings.destinations if each.id == id), None)
    if destination is None:
        known = ", ".join(each.id for each in settings.destinations) or "none"
        raise HeadwaterError(f"No destination has the id {id}.", hint=f"Known: {known}.")
    from headwater.pipeline.batch import backfill as batch
    from headwater.pipeline.batch.unpacked_file import Selection

    files = batch.choose(settings, destination, since, origin or "", former)
    if not files:
        echo(
            f"the archive has no files for {id} that were completed after {since:%Y-%m-%d %H:%M:%S} UTC; "
            "name another archive with --from, or a former token with --token"
        )
        return
    limit = until or batch.default_until(settings, destination, files)
    if until is None and limit is not None:
        echo(
            f"events from {limit:%Y-%m-%d %H:%M:%S} UTC on are left out: {id} has had a queue since; --until"
        )
    selection = Selection(since, limit, former)
    is_complete, loaded, stopping = True, 0, threading.Event()
    with closing(_stop_signals(stopping, "after the file in progress")):
        spark = start_spark(settings)
        with progress("loading") as update:
            for report in batch.backfill(settings, spark, destination, files, selection, update, stopping):
                _print_report(report)
                is_complete = is_complete and report.is_complete
                loaded += len(report.files)
    if stopping.is_set():
        is_complete = False
        echo("stopped before the end of the archive; the same command goes on, and doubles nothing")
    elif not loaded:
        ends = f" and before {limit:%Y-%m-%d %H:%M:%S}" if limit else ""
        echo(
            f"none of {len(files):,} file(s) has an event for {id} since {since:%Y-%m-%d %H:%M:%S}{ends} "
            "UTC that it does not have by another way; give other times, or a former token with --token"
        )
    ctx.exit(0 if is_complete else 1)


@command.command("verify")
@as_json
@with_settings
@click.pass_context
def verify(ctx: click.Context, settings: Settings, as_json: bool) -> None:
    """Read every stored event file and compare each line with its checksum.

    That is: the files being written, those that wait, the archive, and the rejects of destinations. Works
    beside running processes. Exit code 1 if a line is damaged, missing or doubled. `headwater log verify`
    reads the queues.
    """
    files = list(verify_events(settings.events_dir))
    bad = [file for file in files if file.problem]
    if as_json:
        content = [
            {
                "file": str(file.path),
                "lines": file.lines,
                "damaged": file.damaged,
                "checksums": file.is_checked,
                "problem": file.problem,
            }
            for file in files
        ]
        echo(json_text(content))
    else:
        rows = [
            (
                str(file.path.relative_to(settings.events_dir)),
                file.lines - file.damaged,
                file.damaged,
                file.problem or ("ok" if file.is_checked else "ok (an earlier release: no checksums)"),
            )
            for file in files
        ]
        if rows:
            echo(format_table(("file", "whole lines", "damaged", ""), rows))
        echo(f"{len(files):,} file(s) read, {len(bad):,} damaged")
    ctx.exit(1 if bad else 0)


@command.command("forget")
@click.argument("destination")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json
@with_settings
def forget(settings: Settings, destination: str, yes: bool, as_json: bool) -> None:
    """Give up the events that wait for a destination which was removed from the settings.

    They are not loaded there; other destinations still get theirs. Server and pipeline of settings that have
    the destination must not be running.
    """
    refuse_half_restored(Path(settings.data_dir))
    if any(each.id == destination for each in settings.destinations):
        raise HeadwaterError(
            f"The settings have the destination {destination}.",
            hint="Remove it there first, or change its id.",
        )
    found = next((each for each in orphans(settings) if each.destination == destination), None)
    if found is None:
        echo(json_text({"files": 0, "events": 0}) if as_json else f"nothing waits for {destination}")
        return
    if not yes:
        click.confirm(
            f"{found.files:,} event file(s) and {found.events:,} event(s) of a queue will not be loaded into "
            f"{destination}. Give them up?",
            abort=True,
            err=True,
        )
    forget_destination(settings.events_dir, destination)
    counts = {"files": found.files, "events": found.events}
    text = f"{found.files:,} event file(s) and {found.events:,} event(s) of a queue were given up"
    echo(json_text(counts) if as_json else text)


def _stop_signals(stopping: threading.Event, order: str) -> Signals:
    return Signals(stopping.set, order, stop_seconds=STOP_SECONDS)


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
        self._doing = ""

    def run(self) -> bool:
        """Run one cycle; return whether every waiting file is loaded."""
        settings = self._settings
        self._cycles += 1
        finish_interrupted(settings.events_dir)
        if left_over_queues(settings):
            from headwater.pipeline.left_overs import load_left_over_queues

            load_left_over_queues(settings, self._session(), self._stop)
        report = self._load() if batch_files(settings) else None
        self._print(report)
        keep_counts(settings.events_dir, time.time())
        removed = clean_archive(settings.events_dir, settings.events.archive_days)
        if removed:
            logger.info("Removed %d archived files, older than `events.archive_days`.", removed)
        return report is None or report.is_complete

    def once(self) -> bool:
        """Run one cycle, until a signal; return whether every waiting file is loaded."""
        with closing(_stop_signals(self._stop, "after the load in progress")):
            return self.run() and not self._stop.is_set()

    def repeat(self, every_seconds: float) -> None:
        """Run a cycle every `every_seconds`, until a signal."""
        _stop_signals(self._stop, "after the load in progress")
        announce_ready(self._settings, f"the pipeline loads files every {format_seconds(every_seconds)}")
        while not self._stop.is_set():
            began = time.monotonic()
            self._try()
            self._now(f"waiting for the next cycle, every {format_seconds(every_seconds)}")
            self._stop.wait(max(0.0, every_seconds - (time.monotonic() - began)))
        self._now(STOPPED)

    def follow(self) -> None:
        """Run a cycle whenever files have become complete, until a signal.

        Spark starts before the first file is there, so that its start delays no row.
        """
        _stop_signals(self._stop, "after the load in progress")
        self._now("starting Spark")
        self._session()
        announce_ready(self._settings, "the pipeline loads each file as soon as it is complete")
        while not self._stop.is_set():
            began = time.monotonic()
            # Not those that become complete during the cycle: they need not wait for a retry.
            tried = {file.path for file in batch_files(self._settings)}
            self._try()
            self._now("waiting for complete files")
            gathered = began + (GATHER_SECONDS if self._loaded else 0.0)
            while not self._stop.wait(POLL_SECONDS):
                now = time.monotonic()
                if now >= began + RETRY_SECONDS:
                    break
                if now >= gathered and any(file.path not in tried for file in batch_files(self._settings)):
                    break
        self._now(STOPPED)

    def _now(self, doing: str) -> None:
        """Record what the process does, for `headwater status`."""
        if doing != self._doing:
            self._doing = doing
            try:
                PipelineNow(doing=doing, at=time.time()).save(self._settings.events_dir)
            except OSError as error:  # a full disk: it is only displayed
                logger.warning("The state of the pipeline could not be recorded: %s.", error)

    def _try(self) -> None:
        """Run a cycle; an error is logged, and the next cycle tries the files again."""
        self._loaded = False
        try:
            self.run()
        except SparkGone:
            raise  # No later cycle of this process can succeed.
        except HeadwaterError as error:
            logger.error("The cycle failed: %s", error)
        except Exception:
            logger.exception("The cycle failed; the next one tries again.")

    def _load(self) -> Report:
        settings = self._settings
        self._loaded = True
        began = time.monotonic()
        last = LastCycle(at=time.time(), seconds=0.0, files=len(batch_files(settings)))
        try:
            self._now("starting Spark" if self._spark is None else f"loading {last.files:,} file(s)")
            spark = self._session()
            self._now(f"loading {last.files:,} file(s)")
            with progress("loading") as update:
                report = run_cycle(settings, spark, update, stopping=self._stop)
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
            make_in_background()  # this process stays: its next start is to be quick
        return self._spark

    def _print(self, report: Report | None) -> None:
        if report is None and self._cycles > 1:
            return
        if self._as_json:
            # One line per cycle, for programs that read the output as it is written.
            echo(msgspec.json.encode(report or {"files": []}).decode())
        elif report is not None:
            _print_report(report)
        else:
            echo("no complete files are waiting")


def _print_report(report: Report) -> None:
    """Print loads by destination and table, the counts of each destination, and the errors."""
    pairs: dict[tuple[str, str], list[int]] = {}
    counts: dict[str, list[int]] = {}
    in_part: dict[str, list[int]] = {}
    for file in report.files:
        for destination in file.destinations:
            mine = [destination.events, destination.rows, destination.skipped, destination.rejected]
            if not destination.is_done:  # its events are counted when all its tables have them
                mine = [1, destination.rows]
            sums = (counts if destination.is_done else in_part).setdefault(
                destination.destination, [0] * len(mine)
            )
            sums[:] = [total + each for total, each in zip(sums, mine, strict=True)]
            for pair in destination.pairs:
                row = pairs.setdefault((destination.destination, pair.table), [0, 0, 0, 0])
                added = (not pair.skipped and not pair.error, pair.rows * (not pair.skipped), pair.unmapped)
                for i, each in enumerate((*added, bool(pair.error))):
                    row[i] += each
    if pairs:
        head = ("destination", "table", "loads", "rows", "unmapped values", "not loaded")
        echo(format_table(head, [(*key, *row) for key, row in sorted(pairs.items())]))
    for id, (events, rows, skipped, rejected) in counts.items():
        echo(f"{id}: {events:,} events = {rows:,} rows + {skipped:,} skipped + {rejected:,} rejected")
    for id, (files, rows) in in_part.items():
        echo(f"{id}: {files:,} file(s) not loaded whole, {rows:,} rows of them are stored")
    for table, names in report.without_room.items():
        listed = ", ".join(map(printable_line, names[:MAX_LISTED]))
        more = " and further ones" if len(names) > MAX_LISTED else ""
        limits = "`max_columns`, `max_new_columns`"
        echo(f"{table}: no room for {listed}{more}; their values are in _unmapped_data ({limits})")
    archived = sum(file.archived for file in report.files)
    echo(f"{archived:,} of {len(report.files):,} file(s) done")
    for damage in report.damaged:
        click.secho(f"damaged: {printable_line(damage)}", fg="red", err=True)
    for error in report.errors:
        click.secho(f"not loaded: {printable_line(error)}", fg="red", err=True)


# --- Spark, and the lineage of the tables --------------------------------------------------------------


def start_spark(settings: Settings, lineage: bool | None = False, application: str = "") -> SparkSession:
    """Start Spark, with its log in the data folder; `lineage` as for `install_pipeline_lineage`."""
    from headwater.pipeline.spark.session import start

    log_file = Path(settings.data_dir) / "spark.log"
    announce(settings, f"starting Spark on {settings.pipeline.master} ({log_file}) ...")
    before = signal.getsignal(signal.SIGINT)
    spark = start(settings.pipeline, log_file=log_file)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)  # Spark's own handler ends the jobs, and with them the load
    install_pipeline_lineage(settings, spark, lineage, application)
    return spark


def install_pipeline_lineage(
    settings: Settings, spark: SparkSession, wanted: bool | None, application: str
) -> bool:
    """Install lineage into the session if `wanted` or, for None, if the settings enable it."""
    own = settings.pipeline.lineage
    if wanted is None:
        wanted = own.enabled if own.enabled is not None else bool(settings.graph.enabled)
    url = own.url or gateway_url(settings.gateway)
    if not wanted:
        return False
    if importlib.util.find_spec("openlineage") is None:
        logger.warning("No lineage of the pipeline's tables: run `%s`.", install_command("pipeline"))
        return False
    if not url:
        logger.warning(
            "No lineage of the pipeline's tables: `gateway.port` is 0 or `gateway.tls` is set, so the "
            "gateway's address is unknown. Set `pipeline.lineage.url`."
        )
        return False
    import headwater.lineage

    logging.getLogger("openlineage").setLevel(logging.WARNING)  # It logs each new client.
    key = own.api_key or ("" if own.url else _unbound_key(settings.gateway))
    transport = {
        "type": "headwater.spool.SpoolTransport",
        "path": str((Path(settings.data_dir) / LINEAGE_SPOOL).absolute()),
        "url": url,
        **({"api_key": key} if key else {}),
    }
    headwater.lineage.install(
        spark,
        transport=transport,
        namespace=own.namespace,
        app_name=application,
        job_name_from_description=True,
        dataset_remove_path=STAGING_FOLDER,
    )
    return True


def _unbound_key(gateway: GatewaySettings) -> str:
    """Return the first key that is good for all namespaces; empty if there is none."""
    keys = (
        each if isinstance(each, str) else "" if each.namespaces else each.key for each in gateway.api_keys
    )
    return next(filter(None, keys), "")


def gateway_url(gateway: GatewaySettings) -> str:
    """The gateway's address on this machine; empty if the settings do not determine it."""
    if not gateway.port or gateway.tls is not None:
        return ""
    host = gateway.host
    try:
        address = ipaddress.ip_address(host)
        if address.is_unspecified:  # It listens on every address, so on loopback too.
            host = "127.0.0.1" if address.version == 4 else "::1"
    except ValueError:
        pass
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{gateway.port}"

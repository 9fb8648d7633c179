"""A Spark session without set-up: finds Java, chooses memory, and sends Spark's output to a file."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import ExtensionError
from headwater.pipeline.spark import cluster_packages as cluster
from headwater.pipeline.spark.class_archive import with_archive
from headwater.pipeline.spark.java_runtime import (
    COMPILATION,
    DEFAULT_OPTIONS,
    SparkUnavailable,
    find_java,
    start_jvm,
    with_collector,
)
from headwater.pipeline.spark.spark_errors import cause_of
from headwater.pipeline.spark.standalone_master import check_master, is_standalone
from headwater.settings import PipelineSettings
from headwater.system.installation import install_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

SPLIT_BYTES = 32 * 1024 * 1024
"""The bytes of a file that one task reads."""
BROADCAST_BYTES = 64 * 1024 * 1024


class SparkGone(SparkUnavailable):
    """The session has ended. This process cannot start another; its supervisor must restart it."""

    retryable = True


def start(
    settings: PipelineSettings,
    *,
    log_file: Path,
    app_name: str = "headwater",
    more: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session with these settings, or the one that runs already; SparkGone if this process' JVM has died.

    What Spark and the JVM print goes to `log_file`. Keep the session between cycles: a JVM is slow for its
    first seconds.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ExtensionError(
            "the pipeline needs Spark, which is not installed.",
            hint=f"Run `{install_command('pipeline')}`.",
        ) from error
    _require_live_jvm()
    if running := SparkSession.getActiveSession():
        return running
    java = find_java()
    if java.warning:
        logger.warning("%s", java.warning)
    conf = configuration(settings) | dict(more or {})
    conf = with_archive(conf, java)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    check_master(settings)
    if cluster.is_cluster(settings.master):
        conf = cluster.shipped(settings, conf, log_file.parent / "cluster")
    # Workers would take the first `python3` of the PATH, which may lack our packages.
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = conf.get("spark.pyspark.python", sys.executable)
    os.environ["JAVA_HOME"] = java.home
    # Spark must not take up another Spark that happens to be installed on the machine.
    os.environ.pop("SPARK_HOME", None)
    try:
        with _quiet(log_file):
            if SparkContext._gateway is None and java.is_reduced:
                start_jvm(java, conf, log_file)
            builder = SparkSession.Builder().appName(app_name).master(settings.master)
            for name, value in conf.items():
                builder = builder.config(name, value)
            session = builder.getOrCreate()
            # for this process alone: a Spark that a child starts must not talk to our JVM
            os.environ.pop("PYSPARK_GATEWAY_PORT", None)
            os.environ.pop("PYSPARK_GATEWAY_SECRET", None)
            return session
    except Exception as error:
        reason = cause_of(str(error) or repr(error)).rstrip(".")
        if is_standalone(settings.master) and "All masters are unresponsive" in _tail(log_file):
            reason = (
                f"the master does not register the application. It may run another Spark than {_version()}, "
                "or the address is that of another service"
            )
        raise SparkUnavailable(
            f"Spark did not start on {settings.master}: {reason}.", hint=f"See {log_file}."
        ) from error


def _require_live_jvm() -> None:
    """Raise SparkGone if a JVM of this process has died, such as one that was killed while Spark started."""
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    if jvm is not None:
        try:
            jvm.java.lang.System.nanoTime()
        except Exception as error:
            raise SparkGone(f"Spark's JVM is gone: {error}.", hint="Start it again.") from error


def require_running(spark: SparkSession) -> None:
    """Raise SparkGone if the session's JVM has died, or has been stopped."""
    try:
        is_gone = bool(spark.sparkContext._jsc.sc().isStopped())
    except Exception as error:
        raise SparkGone(f"Spark's JVM is gone: {error}.", hint="Start it again.") from error
    if is_gone:
        raise SparkGone("Spark has stopped.", hint="Start it again.")


def configuration(settings: PipelineSettings) -> dict[str, str]:
    """The configuration that we set, overridden by the user's `pipeline.spark`."""
    cores = os.cpu_count() or 1
    chosen = {
        DEFAULT_OPTIONS: COMPILATION,
        "spark.driver.memory": settings.memory or _memory(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Keys that differ in case alone are different keys; without this one of them is NULL, silently.
        "spark.sql.caseSensitive": "true",
        "spark.sql.shuffle.partitions": str(max(2, cores)),
        # One split a partition, of a fixed size: a row's number is its split and its place there, so that it
        # is the same whenever and wherever the file is read again.
        "spark.sql.files.maxPartitionBytes": str(SPLIT_BYTES),
        "spark.sql.files.openCostInBytes": str(SPLIT_BYTES),
        "spark.sql.files.minPartitionNum": "1",
        "spark.sql.autoBroadcastJoinThreshold": str(BROADCAST_BYTES),
        # Sorting lines of a kilobyte by table costs more than keeping a file open for each.
        "spark.sql.maxConcurrentOutputFileWriters": "64",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.compression.codec": "snappy",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.codegen.maxFields": "2000",
        # a key of an event must never be taken for the name of a setting (G12)
        "spark.sql.variable.substitute": "false",
        "spark.log.level": "WARN",
    }
    return with_collector(chosen | {name: _text(value) for name, value in settings.spark.items()})


@contextmanager
def own_sql_settings(spark: SparkSession, settings: PipelineSettings) -> Iterator[None]:
    """Our settings for queries, in a session that is not ours, until the block ends.

    The thread's active session is the same afterwards too.
    """
    from pyspark.sql import SparkSession

    wanted = {
        name: value
        for name, value in (_FOREIGN_SESSION | configuration(settings)).items()
        if name.startswith("spark.sql.") and name not in _CLUSTERS_OWN and spark.conf.isModifiable(name)
    }
    before, active = spark.conf.getAll, SparkSession.getActiveSession()
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name in wanted:
            if name in before:
                spark.conf.set(name, before[name])
            else:
                spark.conf.unset(name)
        session: Any = SparkSession
        session._activeSession = active
        jvm: Any = spark._jvm
        if active is not None:
            jvm.SparkSession.setActiveSession(active._jsparkSession)
        else:
            jvm.SparkSession.clearActiveSession()


_FOREIGN_SESSION = {"spark.sql.ansi.enabled": "true", "spark.sql.timestampType": "TIMESTAMP_LTZ"}
"""Defaults of Spark that our expressions rely on, and that a user's session may have changed."""
_CLUSTERS_OWN = {"spark.sql.shuffle.partitions", "spark.sql.autoBroadcastJoinThreshold"}
"""Their owner knows the cluster."""


def _version() -> str:
    import pyspark

    return pyspark.__version__


def _tail(log_file: Path, size: int = 64 * 1024) -> str:
    """The end of Spark's log."""
    with log_file.open("rb") as file:
        file.seek(max(0, log_file.stat().st_size - size))
        return file.read().decode(errors="replace")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _memory() -> str:
    """A quarter of the machine, between 1 and 4 GB: batches stream through, only a little is held."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return "1g"
    return f"{max(1024, min(4096, total // 4 // 1024**2))}m"


@contextmanager
def _quiet(log_file: Path) -> Iterator[None]:
    """Children that start meanwhile (the JVM) inherit the log file as their standard error and output."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    fd = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        yield
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for open_fd in (*kept, fd):
            os.close(open_fd)

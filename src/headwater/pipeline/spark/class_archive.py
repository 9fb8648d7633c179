"""An archive of Spark's classes, made once, with which a JVM starts in half the CPU time.

Half of what a short run costs is the JVM reading and verifying 20,000 classes. A JVM that has run a small
pipeline writes them as they are in its memory (class data sharing), and the next one maps them. `make` runs
such a pipeline in a process of its own; `python -m headwater.pipeline.spark.class_archive` does so by hand,
for example when an image is built. A JVM ignores an archive of other classes than its own.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.pipeline.spark.java_runtime import Java, SparkUnavailable, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_OPTIONS = "spark.driver.extraJavaOptions"
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_EXIT_SECONDS = 600
_EVENTS = (
    b'{"n":1,"text":"a","number":1.5,"flag":true,"at":"2026-11-16T10:00:00Z","list":[1],"in":{"a":1}}\n'
    b'{"n":"x","text":2,"number":"y","flag":0,"at":"never","list":{"b":1},"in":null,"more":1e400}\nnone\n'
)


def archive_path(java: Java) -> Path:
    """The archive of this Java and this Spark."""
    found = find_spec("pyspark")
    jars = Path(found.origin or "").parent / "jars" if found else Path()
    with suppress(OSError):
        modified = jars.stat().st_mtime_ns
        text = f"{Path(java.home).resolve()}\0{java.version}\0{jars.resolve()}\0{modified}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(root).expanduser() / "headwater" / f"spark-{digest}.jsa"
    return Path(os.devnull)


def with_archive(conf: Mapping[str, str], java: Java) -> dict[str, str]:
    """The configuration, with the archive if there is one, unless the options share classes otherwise."""
    options, archive = conf.get(_OPTIONS, ""), archive_path(java)
    if not _is_ours(archive) or _shares_classes(options) or any(char.isspace() for char in str(archive)):
        return dict(conf)
    return {**conf, _OPTIONS: f"{options} -XX:SharedArchiveFile={archive} {_SILENT}".strip()}


@functools.cache
def make_in_background() -> None:
    """Starts a process of low priority that makes the archive, unless there is one; for those that stay."""
    try:
        java = find_java()
        if not java.is_reduced and not _is_ours(archive_path(java)):
            command = ["nice", "-n", "19", sys.executable, "-m", __name__]
            quiet = subprocess.DEVNULL
            subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    except OSError as error:
        logger.debug("The archive of Spark's classes is not made: %s", error)


def make() -> Path:
    """Makes the archive, if no other process does, and returns its path."""
    java = find_java()
    if java.is_reduced:
        raise SparkUnavailable(
            f"the Java in {java.home} writes no archive of classes.",
            hint="Install a JRE and set JAVA_HOME; Spark runs without the archive too.",
        )
    archive = archive_path(java)
    archive.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_ours(archive):
            return archive
        with tempfile.TemporaryDirectory(prefix="headwater-classes-") as folder:
            made = archive.with_suffix(f".{os.getpid()}")
            try:
                _record(made, Path(folder))
                made.replace(archive)
            finally:
                made.unlink(missing_ok=True)
    return archive


def _record(made: Path, folder: Path) -> None:
    from pyspark import SparkContext

    from headwater.pipeline.spark.session import start
    from headwater.settings import PipelineSettings

    recording = {_OPTIONS: f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={made}"}
    spark = start(
        PipelineSettings(master="local[1]", memory="1g", spark=recording), log_file=folder / "spark.log"
    )
    _run(spark, folder)
    gateway: Any = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with its standard input, and writes the archive
    gateway.proc.wait(_EXIT_SECONDS)


def _run(spark: SparkSession, folder: Path) -> None:
    """A small pipeline from lines to rows."""
    from headwater.destinations.base import Capabilities
    from headwater.destinations.column_types import Kind
    from headwater.pipeline.steps.fit_table import plan_table, wanted_columns
    from headwater.pipeline.steps.parse_events import find_fields, malformed_lines
    from headwater.pipeline.steps.project import project
    from headwater.pipeline.steps.read_lines import read_lines
    from headwater.pipeline.steps.route import name_tables
    from headwater.pipeline.steps.template import Template
    from headwater.settings import DestinationSettings

    path = folder / "events.log"
    path.write_bytes(_EVENTS)
    settings = DestinationSettings(id="archive", type="http")
    capabilities = Capabilities(
        types={kind: kind.value for kind in Kind},
        max_identifier_length=63,
        max_columns=1_000,
        folds_case=False,
        supports_transactions=True,
    )
    lines = read_lines(spark, path)
    malformed_lines(lines).collect()
    name_tables(lines, Template("{{ text | lower }}"), max_identifier_length=63).collect()
    root = find_fields(lines).root
    columns = wanted_columns(root, settings, capabilities)
    fit, _ = plan_table("events", root, columns, None, settings, capabilities)
    project(lines, fit).write.parquet(str(folder / "rows"))


def _is_ours(archive: Path) -> bool:
    """Whether there is an archive that no other user can have changed."""
    try:
        found = archive.stat()
    except OSError:
        return False
    return found.st_size > 0 and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _shares_classes(options: str) -> bool:
    return any(word in options for word in ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit"))


if __name__ == "__main__":
    sys.stdout.write(f"{make()}\n")

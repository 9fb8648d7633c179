"""One Spark application of the lineage benchmark: the parts that it is given, measured; run by bench.lineage.

    python -m bench.lineage_job '<a Job as JSON>'

Runs in the environment of the Spark release that is measured, so it needs pyspark and lineage alone. Prints a
list of Measured as its last line. CPU is that of this process and of its JVM, taken when everything has been
sent. `own` is the CPU of threads that do lineage: in Python all but the main one, in the JVM the agent's, the
listener queues that one of the two is on, and those that py4j has for other threads than the main one. It is
near to exact where a difference between two applications is lost in the noise, and leaves out what the JVM
compiles and collects for it.
"""

from __future__ import annotations

import os
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PARTS", "Job", "Measured"]

LISTENER = "io.openlineage.spark.agent.OpenLineageSparkListener"
FLUSH_SECONDS = 300
# Headwater has a thread of its own, and an ear on the queue of Spark's executor management; the jar is on
# Spark's shared one; what these queues cost without lineage is taken off. py4j has a "Thread-…" for each of
# Python's threads
OWN = (
    "headwater",
    "spark-listener-group-executorManagement",
    "spark-listener-group-shared",
    "Thread-",
    "openlineage",
)


class Job(msgspec.Struct):
    """What to run: how lineage is recorded, where it is sent, and how large the parts are."""

    mode: str  # nothing, headwater, jar
    url: str
    folder: str
    tables: str
    jar: str
    questions: dict[str, str]
    parts: dict[str, int]
    columns: int


class Measured(msgspec.Struct):
    """Seconds of one part: until the job had its result, and until its events were sent; and CPU."""

    part: str
    wall: float
    sent: float
    cpu: float
    own: float


def start(job: Job) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.Builder()
        .master("local[2]")
        .appName("Lineage Benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        # the jar's class loader asks for it; the others have it too, so that the JVMs are alike
        .config("spark.driver.extraJavaOptions", "--add-opens=java.base/java.security=ALL-UNNAMED")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", f"{job.folder}/warehouse")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.openlineage.transport.type", "http")
        .config("spark.openlineage.transport.url", job.url)
        .config("spark.openlineage.namespace", "bench")
        .config("spark.openlineage.headwater.compatibility", "headwater")  # without RUNNING, as ever
    )
    if job.mode == "jar":
        builder = builder.config("spark.jars", job.jar).config("spark.extraListeners", LISTENER)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if job.mode == "headwater":
        import headwater.lineage

        headwater.lineage.install(spark)
    return spark


def warm(spark: SparkSession, job: Job, size: int) -> None:
    """What every JVM does slowly the first time; also makes the wide table."""
    names = [f"id + {place} AS c{place}" for place in range(job.columns)]
    spark.range(100).selectExpr(*names).write.parquet(f"{job.folder}/wide")
    for place in range(size):
        spark.range(10).write.mode("overwrite").parquet(f"{job.folder}/warm{place}")


def tpch(spark: SparkSession, job: Job, size: int) -> None:
    """The first `size` questions, each written to a folder."""
    for file in Path(job.tables).glob("*.parquet"):
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    for name, text in list(job.questions.items())[:size]:
        spark.sql(text).write.mode("overwrite").parquet(f"{job.folder}/{name}")


def writes(spark: SparkSession, job: Job, size: int) -> None:
    """So many writes of ten rows."""
    for place in range(size):
        spark.range(place, place + 10).selectExpr("id", "id * 2 AS twice").write.parquet(
            f"{job.folder}/tiny{place}"
        )


def tasks(spark: SparkSession, job: Job, size: int) -> None:
    """One write that needs so many tasks."""
    spark.range(0, size, 1, size).groupBy().sum("id").write.parquet(f"{job.folder}/tasks")


def steps(spark: SparkSession, job: Job, size: int, columns: int | None = None) -> None:
    """A plan of so many steps, each of which changes one of many columns."""
    columns = columns or job.columns
    frame = spark.read.parquet(f"{job.folder}/wide").select(*(f"c{place}" for place in range(columns)))
    half = columns // 2
    for place in range(size):
        column = place % half
        frame = frame.withColumn(f"c{column}", frame[f"c{column}"] + frame[f"c{half + column}"])
    frame.write.parquet(f"{job.folder}/steps{columns}")


PARTS: dict[str, Callable[..., None]] = {
    "warm": warm,
    "tpch": tpch,
    "writes": writes,
    "tasks": tasks,
    "steps": steps,
}


class Clock:
    """CPU seconds of this process and its JVM, and of the threads in them that do lineage alone."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._stat = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/stat")
        self._threads = jvm.java.lang.management.ManagementFactory.getThreadMXBean()
        self._main = jvm.java.lang.Thread.currentThread().getId()
        self._ticks = os.sysconf("SC_CLK_TCK")

    def cpu(self) -> float:
        fields = self._stat.read_text().rsplit(")", 1)[1].split()
        return time.process_time() + (int(fields[11]) + int(fields[12])) / self._ticks

    def own(self) -> float:
        python = time.process_time() - time.thread_time()
        return python + sum(spent for name, spent in self.threads().items() if name.startswith(OWN))

    def threads(self) -> dict[str, float]:
        """CPU seconds of the JVM's threads so far, by name; not of the one that serves the main thread."""
        found: dict[str, float] = {}
        for number in self._threads.getAllThreadIds():
            about = self._threads.getThreadInfo(number)
            if about is not None and number != self._main:
                name = str(about.getThreadName())
                found[name] = found.get(name, 0.0) + self._threads.getThreadCpuTime(number) / 1e9
        return found


def drain(spark: SparkSession, job: Job) -> None:
    """Wait until listeners have processed everything, and events are sent."""
    jsc: Any = spark.sparkContext._jsc
    jsc.sc().listenerBus().waitUntilEmpty(FLUSH_SECONDS * 1000)
    if job.mode == "headwater":
        import headwater.lineage

        assert headwater.lineage.flush(FLUSH_SECONDS), "events were not sent in time"


def mark(job: Job, part: str) -> None:
    """Assign all later events to the next part."""
    urllib.request.urlopen(f"{job.url}/mark/{part}", timeout=60).read()


def main(job: Job) -> list[Measured]:
    began = time.monotonic()
    spark = start(job)
    wall = time.monotonic() - began
    clock = Clock(spark)
    drain(spark, job)
    found = [Measured("start", wall, time.monotonic() - began, clock.cpu(), clock.own())]
    mark(job, "start")
    for part, size in job.parts.items():
        cpu, own, began = clock.cpu(), clock.own(), time.monotonic()
        before = clock.threads()
        name, _, columns = part.partition("@")  # `steps@250`: on 250 of the columns
        PARTS[name](spark, job, size, *map(int, filter(None, [columns])))
        wall = time.monotonic() - began
        drain(spark, job)
        found.append(Measured(part, wall, time.monotonic() - began, clock.cpu() - cpu, clock.own() - own))
        mark(job, part)
        if os.environ.get("BENCH_THREADS"):
            after = clock.threads()
            used = {name: after[name] - before.get(name, 0.0) for name in after}
            for name, seconds in sorted(used.items(), key=lambda each: -each[1])[:12]:
                print(f"{job.mode:10} {part:8} {seconds:8.3f} {name}", file=sys.stderr)
    spark.stop()
    return found


if __name__ == "__main__":
    measured = main(msgspec.json.decode(sys.argv[1], type=Job))
    print(msgspec.json.encode(measured).decode())

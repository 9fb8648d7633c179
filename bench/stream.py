"""Stream mode: from an event to its visible row, next to the floor of Spark's micro-batches on this machine.

    python -m bench.stream [--seconds 30] [--rates 500,2000] [--browser] [--postgres] [--smoke]

Events of about 1 KB (`bench.pipeline_events`) are put into a queue at a steady rate, as the gateway does it:
group commits with fsync. A thread asks the destination for the highest number that is visible. Beside it,
the floor of Structured Streaming: the same queue at the same rate, read by our source into a foreachBatch
that does nothing; and Spark's own `rate` source into the same. Last, how fast the source alone reads a queue.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench import pipeline_events  # not the function: DuckDB would take `events` for it
from bench.report import Table, write_result
from headwater.log.queue.log import Log
from headwater.log.streams import Queues
from headwater.pipeline import register
from headwater.pipeline.spark.session import start
from headwater.pipeline.stream.streams import Streams
from headwater.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TICK_SECONDS = 0.02
LOOK_SECONDS = 0.02
WARM_EVENTS = 2_000
WARM_SECONDS = 10.0
LIMIT_SECONDS = 600.0
STARTS = 10
BROWSER_KEY = "js.0a1b2c3d4e5f"

Seen = Callable[[], int]


class Latency(msgspec.Struct):
    """Seconds from sending to seeing, of all events of a run."""

    what: str
    rate: int
    p50: float
    p90: float
    p99: float
    longest: float
    batches: int


def numbered(count: int) -> Iterator[bytes]:
    for number, body in enumerate(pipeline_events.events(count)):
        yield b'{"n":%d,' % number + body[1:]


def measure(
    what: str,
    rate: int,
    seconds: float,
    log: Log,
    seen: Seen,
    batches: Callable[[], int],
    failure: Callable[[], object] = lambda: None,
) -> Latency:
    """Send at the rate, and note when each event is seen; `failure` returns why none will be."""
    bodies = list(numbered(WARM_EVENTS + int(rate * seconds)))
    log.append_wait(bodies[:WARM_EVENTS])
    _until(lambda: seen() >= WARM_EVENTS - 1, failure)
    time.sleep(2)
    first = batches()
    sent: list[float] = []
    latencies: list[float] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(LOOK_SECONDS):
            highest = seen() - WARM_EVENTS
            now = time.perf_counter()
            while len(latencies) <= highest and len(latencies) < len(sent):
                latencies.append(now - sent[len(latencies)])

    looker = threading.Thread(target=look, daemon=True)
    looker.start()
    began = time.perf_counter()
    at = WARM_EVENTS
    while at < len(bodies):
        due = min(len(bodies), WARM_EVENTS + int((time.perf_counter() - began) * rate))
        if due > at:
            now = time.perf_counter()
            sent.extend([now] * (due - at))
            log.append(bodies[at:due], _ignore, None)
            at = due
        time.sleep(TICK_SECONDS)
    _until(lambda: len(latencies) == len(sent), failure)
    stop.set()
    looker.join()
    cuts = statistics.quantiles(latencies, n=100)
    return Latency(what, rate, cuts[49], cuts[89], cuts[98], max(latencies), batches() - first)


def _ignore(tokens: list[Any], error: Exception | None) -> None:
    if error is not None:
        raise error


def _until(condition: Callable[[], bool], failure: Callable[[], object] = lambda: None) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if reason := failure():
            raise SystemExit(str(reason))
        if time.monotonic() > deadline:
            raise SystemExit("it took too long")
        time.sleep(0.05)


@contextmanager
def destination(folder: Path, postgres: bool) -> Iterator[tuple[dict[str, Any], Seen]]:
    """Settings of a destination, and how to ask it for the highest number."""
    query = "SELECT max(n) FROM events"
    if postgres:
        import psycopg
        from tests.parts.postgres import PostgresServer

        with PostgresServer() as server, psycopg.connect(server.url, autocommit=True) as connection:

            def seen() -> int:
                try:
                    row = connection.execute(query).fetchone()
                except psycopg.errors.UndefinedTable:
                    return -1
                return -1 if row is None or row[0] is None else int(row[0])

            yield {"type": "postgres", "options": {"url": server.url}}, seen
        return
    import duckdb

    path = folder / "warehouse.duckdb"
    with duckdb.connect(str(path)) as other:  # one process may have it open as often as it likes

        def found() -> int:
            try:
                row = other.execute(query).fetchone()
            except duckdb.CatalogException:
                return -1
            return -1 if row is None or row[0] is None else int(row[0])

        yield {"type": "duckdb", "options": {"path": str(path)}}, found


def streamed(
    spark: SparkSession, rate: int, options: argparse.Namespace, seconds: float | None = None
) -> Latency:
    """The whole way, into a real destination."""
    with (
        tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder,
        destination(Path(folder), options.postgres) as (own, seen),
    ):
        secret = BROWSER_KEY if options.browser else "another"
        raw = {
            "data_dir": folder,
            "tokens": [{"id": "web", "client_secret": secret}],
            "destinations": [{"id": "dwh", "mode": "stream"} | own],
        }
        settings = msgspec.convert(raw, Settings)
        queues = Queues(settings.events_dir, settings.destinations)
        name = ("postgres" if options.postgres else "duckdb") + (", lookups" if options.browser else "")
        with Streams(settings, spark) as streams:
            stream = streams.streams["dwh"]
            log = queues.log("dwh")
            result = measure(name, rate, seconds or options.seconds, log, seen, lambda: stream.batches)
        queues.close()
        return result


def floor(spark: SparkSession, rate: int, options: argparse.Namespace) -> Latency:
    """The same queue into a foreachBatch that only notes how far it is."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        log = Log.open(Path(folder, "queue"))
        highest, count = -1, 0

        def note(frame: DataFrame, batch_id: int) -> None:
            nonlocal highest, count
            found = frame.selectExpr("max(position)").collect()[0][0]  # the least that reads all of it
            if found is not None:  # the first micro-batch may come before the first event
                highest, count = int(found) - 1, count + 1

        reader = spark.readStream.format("headwater").option("path", str(log.folder))
        writer = reader.option("max_events", "20000").load().writeStream.foreachBatch(note)
        writer = writer.option("checkpointLocation", f"{folder}/state").trigger(processingTime="0.1 seconds")
        query = _started(writer)
        result = measure(
            "queue to nothing",
            rate,
            options.seconds,
            log,
            lambda: highest,
            lambda: count,
            lambda: None if query.isActive else query.exception() or "the query has ended",
        )
        query.stop()
        log.close()
        return result


def _started(writer: Any) -> StreamingQuery:
    """The query once it runs. Spark gives its Python process ten seconds, which a busy machine may exceed."""
    for _ in range(STARTS):
        query: StreamingQuery = writer.start()
        while query.isActive and query.status["message"] == "Initializing sources":
            time.sleep(0.1)
        if query.isActive:
            return query
    raise SystemExit(f"the query does not start: {query.exception()}")


def rate_source(spark: SparkSession, seconds: float) -> float:
    """Milliseconds of a micro-batch of Spark's own source into a foreachBatch that only reads it."""

    def read(frame: DataFrame, batch_id: int) -> None:
        frame.write.format("noop").mode("overwrite").save()

    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        writer = spark.readStream.format("rate").option("rowsPerSecond", 500).load().writeStream
        query = writer.foreachBatch(read).option("checkpointLocation", folder).start()
        time.sleep(max(5.0, min(seconds, 15.0)))
        taken = [each.durationMs["triggerExecution"] for each in query.recentProgress if each.numInputRows]
        query.stop()
    if not taken:
        raise SystemExit("Spark's rate source gave no micro-batch")
    return statistics.median(taken)


def throughput(spark: SparkSession, count: int) -> dict[str, float]:
    """Events a second that the source alone reads, of a queue that is full."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        log = Log.open(Path(folder, "queue"))
        source = numbered(count)
        size = 0
        while chunk := list(islice(source, 2_000)):
            log.append_wait(chunk)
            size += sum(map(len, chunk))
        reader = spark.read.format("headwater").option("path", str(log.folder))
        found = {"events": float(count), "bytes_per_event": size / count}
        for name, step in (("one task", count), ("several tasks", 50_000)):
            frame = reader.option("partition_events", str(step)).load()
            seconds = []
            for _ in range(3):
                began = time.perf_counter()
                frame.write.format("noop").mode("overwrite").save()
                seconds.append(time.perf_counter() - began)
            found[f"{name}, events/s"] = count / min(seconds)
        log.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rates", default="500,2000")
    parser.add_argument("--browser", action="store_true", help="events of browsers, with their lookups")
    parser.add_argument("--postgres", action="store_true", help="into Postgres instead of DuckDB")
    parser.add_argument("--events", type=int, default=300_000, help="of the full queue")
    parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes; no figures")
    options = parser.parse_args()
    if options.smoke:
        options.seconds, options.rates, options.events = 3.0, "100", 5_000
    logging.getLogger("py4j").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        spark = start(Settings().pipeline, log_file=Path(folder, "spark.log"))
        register(spark)
        rates = [int(rate) for rate in options.rates.split(",")]
        # a JVM is slow in its first seconds
        streamed(spark, rates[-1], options, min(options.seconds, WARM_SECONDS))
        results = [measured(spark, rate, options) for rate in rates for measured in (streamed, floor)]
        bare = rate_source(spark, options.seconds)
        full = throughput(spark, options.events)
    table = Table("event to", "events/s", "p50 s", "p90 s", "p99 s", "longest s", "batches")
    for each in results:
        seconds = [f"{value:.2f}" for value in (each.p50, each.p90, each.p99, each.longest)]
        table.row(each.what, each.rate, *seconds, each.batches)
    print(table)
    print(f"\na micro-batch of Spark's own rate source, into nothing: {bare:.0f} ms (median)")
    for name in ("one task", "several tasks"):
        print(f"the source alone, {name}: {full[f'{name}, events/s']:,.0f} events/s of 1 KB")
    figures = {"latency": results, "rate_source_ms": bare, "source": full}
    print(f"\n{write_result('stream', figures)}")
    spark.stop()


if __name__ == "__main__":
    main()

"""Speed and memory of ingesting events into the graph, and of its queries: `make bench-graph`.

1  1,000,000 events are ingested: START and COMPLETE of runs of 5,000 jobs, with schemas and column lineage,
   one in ten late and one in twenty twice. Memory must not grow with their number.
2  A graph of 100,000 datasets, 100,000 jobs and 1,000,000 columns answers neighbourhoods, traces, impact
   and searches, around datasets chosen at random.

Ingesting runs in a separate process, so that its memory can be measured.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson
import psutil

from bench.memory import peak_rss_bytes
from bench.report import Table, write_result
from headwater.graph.ingest.import_files import import_events
from headwater.graph.query.query import GraphQuery
from headwater.graph.store.database import FILE, GraphDatabase
from headwater.settings import GraphSettings

__all__ = ["Figures", "run"]

EVENTS, JOBS = 1_000_000, 5_000
DATASETS, COLUMNS, LAYERS = 100_000, 10, 20
ASKED = 300
PRODUCER = "https://bench.example"
FACET = {"_producer": PRODUCER, "_schemaURL": "https://bench.example/facet.json"}


class Ingestion(msgspec.Struct):
    """Wall time, CPU time and memory of ingesting; memory after a tenth of the events and at the end."""

    events: int
    seconds: float
    cpu_seconds: float
    rss_bytes_early: int
    rss_bytes_late: int
    peak_rss_bytes: int
    file_bytes: int
    collected_rows: int

    @property
    def rate(self) -> float:
        return self.events / self.seconds


class QueryTimes(msgspec.Struct):
    """The times of one query in milliseconds, and its largest answer."""

    question: str
    p50_ms: float
    p99_ms: float
    most: int


class Figures(msgspec.Struct):
    """All figures."""

    stream: Ingestion
    datasets: int
    large: Ingestion
    answers: list[QueryTimes]


def _schema(count: int) -> dict[str, Any]:
    return FACET | {"fields": [{"name": f"column_{i}", "type": "bigint"} for i in range(count)]}


def _columns(sources: list[str], count: int) -> dict[str, Any]:
    fields = {
        f"column_{i}": {
            "inputFields": [
                {
                    "namespace": "s3://warehouse",
                    "name": sources[i % len(sources)],
                    "field": f"column_{i}",
                    "transformations": [{"type": "DIRECT", "subtype": "IDENTITY", "masking": False}],
                }
            ]
        }
        for i in range(count)
    }
    return FACET | {"fields": fields}


def _event(
    kind: str, at: float, run: int, job: str, inputs: list[str], output: str, rows: int, columns: int
) -> bytes:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1e6):06d}Z"
    described = {"schema": _schema(columns), "columnLineage": _columns(inputs, columns)}
    return orjson.dumps(
        {
            "eventType": kind,
            "eventTime": stamp,
            "producer": PRODUCER,
            "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
            "run": {
                "runId": str(uuid.UUID(int=run)),
                "facets": {"processing_engine": FACET | {"version": "4.3.0", "name": "spark"}},
            },
            "job": {
                "namespace": "bench",
                "name": job,
                "facets": {"jobType": FACET | {"processingType": "BATCH", "integration": "SPARK"}},
            },
            "inputs": [
                {"namespace": "s3://warehouse", "name": name, "facets": {"schema": _schema(columns)}}
                for name in inputs
            ],
            "outputs": [
                {
                    "namespace": "s3://warehouse",
                    "name": output,
                    "facets": described,
                    "outputFacets": {"outputStatistics": FACET | {"rowCount": rows, "size": rows * 100}},
                }
            ],
        }
    )


def stream(events: int, jobs: int) -> Iterator[bytes]:
    """Repeated runs of some jobs; some events late, some twice."""
    chance = random.Random(1)
    late: list[bytes] = []
    for number in range(events // 2):
        job = number % jobs
        at = 1_760_000_000 + number * 0.5
        name, inputs = f"app.job_{job}", [f"layer_0/table_{job}", f"layer_0/table_{(job * 7 + 1) % jobs}"]
        for kind, moment in (("START", at), ("COMPLETE", at + 60)):
            body = _event(
                kind, moment, number + 1, name, inputs, f"layer_1/table_{job}", number % 1000, COLUMNS
            )
            if chance.random() < 0.1:
                late.append(body)
                continue
            yield body
            if chance.random() < 0.05:
                yield body
        if len(late) > 100:
            chance.shuffle(late)
            yield from late
            late.clear()
    yield from late


def layers(datasets: int) -> Iterator[bytes]:
    """A warehouse in layers: each dataset has three sources in the layer before, and its own job."""
    chance = random.Random(2)
    width = max(1, datasets // LAYERS)
    for number in range(datasets):
        layer, place = divmod(number, width)
        if layer == 0:
            inputs = [f"source/{place}"]
        else:
            inputs = [f"layer_{layer - 1}/table_{chance.randrange(width)}" for _ in range(3)]
        at = 1_760_000_000 + number
        output = f"layer_{layer}/table_{place}"
        yield _event("COMPLETE", at, number + 1, f"build.{output}", inputs, output, number, COLUMNS)


def ingest(folder: Path, bodies: Iterator[bytes], events: int) -> Ingestion:
    """Ingest events in this process, and measure it."""
    database = GraphDatabase(folder, GraphSettings(retention_days=365, max_runs_per_job=100))
    early = done = 0
    spent = busy = collected = 0.0
    batch: list[bytes] = []

    def write() -> None:
        nonlocal early, done, spent, busy, collected
        start, start_busy = time.monotonic(), time.process_time()
        graph_done = import_events(database, iter(batch))
        done += graph_done.events
        if done // 100_000 != (done - graph_done.events) // 100_000:
            collected += database.clean_up()
        spent += time.monotonic() - start
        busy += time.process_time() - start_busy
        batch.clear()
        if not early and done >= events / 10:
            early = psutil.Process().memory_info().rss

    for body in bodies:
        batch.append(body)
        if len(batch) == 1000:
            write()
    if batch:
        write()
    late = psutil.Process().memory_info().rss
    database.close()
    peak = peak_rss_bytes()
    size = (folder / FILE).stat().st_size
    return Ingestion(done, spent, busy, early, late, peak, size, int(collected))


def query_times(folder: Path, datasets: int, asked: int) -> list[QueryTimes]:
    """Query datasets chosen at random; the pages of the file are in memory."""
    chance = random.Random(3)
    width = max(1, datasets // LAYERS)
    answers = []
    with GraphQuery(folder) as query:

        def near(depth: int, columns: bool) -> Callable[[str], int]:
            return lambda name: len(
                query.neighbourhood("s3://warehouse", name, depth=depth, columns=columns, limit=300).datasets
            )

        def trace(name: str) -> int:
            return len(query.trace("s3://warehouse", name, "column_3", depth=5).columns)

        questions: dict[str, Callable[[str], int]] = {
            "neighbourhood, depth 1": near(1, False),
            "neighbourhood, depth 2": near(2, False),
            "neighbourhood, depth 2, with columns": near(2, True),
            "column trace, depth 5": trace,
            "impact, depth 3": lambda name: len(
                query.impact("s3://warehouse", name, depth=3, limit=300).datasets
            ),
            "dataset": lambda name: len(query.dataset("s3://warehouse", name).columns),
            "search": lambda name: len(query.search(name.partition("/")[2], limit=20)),
        }
        for question, answer in questions.items():
            times, most = [], 0
            for _ in range(asked):
                name = f"layer_{chance.randrange(LAYERS)}/table_{chance.randrange(width)}"
                start = time.perf_counter()
                most = max(most, answer(name))
                times.append((time.perf_counter() - start) * 1000)
            cuts = statistics.quantiles(times, n=100)
            answers.append(QueryTimes(question, cuts[49], cuts[98], most))
    return answers


def run(events: int = EVENTS, jobs: int = JOBS, datasets: int = DATASETS, asked: int = ASKED) -> Figures:
    """Ingest and query, in a temporary folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = _in_process(folder / "stream", "stream", events, jobs)
        large = _in_process(folder / "large", "layers", datasets, 0)
        return Figures(first, datasets, large, query_times(folder / "large", datasets, asked))


def _in_process(folder: Path, what: str, count: int, jobs: int) -> Ingestion:
    command = [sys.executable, "-m", "bench.graph", "--ingest", what, str(folder), str(count), str(jobs)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(done.stdout, type=Ingestion)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--datasets", type=int, default=DATASETS)
    parser.add_argument("--asked", type=int, default=ASKED, help="questions of each kind")
    parser.add_argument("--ingest", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ingest:
        what, folder, count, jobs = given.ingest
        bodies = stream(int(count), int(jobs)) if what == "stream" else layers(int(count))
        sys.stdout.buffer.write(msgspec.json.encode(ingest(Path(folder), bodies, int(count))))
        return
    figures = run(given.events, given.jobs, given.datasets, given.asked)
    table = Table("ingesting", "events", "events/s", "a CPU second", "RSS early", "RSS late", "peak", "file")
    for name, each in (("stream", figures.stream), (f"{figures.datasets:,} datasets", figures.large)):
        table.row(
            name,
            each.events,
            f"{each.rate:,.0f}",
            f"{each.events / each.cpu_seconds:,.0f}",
            *(
                f"{size / 2**20:.0f} MiB"
                for size in (each.rss_bytes_early, each.rss_bytes_late, each.peak_rss_bytes)
            ),
            f"{each.file_bytes / 2**20:.0f} MiB",
        )
    print(table)
    print()
    table = Table("question", "p50", "p99", "largest answer")
    for answer in figures.answers:
        table.row(answer.question, f"{answer.p50_ms:.2f} ms", f"{answer.p99_ms:.2f} ms", answer.most)
    print(table)
    print(f"\nwritten to {write_result('graph', figures)}")


if __name__ == "__main__":
    main()

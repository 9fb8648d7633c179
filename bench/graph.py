"""Speed and memory of ingesting events into the graph, and of its queries: `make bench-graph`.

1  1,000,000 events are ingested: START and COMPLETE of runs of 5,000 jobs, with schemas and column lineage,
   one in ten late and one in twenty twice. Memory must not grow with their number.
2  A graph of 100,000 datasets, 100,000 jobs and 1,000,000 columns answers neighbourhoods, traces, impact
   and searches, around datasets chosen at random.

Ingesting and querying run in processes of their own, so that their memory can be measured. What the graph
costs the intake is in `make bench-sidecar`.
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
from typing import Any, TypeVar

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

T = TypeVar("T")

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
    """The times of one query in milliseconds, and its largest answer; CPU is what a busy machine keeps."""

    question: str
    p50_ms: float
    p99_ms: float
    cpu_p50_ms: float
    cpu_p99_ms: float
    most: int


class Querying(msgspec.Struct):
    """The times of all queries, the time to the first answer, and the memory of the process."""

    answers: list[QueryTimes]
    first_answer_seconds: float
    rss_bytes: int
    rss_bytes_before: int


class Figures(msgspec.Struct):
    """All figures."""

    stream: Ingestion
    datasets: int
    large: Ingestion
    querying: Querying


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


def event(
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
            body = event(
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
        yield event("COMPLETE", at, number + 1, f"build.{output}", inputs, output, number, COLUMNS)


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


def query_times(folder: Path, datasets: int, asked: int) -> Querying:
    """Query datasets chosen at random; the pages of the file are in memory."""
    chance = random.Random(3)
    width = max(1, datasets // LAYERS)
    answers = []
    before, began = psutil.Process().memory_info().rss, time.perf_counter()
    with GraphQuery(folder) as query:
        query.dataset("s3://warehouse", f"layer_{LAYERS // 2}/table_0")
        opened = time.perf_counter() - began

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
            times, busy, most = [], [], 0
            for _ in range(asked):
                name = f"layer_{chance.randrange(LAYERS)}/table_{chance.randrange(width)}"
                start, start_busy = time.perf_counter(), time.process_time()
                most = max(most, answer(name))
                times.append((time.perf_counter() - start) * 1000)
                busy.append((time.process_time() - start_busy) * 1000)
            cuts, busy_cuts = statistics.quantiles(times, n=100), statistics.quantiles(busy, n=100)
            found = QueryTimes(question, cuts[49], cuts[98], busy_cuts[49], busy_cuts[98], most)
            answers.append(found)
        return Querying(answers, opened, psutil.Process().memory_info().rss, before)


def run(events: int = EVENTS, jobs: int = JOBS, datasets: int = DATASETS, asked: int = ASKED) -> Figures:
    """Ingest and query, in a temporary folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = _in_process(Ingestion, "stream", folder / "stream", events, jobs)
        large = _in_process(Ingestion, "layers", folder / "large", datasets, 0)
        querying = _in_process(Querying, "query", folder / "large", datasets, asked)
        return Figures(first, datasets, large, querying)


def _in_process(type: type[T], what: str, folder: Path, count: int, other: int) -> T:
    command = [sys.executable, "-m", "bench.graph", "--part", what, str(folder), str(count), str(other)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(done.stdout, type=type)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--datasets", type=int, default=DATASETS)
    parser.add_argument("--asked", type=int, default=ASKED, help="questions of each kind")
    parser.add_argument("--part", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        what, folder, count, other = given.part
        done: Ingestion | Querying
        if what == "query":
            done = query_times(Path(folder), int(count), int(other))
        else:
            bodies = stream(int(count), int(other)) if what == "stream" else layers(int(count))
            done = ingest(Path(folder), bodies, int(count))
        sys.stdout.buffer.write(msgspec.json.encode(done))
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
    table = Table("question", "p50", "p99", "CPU p50", "CPU p99", "largest answer")
    querying = figures.querying
    for answer in querying.answers:
        times = (answer.p50_ms, answer.p99_ms, answer.cpu_p50_ms, answer.cpu_p99_ms)
        table.row(answer.question, *(f"{each:.2f} ms" for each in times), answer.most)
    print(table)
    resident = f"resident {querying.rss_bytes / 2**20:.0f} MiB"
    print(f"\nfirst answer after {querying.first_answer_seconds:.2f} s; {resident},")
    print(f"{querying.rss_bytes_before / 2**20:.0f} MiB before the graph was opened")
    print(f"\nwritten to {write_result('graph', figures)}")


if __name__ == "__main__":
    main()

"""What lineage costs a Spark job: with nothing, with Headwater, with openlineage-spark's published jar.

    python -m bench.lineage [--quick] [--rounds 1] [--scale 0.1] [--spark 4.2.1] [--parts tpch,writes,…]

Each round is one application with nothing, one with Headwater, one with the jar, in an order that changes
from round to round; each application is a Python and a JVM of its own on `local[2]`, and does:

- `start`   the session, lineage attached;
- `tpch`    the 22 questions of TPC-H on generated tables (`bench.tpch`), each written to Parquet;
- `writes`  500 writes of ten rows;
- `tasks`   one write that needs 10,000 tasks;
- `steps`   one write of 1,000 columns after 500 steps, each of which changes a column.

Events go by HTTP to one receiver in this process, which counts them and their bytes. Shown are medians: wall
time until the job had its result; CPU of Python and JVM until all events were sent; what lineage added to
both; and the CPU of the threads that do lineage alone, which is exact where a difference is lost in the noise
(`bench.lineage_job`). On a shared machine believe CPU, and of CPU the last.

The jar is the newest that has been published for Spark 4, and Spark the newest that it is tested with. Spark
comes into an environment of its own in the cache of the tests, as the jar does; Headwater is this working
tree. A further application, with an empty cache, measures what compiling the agent costs the first time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
from tests.parts import maven
from tests.parts.cache import Missing
from tests.parts.spark_versions import python_of
from tests.sources import ROOT

from bench.lineage_job import Job, Measured
from bench.report import Table, write_result
from bench.tpch import QUESTIONS, tables

JAR_VERSION = "1.53.0"
SPARK_VERSION = "4.2.1"
MODES = ("nothing", "headwater", "jar")
FULL = {"warm": 20, "tpch": 22, "writes": 500, "tasks": 10_000, "steps": 500}
QUICK = {"warm": 3, "tpch": 4, "writes": 25, "tasks": 500, "steps": 50}
COLUMNS, QUICK_COLUMNS = 1_000, 200
APPLICATION_SECONDS = 3_600


class Received(msgspec.Struct):
    """Events of one part, and their bytes."""

    events: int = 0
    bytes: int = 0


class Receiver(ThreadingHTTPServer):
    """Takes everything; `GET /mark/<part>` ends a part."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.parts: dict[str, Received] = {}
        self._now = Received()
        self._lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def take(self, size: int) -> None:
        with self._lock:
            self._now.events += 1
            self._now.bytes += size

    def mark(self, part: str) -> None:
        with self._lock:
            self.parts[part], self._now = self._now, Received()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections
    server: Receiver

    def do_POST(self) -> None:
        self.server.take(len(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer()

    def do_GET(self) -> None:
        self.server.mark(self.path.rpartition("/")[2])
        self._answer()

    def _answer(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *values: object) -> None:
        """Say nothing."""


class Figure(msgspec.Struct):
    """Medians of one part in one mode."""

    part: str
    mode: str
    wall: float
    cpu: float
    own: float
    events: int
    bytes: int
    added_wall: float = 0.0
    added_cpu: float = 0.0
    added_own: float = 0.0


def find_jar() -> Path:
    """openlineage-spark from its published coordinates; raises Missing where it cannot be fetched."""
    name = f"openlineage-spark_2.13-{JAR_VERSION}"
    return maven.jars(name, f"io.openlineage:openlineage-spark_2.13:{JAR_VERSION}") / f"{name}.jar"


def application(
    python: Path, job: Job, receiver: Receiver, cache_home: str | None = None
) -> tuple[list[Measured], dict[str, Received]]:
    """Run one application in a folder of its own."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OPENLINEAGE")}
    environ |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "PYSPARK_PYTHON": str(python)}
    if cache_home is not None:
        environ["XDG_CACHE_HOME"] = cache_home
    receiver.parts = {}
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        job.folder, job.url = folder, receiver.url
        done = subprocess.run(
            [str(python), "-m", "bench.lineage_job", msgspec.json.encode(job).decode()],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=APPLICATION_SECONDS,
        )
    if done.returncode != 0:
        raise SystemExit(f"{job.mode} failed:\n{done.stderr[-3000:]}")
    if os.environ.get("BENCH_THREADS"):
        print(done.stderr, file=sys.stderr)
    measured = msgspec.json.decode(done.stdout.splitlines()[-1], type=list[Measured])
    return measured, dict(receiver.parts)


def medians(runs: dict[str, list[tuple[list[Measured], dict[str, Received]]]]) -> list[Figure]:
    """A figure for each part and mode; what was added is the median of the differences in each round."""
    found: list[Figure] = []
    parts = [measured.part for measured in runs["nothing"][0][0]]
    for place, part in enumerate(parts):
        base = [measured[place] for measured, _ in runs["nothing"]]
        for mode in MODES:
            if not runs[mode]:
                continue
            these = [measured[place] for measured, _ in runs[mode]]
            received = [parts_received.get(part, Received()) for _, parts_received in runs[mode]]
            pairs = list(zip(these, base, strict=False))
            found.append(
                Figure(
                    part=part,
                    mode=mode,
                    wall=statistics.median(each.wall for each in these),
                    cpu=statistics.median(each.cpu for each in these),
                    own=statistics.median(each.own for each in these),
                    events=int(statistics.median(each.events for each in received)),
                    bytes=int(statistics.median(each.bytes for each in received)),
                    added_wall=statistics.median(one.wall - other.wall for one, other in pairs),
                    added_cpu=statistics.median(one.cpu - other.cpu for one, other in pairs),
                    added_own=statistics.median(one.own - other.own for one, other in pairs),
                )
            )
    return found


def report_text(figures: list[Figure]) -> str:
    """Tables for people: what it cost, then Headwater's cost as a part of the jar's."""
    costs = Table("part", "mode", "wall s", "cpu s", "+wall s", "+cpu s", "+own cpu s", "events", "bytes")
    for each in figures:
        added = [f"{each.added_wall:+.2f}", f"{each.added_cpu:+.2f}", f"{each.added_own:+.3f}"]
        if each.mode == "nothing":
            added = ["", "", ""]
        costs.row(
            each.part, each.mode, f"{each.wall:.2f}", f"{each.cpu:.2f}", *added, each.events, each.bytes
        )
    ratios = Table("part", "wall / jar's", "cpu / jar's", "own cpu / jar's", "bytes / jar's", "of all cpu")
    by = {(each.part, each.mode): each for each in figures}
    for part in dict.fromkeys(each.part for each in figures):
        ours, base = by[part, "headwater"], by[part, "nothing"]
        theirs = by.get((part, "jar"))
        ratios.row(
            part,
            *(
                _ratio(getattr(ours, name), getattr(theirs, name, 0.0))
                for name in ("added_wall", "added_cpu", "added_own", "bytes")
            ),
            f"{100 * ours.added_own / base.cpu:.2f} %" if base.cpu else "-",
        )
    return f"{costs}\n\n{ratios}"


def _ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}" if theirs > 0 else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description="What lineage costs a Spark job.")
    parser.add_argument("--quick", action="store_true", help="small parts, one round: does it run")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--scale", type=float, help="TPC-H's scale factor; 1 is a gigabyte")
    parser.add_argument("--spark", default=SPARK_VERSION, help="a release of PySpark, or 'here'")
    parser.add_argument("--parts", help="only these, by comma")
    parser.add_argument("--without-jar", action="store_true")
    options = parser.parse_args()
    rounds = (
        options.rounds or 1
    )  # ten minutes on two quiet cores; the figures of CPU hardly differ between rounds
    parts = QUICK if options.quick else FULL
    if options.parts:
        parts = {name: size for name, size in parts.items() if name in ("warm", *options.parts.split(","))}
    try:
        python = Path(sys.executable) if options.spark == "here" else python_of(options.spark)
        jar = "" if options.without_jar else str(find_jar())
        data = str(tables(options.scale or (0.01 if options.quick else 0.1))) if "tpch" in parts else ""
    except Missing as missing:
        raise SystemExit(f"bench-lineage: {missing}") from None
    columns = QUICK_COLUMNS if options.quick else COLUMNS
    job = Job("nothing", "", "", data, jar, QUESTIONS, parts, columns)
    modes = [mode for mode in MODES if jar or mode != "jar"]
    receiver = Receiver()
    runs: dict[str, list[tuple[list[Measured], dict[str, Received]]]] = {mode: [] for mode in MODES}
    for number in range(rounds):
        for mode in modes[number % len(modes) :] + modes[: number % len(modes)]:
            job.mode = mode
            print(f"round {number + 1} of {rounds}: {mode} ...", flush=True)
            runs[mode].append(application(python, job, receiver))
    job.mode, job.parts = "headwater", {}
    with tempfile.TemporaryDirectory() as empty:
        first = application(python, job, receiver, cache_home=empty)[0][0]
    figures = medians(runs)
    print(f"\nSpark {options.spark}, openlineage-spark {JAR_VERSION}, medians of {rounds}")
    print(f"\n{report_text(figures)}")
    print(f"\nfirst start on a machine: {first.wall:.2f} s wall, {first.cpu:.2f} s CPU")
    print(f"written to {write_result('lineage', {'figures': figures, 'first_start': first})}")


if __name__ == "__main__":
    main()

"""Events become tables, side by side with peers: `make bench-pipeline`.

    python -m bench.pipeline [--events N] [--rounds N] [--dlt-events N] [--long MILLIONS] [--only PART,…]

    duckdb     ours, dlt and DuckDB's own reader of JSON, into DuckDB
    plain      the same without dlt, and with events that do not drift
    tables     300 events in one table, and in 300
    postgres   ours and dlt, into a Postgres server from a wheel
    enrich     what looking addresses up costs, with few and with many distinct ones
    long       only with --long or as the only part: ours, a million after the other in one session

The events drift and conflict (bench/pipeline_events.py). Every contender is a process of its own; CPU is user
and system time of it and all that it started, the JVM too, and memory the most that these had together.
Spark's start and the first, cold, million are counted; `again` is the next million of the same session, as a
pipeline that runs every few minutes has it. CPU seconds are the figures to compare: wall time depends on
what else the machine does. With several rounds each figure is the median. The archive of Spark's classes,
which a pipeline makes in its first minutes, is made before and not counted. `--record FILE.jfr` keeps the
flight recording of our JVM for bench/flame_graph.py.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from bench.pipeline_events import write
from bench.pipeline_load import Done, Plan, Step
from bench.report import Table, write_result
from bench.usage import Usage
from headwater.pipeline.spark import class_archive

ROOT = Path(__file__).parent.parent
DLT = ROOT / ".cache" / "bench-dlt"
DLT_PACKAGE = "dlt[duckdb,parquet,postgres]>=1.30"
PARTS = ("duckdb", "plain", "tables", "postgres", "enrich", "long")
TABLES = 300
BY_TABLE = "t{{ n }}"
LONG_FILES = 10
FLAT = 1.1  # times the peak; what a garbage collector has not looked at yet differs by as much
LOOKUP = [{"name": "ip_lookup", "from": "/source_ip", "to": "/eventn_ctx/location"}]


class Figure(msgspec.Struct):
    """One contender in one part."""

    name: str
    events: int
    seconds: float
    cpu: float
    peak_bytes: int = 0
    server_cpu: float = 0.0
    columns: int = 0

    @property
    def rate(self) -> float:
        return self.events / self.seconds

    @property
    def cpu_per_million(self) -> float:
        return (self.cpu + self.server_cpu) * 1e6 / self.events


class Files:
    """Generated files, each made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[int, int, bool], Path] = {}

    def get(self, events: int, addresses: int = 1_000, *, drifts: bool = True) -> Path:
        key = events, addresses, drifts
        if key not in self._made:
            path = self._folder / f"events-{events}-{addresses}-{drifts}.log"
            size = write(path, events, addresses=addresses, drifts=drifts)
            print(f"made {events:,} events of {size / events:,.0f} bytes", flush=True)
            self._made[key] = path
        return self._made[key]

    def of_tables(self) -> Path:
        """Small events, each with a number of its own."""
        path = self._folder / "tables.log"
        path.write_text("".join(f'{{"n":{number},"text":"event {number}"}}\n' for number in range(TABLES)))
        return path


def dlt_python() -> Path:
    """The Python of a venv that has dlt and nothing of ours."""
    python = DLT / "bin" / "python"
    if not python.exists():
        print(f"installing {DLT_PACKAGE} into {DLT.relative_to(ROOT)} ...", flush=True)
        venv.create(DLT, with_pip=True)
    probe = subprocess.run([python, "-c", "import dlt, pyarrow, psycopg2"], capture_output=True, check=False)
    if probe.returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", DLT_PACKAGE], check=True)
    return python


def watched(command: Sequence[str | Path], name: str, events: int, *, server: int = 0, **env: str) -> Figure:
    """Run a peer to its end. It prints {"rows": …, "columns": …}."""
    began = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | env, cwd=ROOT)
    with Usage(*filter(None, (child.pid, server))) as usage:
        assert child.stdout is not None
        answer = child.stdout.read()
        seconds = time.monotonic() - began
        usage.look()
        child.wait()
    if child.returncode:
        raise SystemExit(f"{name} failed with {child.returncode}")
    report = msgspec.json.decode(answer.splitlines()[-1])
    if report["rows"] != events:
        raise SystemExit(f"{name} has {report['rows']} rows of {events}")
    return Figure(
        name,
        events,
        seconds,
        usage.cpu(child.pid),
        usage.peak_bytes[child.pid],
        usage.cpu(server) if server else 0.0,
        report["columns"],
    )


def ours(plan: Plan, *, server: int = 0, record: Path | None = None) -> tuple[list[Done], list[float], int]:
    """Run our pipeline; what each step cost, the server's CPU seconds by step, and the peak memory."""
    began, more = time.monotonic(), {}
    if record is not None:
        options = f"settings=profile,filename={record.resolve()},dumponexit=true"
        more["JDK_JAVA_OPTIONS"] = f"-XX:StartFlightRecording={options}"
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.pipeline_load", msgspec.json.encode(plan).decode()],
        stdout=subprocess.PIPE,
        env=os.environ | more,
        cwd=ROOT,
    )
    done: list[Done] = []
    served: list[float] = []
    with Usage(*filter(None, (child.pid, server))) as usage:
        assert child.stdout is not None
        for line in child.stdout:
            found = msgspec.json.decode(line, type=Done)
            found.peak_bytes = usage.take_peak(child.pid)
            if not done:
                # from the start of the process on: importing Spark is part of it
                found.seconds, found.cpu = time.monotonic() - began, usage.cpu(child.pid)
            served.append((usage.cpu(server) if server else 0.0) - sum(served))
            done.append(found)
        child.wait()
    if child.returncode:
        raise SystemExit(f"our pipeline failed with {child.returncode}")
    return done, served, usage.peak_bytes[child.pid]


def both(done: list[Done], served: list[float], peak: int) -> list[Figure]:
    """Start and first step as one figure, and the second."""
    start, first, again = done
    return [
        Figure(
            "headwater, with Spark's start",
            first.rows,
            start.seconds + first.seconds,
            start.cpu + first.cpu,
            peak,
            served[0] + served[1],
            first.columns,
        ),
        Figure(
            "headwater, again",
            again.rows,
            again.seconds,
            again.cpu,
            peak,
            served[2],
            again.columns,
        ),
    ]


def show(title: str, figures: list[Figure]) -> None:
    table = Table(title, "events", "rows/s", "CPU s", "of it server", "CPU s/M", "peak MB")
    for each in figures:
        table.row(
            each.name,
            each.events,
            round(each.rate),
            f"{each.cpu + each.server_cpu:.1f}",
            f"{each.server_cpu:.1f}",
            f"{each.cpu_per_million:.1f}",
            each.peak_bytes // 1_000_000,
        )
    print(f"\n{table}", flush=True)


def profile(done: list[Done]) -> None:
    """Where our time goes, from our own report."""
    steps = ("route", "parse", "enrich", "patch", "stage", "load", "archive")
    table = Table("seconds by step", *steps, "other", "all")
    for each in done[1:]:
        times = [each.times.get(step, 0.0) for step in steps]
        cells = [*times, each.seconds - sum(times), each.seconds]
        table.row(each.label, *(f"{cell:.1f}" for cell in cells))
    print(f"\n{table}", flush=True)


class Round(msgspec.Struct):
    """One round of a part: its figures, and the steps of ours."""

    figures: list[Figure]
    steps: list[Done]


def to_duckdb(
    files: Files,
    folder: Path,
    events: int,
    dlt_events: int,
    *,
    drifts: bool = True,
    record: Path | None = None,
) -> Round:
    """Ours and DuckDB's own reader; also dlt, if it gets events."""
    source = str(files.get(events, drifts=drifts))
    destination = {"id": "dwh", "type": "duckdb", "options": {"path": str(folder / "ours.duckdb")}}
    steps = [Step("first", source), Step("again", source)]
    done, served, peak = ours(Plan(str(folder / "ours"), destination, steps), record=record)
    figures = both(done, served, peak)
    peers = ROOT / "bench" / "peers"
    figures.append(
        watched(
            [sys.executable, peers / "duckdb_load.py", source, folder / "peer.duckdb"],
            "DuckDB read_json_auto",
            events,
        )
    )
    if dlt_events:
        figures.append(
            watched(
                [
                    dlt_python(),
                    peers / "dlt_load.py",
                    files.get(dlt_events),
                    f"duckdb:{folder / 'dlt.duckdb'}",
                ],
                "dlt, JSON, 2 workers",
                dlt_events,
                DLT_FOLDER=str(folder / "dlt"),
            )
        )
    return Round(figures, done)


def medians(rounds: Sequence[Round]) -> list[Figure]:
    """Each figure as the median of the rounds."""
    found = []
    for same in zip(*(each.figures for each in rounds), strict=True):
        values = {
            name: statistics.median(getattr(each, name) for each in same)
            for name in ("seconds", "cpu", "server_cpu")
        }
        peak = int(statistics.median(each.peak_bytes for each in same))
        found.append(msgspec.structs.replace(same[0], **values, peak_bytes=peak))
    return found


def compare(title: str, rounds: Sequence[Round], *, cpu_aim: float) -> dict[str, Any]:
    """Prints the figures, and the ratios beside the aims."""
    figures = medians(rounds)
    show(f"{title}, median of {len(rounds)}" if len(rounds) > 1 else title, figures)
    profile(rounds[-1].steps)
    first, again, duck, *others = figures
    print("\nof DuckDB's own reader:")
    for name, found, aim in (
        ("CPU", again.cpu / duck.cpu, f"at most {cpu_aim}"),
        ("CPU with the start", first.cpu / duck.cpu, "at most 2.5"),
        ("rows/s", again.rate / duck.rate, "at least 0.9"),
    ):
        print(f"  {name}: {found:.2f} times (aim: {aim})")
    print(f"peak: {first.peak_bytes / 1e9:.1f} GB (aim: at most 2.2)", flush=True)
    for peer in others:
        print(
            f"{peer.name}: {first.rate / peer.rate:.1f} times its rows/s with the start, "
            f"{again.rate / peer.rate:.1f} times without (aim: 5); CPU "
            f"{first.cpu_per_million / peer.cpu_per_million:.2f} and "
            f"{again.cpu_per_million / peer.cpu_per_million:.2f}",
            flush=True,
        )
    return {"figures": figures, "rounds": list(rounds)}


def tables(files: Files, folder: Path) -> Round:
    """The same small events in one table and in many; what was before warms up."""
    source = str(files.of_tables())
    destination = {"id": "dwh", "type": "duckdb", "options": {"path": str(folder / "tables.duckdb")}}
    steps = [
        Step("warm-up", source, template="warm"),
        Step("one table", source, template="one"),
        Step(f"{TABLES} tables", source, template=BY_TABLE),
        Step("the same again", source, template=BY_TABLE),
    ]
    done, _, _ = ours(Plan(str(folder / "tables"), destination, steps))
    return Round([Figure(each.label, TABLES, each.seconds, each.cpu) for each in done[2:]], done)


def compare_tables(rounds: Sequence[Round]) -> dict[str, Any]:
    one, *many = medians(rounds)
    table = Table(f"{TABLES} events", "seconds", "CPU s", "times the seconds of one", "times its CPU")
    for each in (one, *many):
        table.row(
            each.name,
            f"{each.seconds:.1f}",
            f"{each.cpu:.1f}",
            f"{each.seconds / one.seconds:.1f}",
            f"{each.cpu / one.cpu:.1f}",
        )
    print(f"\n{table}\naim: at most 3 times the seconds of one table", flush=True)
    return {"figures": [one, *many], "rounds": list(rounds)}


def to_postgres(files: Files, folder: Path, events: int, dlt_events: int) -> dict[str, Any]:
    from tests.parts.postgres import PostgresServer

    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer())
        # dlt does not take a socket in a folder for a host, nor no password for one
        server.listen(free_port())
        url = server.url.replace("postgres@", "postgres:none@")
        pid = int(Path(folder_of(server), "postmaster.pid").read_text().split()[0])
        source = str(files.get(events))
        destination = {"id": "pg", "type": "postgres", "options": {"url": server.url}}
        steps = [Step("first", source), Step("again", source)]
        done, served, peak = ours(Plan(str(folder / "ours-pg"), destination, steps), server=pid)
        figures = both(done, served, peak)
        figures.append(
            watched(
                [dlt_python(), ROOT / "bench/peers/dlt_load.py", files.get(dlt_events), url],
                "dlt, JSON, 2 workers",
                dlt_events,
                server=pid,
                DLT_FOLDER=str(folder / "dlt-pg"),
            )
        )
    show("to Postgres", figures)
    profile(done)
    first, again, peer = figures
    print(
        f"\nrows/s against dlt: {first.rate / peer.rate:.1f} times with the start, "
        f"{again.rate / peer.rate:.1f} times without; "
        f"CPU {first.cpu_per_million / peer.cpu_per_million:.2f} and "
        f"{again.cpu_per_million / peer.cpu_per_million:.2f}",
        flush=True,
    )
    return {"figures": figures, "steps": done}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def folder_of(server: Any) -> Path:
    """Where the server has its data."""
    return Path(server._folder, "data")


def enrichment(files: Files, folder: Path, events: int) -> dict[str, Any]:
    few, many = str(files.get(events)), str(files.get(events, events))
    destination = {"id": "dwh", "type": "duckdb", "options": {"path": str(folder / "enrich.duckdb")}}
    steps = [
        Step("warm-up", str(files.get(events // 5)), LOOKUP),
        Step("no lookup", few),
        Step("1,000 addresses", few, LOOKUP),
        Step(f"of {events:,} addresses", many, LOOKUP),
    ]
    done, _, _ = ours(Plan(str(folder / "enrich"), destination, steps))
    base = done[2].cpu
    table = Table(f"lookups, {events:,} events", "CPU s", "more than none", "seconds in `enrich`")
    for each in done[2:]:
        table.row(each.label, f"{each.cpu:.1f}", f"{each.cpu - base:+.1f}", f"{each.times['enrich']:.1f}")
    print(f"\n{table}", flush=True)
    return {"steps": done}


def long(files: Files, folder: Path, events: int, millions: int) -> dict[str, Any]:
    source = str(files.get(events))
    destination = {"id": "dwh", "type": "duckdb", "options": {"path": str(folder / "long.duckdb")}}
    steps = [Step(str(number + 1), source) for number in range(millions)]
    done, _, peak = ours(Plan(str(folder / "long"), destination, steps))
    names = ("rows/s", "CPU s", "peak MB", "Python MB after", "JVM MB after", "live heap MB")
    table = Table(f"file of {events:,}", *names)
    for each in done[1:]:
        table.row(
            each.label,
            round(each.rows / each.seconds),
            f"{each.cpu:.1f}",
            each.peak_bytes // 1_000_000,
            each.python_bytes // 1_000_000,
            each.jvm_bytes // 1_000_000,
            each.heap_bytes // 1_000_000,
        )
    print(f"\n{table}\n{tenths(done[1:])}\npeak of all: {peak / 1e6:,.0f} MB", flush=True)
    return {"steps": done, "peak_bytes": peak}


def tenths(done: list[Done]) -> str:
    """How the last tenth of the files compares with the first; with the second, if there are that many.

    The first also warms the JVM up, and is when its heap grows to what it stays at.
    """
    count = max(1, len(done) // 10)
    parts = {"first": done[:count], "last": done[-count:]}
    if len(done) >= 3 * count:
        parts["second"] = done[count : 2 * count]
    rates = {name: sum(d.rows for d in part) / sum(d.seconds for d in part) for name, part in parts.items()}
    peaks = {name: max(d.peak_bytes for d in part) for name, part in parts.items()}
    heaps = {name: max(d.heap_bytes for d in part) for name, part in parts.items()}
    warm = "second" if "second" in parts else "first"
    lines = [
        f"{name} tenth: {rates[name]:,.0f} rows/s, peak {peaks[name] / 1e6:,.0f} MB, "
        f"live heap {heaps[name] / 1e6:,.0f} MB"
        for name in ("first", "second", "last")
        if name in parts
    ]
    is_flat = peaks["last"] <= FLAT * peaks[warm]
    lines.append(
        f"last against {warm} tenth: {rates['last'] / rates[warm]:.2f} of its rate, "
        f"{peaks['last'] / peaks[warm]:.2f} of its peak: memory is {'' if is_flat else 'NOT '}flat"
    )
    return "\n".join(lines)


def fresh(folder: Path) -> Path:
    """An empty folder for a round; that of the round before is removed."""
    made = folder / "round"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1, help="of duckdb, plain, tables; medians are shown")
    parser.add_argument("--dlt-events", type=int, help="by default a tenth: its rate is flat; 0: no dlt")
    parser.add_argument("--record", type=Path, metavar="FILE.jfr", help="of the last round of `duckdb`")
    parser.add_argument("--long", type=int, default=0, metavar="FILES", help="so many files of --events")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, by commas")
    options = parser.parse_args()
    events, parts = options.events, options.only.split(",")
    dlt_events = max(1, events // 10) if options.dlt_events is None else options.dlt_events
    figures: dict[str, Any] = {}
    class_archive.make()
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        folder = Path(name)
        files = Files(folder)
        last = options.rounds - 1

        def rounds(run: Callable[[int, Path], Round]) -> list[Round]:
            return [run(number, fresh(folder)) for number in range(options.rounds)]

        if 0 < dlt_events != events and {"duckdb", "postgres"} & {*parts}:
            print(f"dlt gets {dlt_events:,} events: its rate does not depend on how many there are.")
        if "duckdb" in parts:
            figures["duckdb"] = compare(
                "to DuckDB",
                rounds(
                    lambda number, own: to_duckdb(
                        files, own, events, dlt_events, record=options.record if number == last else None
                    )
                ),
                cpu_aim=1.4,
            )
        if "plain" in parts:
            figures["plain"] = compare(
                "to DuckDB, without drift",
                rounds(lambda _, own: to_duckdb(files, own, events, 0, drifts=False)),
                cpu_aim=1.2,
            )
        if "tables" in parts:
            figures["tables"] = compare_tables(rounds(lambda _, own: tables(files, own)))
        if "postgres" in parts:
            figures["postgres"] = to_postgres(files, folder, events, dlt_events)
        if "enrich" in parts:
            figures["enrich"] = enrichment(files, folder, events // 2)
        millions = options.long or (LONG_FILES if parts == ["long"] else 0)
        if "long" in parts and millions:
            figures["long"] = long(files, folder, events, millions)
    print(f"\nwritten to {write_result('pipeline', figures)}")


if __name__ == "__main__":
    main()

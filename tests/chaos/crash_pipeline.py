"""Kill the pipeline over and over while events come in, then look for every event that was acknowledged.

    python -m tests.chaos.crash_pipeline --cycles 50

Real processes: `headwater serve` takes events in over HTTP, and `headwater pipeline run --every …` loads them
into DuckDB and into Postgres. Each cycle the pipeline dies by SIGKILL at a named crash point or at
a moment of chance, and now and then the server does. At the end one pipeline loads what is left, and the
oracle compares rows and values with what was acknowledged. Exits 1 if one is missing, doubled or changed.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from headwater.log.files.checked_lines import LineReader
from headwater.log.files.event_counts import stat_events
from headwater.log.files.layout import EventFolder, unprocessed
from headwater.system.crash_points import CRASH_POINTS
from headwater.testing.processes import HeadwaterProcess, free_port
from tests.chaos.load import QUICK, TEMPLATE, TOKEN, EventSender, event, is_poison
from tests.chaos.oracle import have_same_rows, judge, rejected_ids, rows_of_duckdb, rows_of_postgres
from tests.parts.postgres import PostgresServer

SENDERS = 4
ARMED_SECONDS = 240.0  # for a pipeline to reach its crash point; then it is killed wherever it is
FINAL_SECONDS = 1200.0
ROTATION_SECONDS = 6.0  # so that there are always files on the way, and not too many
MOST_WAITING = 12  # files; while there are more the senders wait, or the end would take hours
WORTH_SHARING = 8  # cycles from which on it pays to share classes
ARCHIVE_SECONDS = 400.0  # for a JVM to write down its classes
POINTS = [
    point for point in CRASH_POINTS if point.startswith(("pipeline.", "archive.", "failed.after_write"))
]
SERVER_POINTS = [point for point in CRASH_POINTS if point.startswith("incoming.")]
ONCE_A_FILE = ("pipeline.after_status", "pipeline.after_archive", "archive.", "failed.")


def configuration(folder: Path, port: int, postgres: str, java_options: str, schema: str = "public") -> str:
    common = {"table_name_template": TEMPLATE}
    settings = {
        "data_dir": str(folder / "data"),
        "gateway": {"port": port},
        "tokens": [TOKEN],
        "events": {"rotation_minutes": ROTATION_SECONDS / 60},
        "pipeline": {
            "master": "local[2]",
            "memory": "1g",
            "spark": {"spark.driver.extraJavaOptions": f"{QUICK} {java_options}"},
        },
        "destinations": [
            common | {"id": "duck", "type": "duckdb", "path": str(folder / "warehouse.duckdb")},
            common | {"id": "pg", "type": "postgres", "url": postgres, "schema": schema},
        ],
    }
    return json.dumps(settings)


def points(cycles: int, chance: random.Random, wanted: Sequence[str]) -> Iterator[str]:
    """Every point in turn, in an order of chance, each at a different passing; an empty one: any moment."""
    for number in range(cycles):
        if number % len(wanted) == 0:
            order = chance.sample(wanted, len(wanted))
        point = order[number % len(wanted)]
        most = 2 if point.startswith(ONCE_A_FILE) else 4
        yield f"{point}:{chance.randint(1, most)}" if point else ""


def share_classes(folder: Path, postgres: str) -> str:
    """JVM options by which each Spark starts in half of the time: classes that another one wrote down.

    A pipeline loads a few events and ends; its JVM then writes the classes that it had. Without such a file
    every start is as slow as the first, and nothing else changes.
    """
    archive, own = folder / "classes.jsa", folder / "warm"
    (own / "data/events/incoming").mkdir(parents=True)
    lines = "\n".join(json.dumps(event(9, number)) for number in range(20))
    (own / "data/events/incoming/incoming.tok=web-2026-01-01T00-00-00.000.log").write_text(lines)
    option = f"-XX:ArchiveClassesAtExit={archive} -Xlog:disable"
    (own / "headwater.yml").write_text(configuration(own, 1, postgres, option, "warm"))
    pipeline = HeadwaterProcess(own, "pipeline", "run", name="pipeline")
    pipeline.start()
    code = pipeline.wait(ARCHIVE_SECONDS)
    deadline = time.monotonic() + ARCHIVE_SECONDS
    while code == 0 and not archive.exists() and time.monotonic() < deadline:
        time.sleep(0.5)  # the JVM outlives its parent for as long as it writes
    return f"-XX:SharedArchiveFile={archive} -Xlog:disable" if archive.exists() else ""


def run(folder: Path, cycles: Sequence[str], seed: int, postgres: str) -> bool:
    chance = random.Random(seed)
    port = free_port()
    began = time.monotonic()
    options = share_classes(folder, postgres) if len(cycles) >= WORTH_SHARING else ""
    print(f"classes shared: {bool(options)}, after {time.monotonic() - began:.0f} s", flush=True)
    (folder / "headwater.yml").write_text(configuration(folder, port, postgres, options))
    server = HeadwaterProcess(folder, "serve", name="server")
    pipeline = HeadwaterProcess(folder, "pipeline", "run", "--every", "0.2s", name="pipeline")
    senders = [EventSender(number, port) for number in range(SENDERS)]
    deaths: Counter[str] = Counter()
    try:
        server.start()
        for sender in senders:
            sender.start()
        for number, point in enumerate(cycles, 1):
            began = time.monotonic()
            pipeline.start(point)
            if number % 5 == 0:
                server.kill()
                server.start(f"{chance.choice(SERVER_POINTS)}:{chance.randint(1, 50)}")
                deaths["server"] += 1
            limit = ARMED_SECONDS if point else chance.uniform(4, 25)
            deadline = began + limit
            code = None
            while code is None and time.monotonic() < deadline:
                code = pipeline.wait(0.2)
                waiting = len(unprocessed(folder / "data" / "events"))
                for sender in senders:
                    sender.paused = waiting > MOST_WAITING
                if not server.is_running:
                    deaths["server"] += 1
                    server.start()
            pipeline.kill()
            if code is not None and code != -signal.SIGKILL:
                print(pipeline.tail())
                raise SystemExit(f"the pipeline ended by itself with {code} in cycle {number} ({point})")
            name = point.partition(":")[0] if code is not None else "a moment of chance"
            deaths[name] += 1
            print(f"cycle {number}: killed at {name} after {time.monotonic() - began:.1f} s", flush=True)
        for sender in senders:
            sender.stopping.set()
        for sender in senders:
            sender.join()
        server.stop()
        finish(folder, pipeline)
    finally:
        pipeline.kill()
        server.kill()
    return report(folder, senders, deaths, postgres)


def finish(folder: Path, pipeline: HeadwaterProcess) -> None:
    """Run the pipeline without a kill until every file is loaded."""
    pipeline.start()
    deadline = time.monotonic() + FINAL_SECONDS
    events = folder / "data" / "events"
    while unprocessed(events) or EventFolder(events).active_files():
        if time.monotonic() > deadline or not pipeline.is_running:
            print(pipeline.tail())
            raise SystemExit(f"{len(unprocessed(events))} files were not done in {FINAL_SECONDS:g} s")
        time.sleep(0.2)
    pipeline.stop()


def report(folder: Path, senders: list[EventSender], deaths: Counter[str], postgres: str) -> bool:
    sent = {(number, i) for number, sender in enumerate(senders) for i in range(sender.sent)}
    acknowledged = {id for sender in senders for id in sender.acknowledged}
    clean, poison = ({id for id in acknowledged if is_poison(id[1]) is wanted} for wanted in (False, True))
    verdicts = [
        judge("duck", rows_of_duckdb(folder / "warehouse.duckdb"), clean, sent),
        judge("pg", rows_of_postgres(postgres), clean, sent),
    ]
    good = all(verdict.is_good for verdict in verdicts)
    counts = stat_events(folder / "data" / "events", time.time())
    archived = sorted((folder / "data" / "events" / "archive").glob("*/incoming.*.log.gz"))
    lines = sum(1 for path in archived for _ in LineReader(path))
    print(f"\n{len(sent):,} sent, {len(acknowledged):,} acknowledged; deaths: {dict(sorted(deaths.items()))}")
    for verdict in verdicts:
        print(verdict)
        errors = rejected_ids(folder / "data/events", verdict.destination)
        lost, doubled = poison - set(errors), len(errors) - len(set(errors))
        print(f"  rejects: {len(errors)}, lost {len(lost)}, doubled {doubled}")
        good = good and not lost and not doubled and all(is_poison(number) for _, number in errors)
        counted = next(each for each in counts.destinations if each.id == verdict.destination)
        print(
            f"  {counted.events:,} events = {counted.rows:,} rows + {counted.skipped:,} skipped + "
            f"{counted.rejected:,} rejected"
        )
        good = good and counted.events == counted.rows + counted.skipped + counted.rejected == lines
        good = good and (counted.rows, counted.rejected) == (verdict.rows, len(errors))
    return have_same_rows(verdicts) and good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--points", default=",".join(["", *POINTS]), help="crash points, by commas")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # An exception, so that SIGTERM leaves neither processes nor folders behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    cycles = list(points(options.cycles, random.Random(options.seed), options.points.split(",")))
    with tempfile.TemporaryDirectory(prefix="headwater-crash-") as folder, PostgresServer() as postgres:
        good = run(Path(folder), cycles, options.seed, postgres.url)
    print("nothing lost, nothing doubled, nothing changed" if good else "A PROMISE WAS BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

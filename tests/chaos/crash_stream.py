"""Kill drivers, workers and the destination of streams while events come in, then count every event.

    python -m tests.chaos.crash_stream --kills 30 --events 200000

Real processes: `headwater serve` takes events in over HTTP and puts them into two queues; `headwater pipeline
stream` loads them into DuckDB and into Postgres. Each round some of the events are sent, and then something
dies: the driver with its JVM (by SIGKILL at a named crash point or at a moment of chance), the JVM alone, in
which the executor is, the server, or Postgres. At the end the streams run in peace, and the oracle compares
rows and values with what was acknowledged. Exits 1 if one is missing, doubled or changed.
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
from collections.abc import Callable, Sequence
from pathlib import Path

from headwater.log.files.layout import EventFolder
from headwater.log.queue.offline import tail_of
from headwater.log.streams import StreamCursor
from headwater.system.crash_points import CRASH_POINTS
from headwater.testing.processes import HeadwaterProcess, free_port
from tests.chaos.load import QUICK, TEMPLATE, TOKEN, BulkSender, is_poison
from tests.chaos.oracle import have_same_rows, judge, rejected_ids, rows_of_duckdb, rows_of_postgres
from tests.parts.postgres import PostgresServer
from tests.support.process_tree import kill

DESTINATIONS = ("duck", "pg")
POINTS = [point for point in CRASH_POINTS if point.startswith(("stream.", "load."))]
KINDS = ("driver", "driver", "driver", "jvm", "jvm", "destination", "destination", "server")
ARMED_SECONDS = 300.0
JVM_GONE = 1
FINAL_SECONDS = 1800.0


def configuration(folder: Path, port: int, postgres: str) -> str:
    common = {"table_name_template": TEMPLATE, "mode": "stream"}
    settings = {
        "data_dir": str(folder / "data"),
        "gateway": {"port": port},
        "tokens": [TOKEN],
        "log": {"partition_bytes": 4 << 20},
        "events": {"rotation_minutes": 0.5},
        "pipeline": {
            "master": "local[2]",
            "memory": "1g",
            "spark": {"spark.driver.extraJavaOptions": QUICK},
            "stream": {"max_batch_events": 3000, "max_retry_seconds": 2},
        },
        "destinations": [
            common | {"id": "duck", "type": "duckdb", "path": str(folder / "warehouse.duckdb")},
            common | {"id": "pg", "type": "postgres", "url": postgres},
        ],
    }
    return json.dumps(settings)


def queue(folder: Path, id: str) -> Path:
    return EventFolder(folder / "data" / "events").queue(id)


def positions(folder: Path) -> list[int]:
    return [cursor.position if (cursor := StreamCursor.peek(queue(folder, id))) else 1 for id in DESTINATIONS]


def is_done(folder: Path) -> bool:
    return all(
        at == tail_of(queue(folder, id)) for at, id in zip(positions(folder), DESTINATIONS, strict=True)
    )


class Round:
    """Everything that one kill needs."""

    def __init__(self, folder: Path, postgres: PostgresServer, port: int, chance: random.Random) -> None:
        self.folder = folder
        self.postgres = postgres
        self.chance = chance
        self.server = HeadwaterProcess(folder, "serve", name="server")
        self.stream = HeadwaterProcess(folder, "pipeline", "stream", name="stream")
        self.sender = BulkSender(port)
        self.deaths: Counter[str] = Counter()

    def run(self, kind: str, events: int) -> None:
        point = f"{self.chance.choice(POINTS)}:{self.chance.randint(1, 3)}" if kind == "driver" else ""
        if kind == "driver" and self.chance.random() < 0.25:
            point = ""  # any moment
        if kind == "driver":
            self.stream.kill()
        if not self.stream.is_running:
            self.stream.start(point)
        began = positions(self.folder)
        self.sender.send(events)
        self.wait(lambda: not self.stream.is_running or positions(self.folder) > began)
        time.sleep(self.chance.uniform(0, 3))
        getattr(self, kind)(point)

    def driver(self, point: str) -> None:
        if point:
            self.wait(lambda: not self.stream.is_running or is_done(self.folder))
        name = f"driver at {point.partition(':')[0]}" if not self.stream.is_running else "driver"
        self.stream.kill()
        self.deaths[name] += 1

    def jvm(self, point: str) -> None:
        """Kill the JVM alone: the driver must notice and exit, so that its supervisor restarts it."""
        kill(self.stream.pid, lambda words: words[0].endswith(b"java"))
        deadline = time.monotonic() + ARMED_SECONDS
        while self.stream.is_running and time.monotonic() < deadline:
            time.sleep(0.2)
        if self.stream.is_running:
            raise SystemExit("the driver goes on without its JVM")
        self.deaths["jvm"] += 1

    def destination(self, point: str) -> None:
        self.postgres.crash()
        self.sender.send(500)
        time.sleep(self.chance.uniform(0, 3))
        self.postgres.start()
        self.deaths["destination"] += 1

    def server_dies(self) -> None:
        self.server.kill()
        self.server.start()
        self.deaths["server"] += 1

    def wait(self, condition: Callable[[], bool], seconds: float = ARMED_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not condition():
            for process in (self.server, self.stream):
                if process.exit_code not in (None, JVM_GONE, -signal.SIGKILL):
                    print(process.tail())
                    raise SystemExit(f"a process ended by itself with {process.exit_code}")
            time.sleep(0.2)

    def finish(self) -> None:
        if not self.stream.is_running:
            self.stream.start()
        deadline = time.monotonic() + FINAL_SECONDS
        while not is_done(self.folder):
            if time.monotonic() > deadline:
                print(self.stream.tail())
                raise SystemExit(f"the streams are not done: {positions(self.folder)}")
            if not self.stream.is_running:  # its crash point came late
                self.stream.start()
            time.sleep(0.3)
        self.stream.stop()
        self.server.stop()


def run(folder: Path, kinds: Sequence[str], events: int, seed: int, postgres: PostgresServer) -> bool:
    port = free_port()
    (folder / "headwater.yml").write_text(configuration(folder, port, postgres.url))
    rounds = Round(folder, postgres, port, random.Random(seed))
    try:
        _ = rounds.server.start().url
        for number, kind in enumerate(kinds, 1):
            began = time.monotonic()
            if kind == "server":
                rounds.server_dies()
                rounds.sender.send(events // len(kinds))
            else:
                rounds.run(kind, events // len(kinds))
            print(
                f"round {number}: {kind}, {time.monotonic() - began:.1f} s, at {positions(folder)}",
                flush=True,
            )
        rounds.finish()
    finally:
        rounds.stream.kill()
        rounds.server.kill()
    return report(folder, rounds, postgres.url)


def report(folder: Path, rounds: Round, postgres: str) -> bool:
    sender = rounds.sender
    sent = {(0, number) for number in range(sender.sent)}
    clean = {id for id in sender.acknowledged if not is_poison(id[1])}
    poison = sender.acknowledged - clean
    print(f"\n{len(sent):,} sent, {len(sender.acknowledged):,} acknowledged; deaths: {dict(rounds.deaths)}")
    good = True
    verdicts = []
    for id, rows in (
        ("duck", rows_of_duckdb(folder / "warehouse.duckdb")),
        ("pg", rows_of_postgres(postgres)),
    ):
        verdict = judge(id, rows, clean, sent)
        errors = rejected_ids(folder / "data/events", id)
        lost = poison - set(errors)
        doubled = len(errors) - len(set(errors))
        cursor = StreamCursor.peek(queue(folder, id))
        assert cursor is not None
        print(verdict)
        print(f"  rejects: {len(errors)}, lost {len(lost)}, doubled {doubled}; missing {cursor.missing}")
        adds_up = cursor.rows == verdict.rows and cursor.rejected == len(errors)
        print("  the numbers add up" if adds_up else f"  THE NUMBERS DO NOT ADD UP: {cursor}")
        good = good and verdict.is_good and not lost and not doubled and not cursor.missing and adds_up
        verdicts.append(verdict)
    return have_same_rows(verdicts) and good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--kinds", default="", help="what dies, by commas, instead of what chance says")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    chance = random.Random(options.seed)
    kinds = options.kinds.split(",") if options.kinds else chance.choices(KINDS, k=options.kills)
    with tempfile.TemporaryDirectory(prefix="headwater-crash-") as folder, PostgresServer() as postgres:
        good = run(Path(folder), kinds, options.events, options.seed, postgres)
    print("nothing lost, nothing doubled, nothing changed" if good else "A PROMISE WAS BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

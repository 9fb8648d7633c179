"""Kill the pipeline over and over while events come in, then look for every event that was acknowledged.

    python -m scripts.crash_pipeline --cycles 50

Real processes: `headwater serve` takes events in over HTTP, and `headwater pipeline run --every …` loads them
into DuckDB and into Postgres. Each cycle the pipeline dies by SIGKILL at a named crash point or at
a moment of chance, and now and then the server does. At the end one pipeline loads what is left, and the
oracle compares rows and values with what was acknowledged. Exits 1 if one is missing, doubled or changed.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.parts.postgres import PostgresServer

from headwater.crash_points import CRASH_POINTS
from headwater.log.files.layout import EventFolder, unprocessed
from headwater.log.rejects.destination_file import DestinationRejects

SENDERS = 4
PAUSE_SECONDS = 0.05  # between two requests of a sender, so that the machine has time for the rest
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
# Only the quick compiler of the JVM: each of these processes dies before the other one pays.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ONCE_A_FILE = ("pipeline.after_status", "pipeline.after_archive", "archive.", "failed.")
TEMPLATE = "{{ event_type }}{% if poison is defined %}{{ poison | date('%Y') }}{% endif %}"
TABLES = ("clicks", "views")
TOKENS = ("web",)

Id = tuple[int, int]  # sender and number


def event(sender: int, number: int) -> dict[str, Any]:
    """The event of an id: always the same, with a field whose type drifts and one that comes and goes."""
    chance = random.Random(f"{sender}/{number}")
    found: dict[str, Any] = {
        "event_type": TABLES[number % 2],
        "sender": sender,
        "number": number,
        "text": chance.choice(["plain", "it's", 'a "quote"', "líne\nbreak", "\\", "日本", "--;"]) * 3,
        "amount": number / 4,
        "nested": {"flag": number % 3 == 0, "list": [number, "x"]},
        "drift": chance.choice([number, number / 8, str(number), number % 2 == 0]),
    }
    if number % 11 == 0:
        found[f"field_{number % 5}"] = {"deep": number}
    if is_poison(number):
        found["poison"] = "no time"
    return found


def is_poison(number: int) -> bool:
    """Whether its table's name cannot be evaluated, so that it becomes a reject."""
    return number % 50 == 7


def checked(row: dict[str, Any]) -> tuple[Any, ...]:
    """What is compared, value by value."""
    return (row["sender"], row["number"], row["text"], float(row["amount"]), bool(row["flag"]))


def expected(id: Id) -> tuple[Any, ...]:
    found = event(*id)
    return checked(found | {"flag": found["nested"]["flag"]})


class Sender(threading.Thread):
    """One event after the other; the numbers go on over the server's deaths, an event is sent once."""

    def __init__(self, name: int, port: int) -> None:
        super().__init__(name=f"sender-{name}", daemon=True)
        self._sender = name
        self._port = port
        self._token = TOKENS[name % len(TOKENS)]
        self.sent = 0
        self.acknowledged: list[Id] = []
        self.paused = False
        self.stopping = threading.Event()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        while not self.stopping.wait(PAUSE_SECONDS):
            if self.paused:
                continue
            number = self.sent
            try:
                body = json.dumps(event(self._sender, number))
                self.sent += 1
                connection.request("POST", f"/api/v1/s2s/event?token={self._token}-server", body)
                answer = connection.getresponse()
                answer.read()
                if answer.status == 200:
                    self.acknowledged.append((self._sender, number))
            except (OSError, http.client.HTTPException):
                connection.close()
                self.stopping.wait(0.1)
        connection.close()


class Process:
    """A `headwater` command in a process group of its own, killed with all that it started."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self._output = folder / f"{name}.txt"
        self._arguments = [sys.executable, "-m", "headwater", "-c", str(folder / "headwater.yml"), *arguments]
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, crash_point: str = "") -> None:
        environ = {key: value for key, value in os.environ.items() if key != "HEADWATER_CRASH_POINT"}
        if crash_point:
            environ["HEADWATER_CRASH_POINT"] = crash_point
        with self._output.open("ab") as output:
            self._child = subprocess.Popen(
                self._arguments, stdout=output, stderr=output, env=environ, start_new_session=True
            )

    @property
    def is_alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def code(self) -> int | None:
        """The exit code of the last one that was started; None while it runs, or before."""
        return None if self._child is None else self._child.poll()

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def wait(self, seconds: float) -> int | None:
        """The exit code; None if it goes on after so many seconds."""
        assert self._child is not None
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """SIGKILL to it and to the JVM that it started."""
        if self._child is not None:
            try:
                os.killpg(self._child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._child.wait()

    def stop(self, seconds: float = 60.0) -> None:
        assert self._child is not None
        self._child.send_signal(signal.SIGTERM)
        if self.wait(seconds) is None:
            self.kill()

    def tail(self) -> str:
        return self._output.read_text(errors="replace")[-3000:]


class Verdict(NamedTuple):
    """What the oracle found for one destination."""

    destination: str
    rows: int
    lost: int
    doubled: int
    changed: int
    strange: int
    checksum: str

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.doubled or self.changed or self.strange)


def judge(destination: str, rows: Sequence[tuple[Any, ...]], acknowledged: set[Id], sent: set[Id]) -> Verdict:
    counts = Counter((row[0], row[1]) for row in rows)
    changed = [row for row in rows if row != expected((row[0], row[1]))]
    digest = hashlib.sha256(repr(sorted(rows)).encode()).hexdigest()
    return Verdict(
        destination,
        len(rows),
        len(acknowledged - counts.keys()),
        sum(count - 1 for count in counts.values()),
        len(changed),
        len(counts.keys() - sent),
        digest[:16],
    )


SELECT = "SELECT sender, number, text, amount, nested_flag FROM {}"


def rows_of_duckdb(path: Path) -> list[tuple[Any, ...]]:
    import duckdb

    with duckdb.connect(str(path), read_only=True) as connection:
        found = [row for table in TABLES for row in connection.execute(SELECT.format(table)).fetchall()]
    return [_row(row) for row in found]


def rows_of_postgres(url: str) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(url) as connection:
        found = [row for table in TABLES for row in connection.execute(SELECT.format(table)).fetchall()]
    return [_row(row) for row in found]


def _row(row: Sequence[Any]) -> tuple[Any, ...]:
    return checked(dict(zip(("sender", "number", "text", "amount", "flag"), row, strict=True)))


def configuration(folder: Path, port: int, postgres: str, java_options: str, schema: str = "public") -> str:
    tokens = [{"id": id, "server_secret": f"{id}-server"} for id in TOKENS]
    common = {"table_name_template": TEMPLATE}
    settings = {
        "data_dir": str(folder / "data"),
        "gateway": {"port": port},
        "tokens": tokens,
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
    pipeline = Process(own, "pipeline", "pipeline", "run")
    pipeline.start()
    code = pipeline.wait(ARCHIVE_SECONDS)
    deadline = time.monotonic() + ARCHIVE_SECONDS
    while code == 0 and not archive.exists() and time.monotonic() < deadline:
        time.sleep(0.5)  # the JVM outlives its parent for as long as it writes
    return f"-XX:SharedArchiveFile={archive} -Xlog:disable" if archive.exists() else ""


def run(folder: Path, cycles: Sequence[str], seed: int, postgres: str) -> bool:
    chance = random.Random(seed)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    began = time.monotonic()
    options = share_classes(folder, postgres) if len(cycles) >= WORTH_SHARING else ""
    print(f"classes shared: {bool(options)}, after {time.monotonic() - began:.0f} s", flush=True)
    (folder / "headwater.yml").write_text(configuration(folder, port, postgres, options))
    server = Process(folder, "server", "serve")
    pipeline = Process(folder, "pipeline", "pipeline", "run", "--every", "0.2s")
    senders = [Sender(number, port) for number in range(SENDERS)]
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
                if not server.is_alive:
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


def finish(folder: Path, pipeline: Process) -> None:
    """One pipeline that nobody kills, until nothing waits any more."""
    pipeline.start()
    deadline = time.monotonic() + FINAL_SECONDS
    events = folder / "data" / "events"
    while unprocessed(events) or EventFolder(events).active_files():
        if time.monotonic() > deadline or not pipeline.is_alive:
            print(pipeline.tail())
            raise SystemExit(f"{len(unprocessed(events))} files were not done in {FINAL_SECONDS:g} s")
        time.sleep(0.2)
    pipeline.stop()


def report(folder: Path, senders: list[Sender], deaths: Counter[str], postgres: str) -> bool:
    sent = {(number, i) for number, sender in enumerate(senders) for i in range(sender.sent)}
    acknowledged = {id for sender in senders for id in sender.acknowledged}
    clean, poison = ({id for id in acknowledged if is_poison(id[1]) is wanted} for wanted in (False, True))
    verdicts = [
        judge("duck", rows_of_duckdb(folder / "warehouse.duckdb"), clean, sent),
        judge("pg", rows_of_postgres(postgres), clean, sent),
    ]
    good = all(verdict.is_good for verdict in verdicts)
    print(f"\n{len(sent):,} sent, {len(acknowledged):,} acknowledged; deaths: {dict(sorted(deaths.items()))}")
    for verdict in verdicts:
        print(verdict)
        errors = [
            (found["sender"], found["number"])
            for found in (
                json.loads(error.line())
                for error in DestinationRejects(folder / "data/events").read(verdict.destination)
            )
        ]
        lost, doubled = poison - set(errors), len(errors) - len(set(errors))
        print(f"  rejects: {len(errors)}, lost {len(lost)}, doubled {doubled}")
        good = good and not lost and not doubled and all(is_poison(number) for _, number in errors)
    same = verdicts[0].checksum == verdicts[1].checksum
    print("both destinations have the same rows" if same else "the destinations differ")
    return good and same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=int(os.environ.get("HEADWATER_CRASH_CYCLES", "50")))
    parser.add_argument("--points", default=",".join(["", *POINTS]), help="crash points, by commas")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # by an exception, so that whoever stops it leaves neither processes nor folders behind
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    cycles = list(points(options.cycles, random.Random(options.seed), options.points.split(",")))
    with tempfile.TemporaryDirectory(prefix="headwater-crash-") as folder, PostgresServer() as postgres:
        good = run(Path(folder), cycles, options.seed, postgres.url)
    print("nothing lost, nothing doubled, nothing changed" if good else "A PROMISE WAS BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

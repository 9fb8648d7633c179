"""Run everything for minutes under a steady load while parts of it die, then count; a table and a plot.

    python -m tests.chaos.soak --seconds 600 --plot soak.svg

Real processes: `headwater up` with the graph, a stream into DuckDB, batches into Postgres, and an OpenLineage
backend behind the log. Two senders post events, one posts lineage. Every few seconds one of these dies by
SIGKILL: the gateway, a driver, its JVM, the Python workers of its executors, Postgres, or the backend. At the
end all is left in peace until nothing waits, and the oracle compares. Exits 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from headwater.log.files.layout import EventFolder
from headwater.log.queue.offline import stat, tail_of
from headwater.log.streams import StreamCursor
from headwater.testing.processes import HeadwaterProcess, OpenLineageProcess, free_port
from tests.chaos.load import QUICK, TEMPLATE, TOKEN, EventSender, is_poison
from tests.chaos.memory_watch import Watch
from tests.chaos.oracle import judge, rejected_ids, rows_of_duckdb, rows_of_postgres
from tests.parts.postgres import PostgresServer
from tests.support.process_tree import descendants, is_worker

SENDERS = 2
WARM_SECONDS = 300.0  # for both Sparks to be there, before anything dies
QUIET_SECONDS = 900.0  # for everything that waits to be done
STOP_SECONDS = 300.0
LINEAGE_PAUSE = 0.02
JOB = "soak"


class LineageSender(threading.Thread):
    """Posts numbered lineage events, one after the other, each once."""

    def __init__(self, port: int) -> None:
        super().__init__(name="lineage", daemon=True)
        self._port = port
        self._run = str(uuid.uuid4())
        self.sent = 0
        self.acknowledged: list[int] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        headers = {"Content-Type": "application/json"}
        while not self.stopping.wait(LINEAGE_PAUSE):
            number, self.sent = self.sent, self.sent + 1
            try:
                connection.request("POST", "/api/v1/lineage", json.dumps(self._event(number)), headers)
                answer = connection.getresponse()
                answer.read()
                if answer.status in (200, 201):
                    self.acknowledged.append(number)
            except (OSError, http.client.HTTPException):
                connection.close()
                self.stopping.wait(0.1)
        connection.close()

    def _event(self, number: int) -> dict[str, Any]:
        return {
            "eventType": "OTHER",
            "eventTime": "2026-11-16T10:00:00Z",
            "producer": "https://headwater.example/soak",
            "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
            "run": {"runId": self._run},
            "job": {"namespace": JOB, "name": JOB},
            "outputs": [{"namespace": JOB, "name": str(number)}],
        }


def configuration(folder: Path, port: int, backend: str, postgres: str) -> str:
    common = {"table_name_template": TEMPLATE}
    settings = {
        "data_dir": str(folder / "data"),
        "gateway": {"port": port},
        "tokens": [TOKEN],
        "events": {"rotation_minutes": 0.1},
        "outlets": [
            {
                "name": "backend",
                "type": "openlineage",
                "url": backend,
                "retry": {"initial_seconds": 0.1, "max_seconds": 2},
            }
        ],
        "pipeline": {
            "master": "local[2]",
            "memory": "1g",
            "spark": {"spark.driver.extraJavaOptions": QUICK},
            "stream": {"max_retry_seconds": 2},
        },
        "destinations": [
            common
            | {"id": "duck", "type": "duckdb", "path": str(folder / "warehouse.duckdb"), "mode": "stream"},
            common | {"id": "pg", "type": "postgres", "url": postgres},
        ],
    }
    return json.dumps(settings)


class Soak:
    """All parts of one soak, who dies, and what is left at the end."""

    def __init__(self, folder: Path, postgres: PostgresServer, seed: int) -> None:
        self.folder = folder
        self.postgres = postgres
        self.chance = random.Random(seed)
        port = free_port()
        self.backend = OpenLineageProcess(folder)
        (folder / "headwater.yml").write_text(configuration(folder, port, self.backend.url, postgres.url))
        self.port = port
        self.up = HeadwaterProcess(folder, "up", "--every", "2s")
        self.senders = [EventSender(number, port) for number in range(SENDERS)]
        self.lineage = LineageSender(port)
        self.deaths: Counter[str] = Counter()
        self.watch = Watch(self._parts, self._progress)

    # --- parts ---------------------------------------------------------------------------------------

    def _parts(self) -> dict[str, int]:
        """Process ids of the parts, by name."""
        found: dict[str, int] = {}
        for pid, words in descendants(self.up.pid):
            if name := _part(words):
                found.setdefault(name, pid)
        return found

    def _progress(self) -> dict[str, int]:
        cursor = StreamCursor.peek(self._queue())
        acknowledged = sum(len(sender.acknowledged) for sender in self.senders)
        return {"acknowledged": acknowledged, "stream": cursor.position - 1 if cursor else 0}

    def _queue(self) -> Path:
        return EventFolder(self.folder / "data" / "events").queue("duck")

    # --- the run -------------------------------------------------------------------------------------

    def run(self, seconds: float, every: float) -> int:
        """The load, and deaths; the exit code of `headwater up`."""
        self.backend.start()
        _ = self.up.start().url
        senders: list[EventSender | LineageSender] = [*self.senders, self.lineage]
        for sender in senders:
            sender.start()
        _wait(self._is_warm, WARM_SECONDS, lambda: "not all parts have begun to work", self.up)
        self.watch.start()
        end = time.monotonic() + seconds
        kinds: list[str] = []
        while time.monotonic() < end:
            time.sleep(min(every, max(0.0, end - time.monotonic())))
            kinds = kinds or self.chance.sample(VICTIMS, len(VICTIMS))
            kind = kinds.pop()
            self.deaths[kind] += self.kill(kind)
            self.watch.mark(kind)
            done, left = self._progress(), end - time.monotonic()
            print(f"{kind} killed; {done['acknowledged']:,} acknowledged, {left:.0f} s to go", flush=True)
        for sender in senders:
            sender.stopping.set()
            sender.join()
        print("the load has ended; waiting until nothing waits ...", flush=True)
        _wait(lambda: not self.waiting(), QUIET_SECONDS, lambda: f"there waits {self.waiting()}", self.up)
        self.watch.stop()
        self.up.stop(seconds=STOP_SECONDS)
        self.backend.kill()
        if self.up.exit_code:
            print(self.up.tail(), flush=True)
        return self.up.exit_code or 0

    def _is_warm(self) -> bool:
        archive = self.folder / "data" / "events" / "archive"
        return self._progress()["stream"] > 0 and archive.exists() and any(archive.rglob("*.gz"))

    def kill(self, kind: str) -> int:
        """Kill a part; return whether it was running."""
        if kind == "postgres":
            self.postgres.crash()
            time.sleep(self.chance.uniform(0.5, 3))
            self.postgres.start()
            return 1
        if kind == "backend":
            self.backend.kill()
            time.sleep(self.chance.uniform(0.5, 3))
            self.backend.start()
            return 1
        found = [pid for pid, words in descendants(self.up.pid) if _part(words) == kind]
        if kind == "jvm" and found:
            found = [self.chance.choice(found)]
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return bool(found)

    def waiting(self) -> list[str]:
        """What waits anywhere, in words."""
        events = EventFolder(self.folder / "data" / "events")
        cursor, tail = StreamCursor.peek(self._queue()), tail_of(self._queue())
        files = [*events.active_files().values(), *(each.path for each in events.rotated_files())]
        found = [f"file {path.name}" for path in files]
        if cursor is None or cursor.position != tail:
            found.append(f"the stream: at {cursor.position if cursor else 'nothing'}, not at {tail}")
        for reader in stat(self.folder / "data" / "log").readers:
            if reader.lag_events:
                found.append(f"reader {reader.name}: {reader.lag_events} event(s) from {reader.position} on")
        return found

    # --- the end -------------------------------------------------------------------------------------

    def report(self) -> list[tuple[str, str, bool]]:
        """What was promised, what is there, and whether it is the same."""
        acknowledged = {id for sender in self.senders for id in sender.acknowledged}
        sent = {(n, number) for n, sender in enumerate(self.senders) for number in range(sender.sent)}
        clean = {id for id in acknowledged if not is_poison(id[1])}
        found: list[tuple[str, str, bool]] = []
        for id, rows in (
            ("duck", rows_of_duckdb(self.folder / "warehouse.duckdb")),
            ("pg", rows_of_postgres(self.postgres.url)),
        ):
            verdict = judge(id, rows, clean, sent)
            poisoned = Counter(rejected_ids(self.folder / "data/events", id))
            lost = len((acknowledged - clean) - poisoned.keys())
            doubled = sum(poisoned.values()) - len(poisoned)
            text = (
                f"{len(clean):,} acknowledged, {verdict.rows:,} rows; lost {verdict.lost}, doubled "
                f"{verdict.doubled}, changed {verdict.changed}; {sum(poisoned.values()):,} rejects, "
                f"lost {lost}, doubled {doubled}"
            )
            found.append((f"rows of {id} (G5, G6)", text, verdict.is_good and not lost and not doubled))
        return [*found, *self._report_lineage(), *self.watch.verdicts()]

    def _report_lineage(self) -> list[tuple[str, str, bool]]:
        # The pipeline's own lineage is at the backend, too.
        events = [event for event in self.backend.events() if event["job"]["name"] == JOB]
        numbers = [int(event["outputs"][0]["name"]) for event in events]
        first = list(dict.fromkeys(numbers))
        wanted = self.lineage.acknowledged
        lost = len(set(wanted) - set(first))
        late = sum(after < before for before, after in pairwise(first))
        text = (
            f"{len(wanted):,} acknowledged, {len(first):,} delivered; lost {lost}, "
            f"out of order {late}, sent again {len(numbers) - len(first)}"
        )
        log = stat(self.folder / "data" / "log")
        numbers_of = []
        for each in log.readers:
            dropped = each.dropped_age + each.dropped_bytes + each.dropped_damage
            ends = each.delivered + each.rejected + dropped + each.lag_events
            equation = (
                f"{each.appended:,} appended = {each.delivered:,} delivered + {each.rejected:,} rejected + "
                f"{dropped:,} dropped + {each.lag_events:,} waiting"
            )
            numbers_of.append((f"numbers of {each.name} (G3)", equation, ends == each.appended))
        return [("lineage (G1, G2, G4)", text, lost == 0 and late == 0), *numbers_of]


VICTIMS = ("gateway", "stream driver", "batch driver", "jvm", "workers", "postgres", "backend")


def _part(words: list[bytes]) -> str:
    """Which part a process is, by its command line."""
    if is_worker(words):
        return "workers"
    if words[0].endswith(b"java"):
        return "jvm"
    if b"serve" in words:
        return "gateway"
    if b"pipeline" in words:
        return "stream driver" if b"stream" in words else "batch driver"
    return ""


def _wait(
    condition: Callable[[], bool], seconds: float, otherwise: Callable[[], str], up: HeadwaterProcess
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline or not up.is_running:
            print(up.tail())
            raise SystemExit(f"after {seconds:.0f} s, or without `headwater up`: {otherwise()}")
        time.sleep(0.3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--every", type=float, default=12.0, help="seconds between two deaths")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="where the plot goes, as SVG")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="headwater-soak-") as folder, PostgresServer() as postgres:
        soak = Soak(Path(folder), postgres, options.seed)
        try:
            code = soak.run(options.seconds, options.every)
            lines = [("stopped (exit code)", str(code), code == 0), *soak.report()]
        finally:
            soak.up.kill()
            soak.backend.kill()
    print(f"\n{options.seconds:.0f} s under load; deaths: {dict(soak.deaths)}")
    width = max(len(line[0]) for line in lines)
    for name, text, is_good in lines:
        print(f"{'ok ' if is_good else 'BAD'}  {name:{width}}  {text}")
    print()
    print("\n".join(soak.watch.plot()))
    if options.plot:
        options.plot.write_text(soak.watch.svg())
        print(f"\nthe plot is {options.plot}")
    good = all(line[2] for line in lines)
    print("\nevery promise held" if good else "\nA PROMISE WAS BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

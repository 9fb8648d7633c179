"""Kill `headwater serve` over and over under load, then look for every event that was acknowledged.

    python -m tests.chaos.crash --cycles 200

Real processes: the sidecar, and an OpenLineage backend that journals what it takes and refuses some events.
Producers on several connections note each acknowledged id. Each cycle the sidecar dies by SIGKILL, at a named
crash point or at a moment of chance. At the end one sidecar drains what is left, and the oracle compares.

One half of the kills is for a folder of its own, whose limits of age and bytes are so low that events and
rejects are dropped, and whose backend is down now and then. What was acknowledged there and is nowhere must
have been counted as dropped. Prints a table of each folder; exits 1 if any promise was broken.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from headwater.log.queue import offline as inspect
from headwater.log.rejects.store import RejectStore
from headwater.system.crash_points import CRASH_POINTS
from headwater.testing.processes import HeadwaterProcess, OpenLineageProcess

STAGES = ("writer.", "rotation.", "collection.", "cursor.", "reader.", "rejects.")
POINTS = [point for point in CRASH_POINTS if point.startswith(STAGES)]
SENDERS = 8
BATCH = 40
FIRST_EVENTS = 10  # that each sender sends before a kill at a random moment
BACKEND, FILE = "backend", "file"
SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs"
PRODUCER = "https://crash.example"
WAIT_SECONDS = 120.0
FEW_KILLS = 5  # after which the limits need not have dropped anything
PARTITION_BYTES = 64 * 1024
LIMITS = {"retention_bytes": 4 * PARTITION_BYTES, "retention_hours": 4 / 3600}  # B and T

Id = tuple[int, int]  # sender and number


def event(sender: int, number: int) -> dict[str, Any]:
    """The event of an id: always the same, and hard to compress, so that partitions fill."""
    chance = random.Random(f"{sender}/{number}")
    pad = {"_producer": PRODUCER, "_schemaURL": f"{SCHEMA}/RunFacet", "pad": chance.randbytes(600).hex()}
    return {
        "eventType": "RUNNING",
        "eventTime": "2026-01-31T12:00:00Z",
        "run": {"runId": str(uuid.UUID(int=number)), "facets": {"pad": pad}},
        "job": {"namespace": "crash", "name": str(sender)},
        "producer": f"{PRODUCER}/poison" if is_poison(number) else PRODUCER,
        "schemaURL": f"{SCHEMA}/RunEvent",
    }


def id_of(found: dict[str, Any]) -> Id:
    return int(found["job"]["name"]), uuid.UUID(found["run"]["runId"]).int


def is_poison(number: int) -> bool:
    """Whether the backend refuses the event."""
    return number % 15 == 3


class Sender:
    """One connection, one event after the other; the numbers go on over the sidecar's deaths."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.number = 0
        self.acknowledged: list[int] = []

    def send(self, port: int, count: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        try:
            for _ in range(count):
                self.number += 1
                body = json.dumps(event(self.name, self.number))
                connection.request("POST", "/api/v1/lineage", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                if answer.status == 200:
                    self.acknowledged.append(self.number)
        except (OSError, http.client.HTTPException):
            pass  # the sidecar is dead: this one was not acknowledged, and may or may not be there
        finally:
            connection.close()


class Run:
    """A folder, the backend's process, and one sidecar after the other."""

    def __init__(self, folder: Path, seed: int, limits: dict[str, float]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.limits = limits
        self.backend = OpenLineageProcess(folder, refuse="/poison").start()
        self.journal = self.backend.journal
        self.file = folder / "file.ndjson"
        self.log = folder / "data" / "log"
        self.rejects = folder / "data" / "rejects.db"
        self.senders = [Sender(name) for name in range(SENDERS)]
        self.died: Counter[str] = Counter()
        self.kills = 0
        self.repeated: dict[str, list[int]] = {BACKEND: [], FILE: []}  # by kill
        self._chance = random.Random(seed)
        self.server = HeadwaterProcess(folder, "serve", settings=self._settings())

    def _settings(self) -> dict[str, Any]:
        shared = {"max_batch_events": BATCH, "retry": {"initial_seconds": 0.01, "max_seconds": 0.1}}
        return {
            "data_dir": str(self.folder / "data"),
            "gateway": {"port": 0, "shutdown_timeout_seconds": 5},
            "log": {"partition_bytes": PARTITION_BYTES, "collect_seconds": 0.05, **self.limits},
            "outlets": [
                {"name": BACKEND, "type": "openlineage", "url": self.backend.url, **shared},
                {"name": FILE, "type": "file", "path": str(self.file), **shared},
            ],
        }

    def start(self, point: str = "") -> int:
        """Start the server and return its port; 0 if it died at the crash point while it started."""
        self.server.start(point)
        try:
            return self.server.port
        except RuntimeError:
            if self.server.exit_code != -signal.SIGKILL:
                raise
            return 0

    def cycle(self, point: str | None, events: int) -> None:
        """Load until the sidecar dies: at the point, or at a moment of chance."""
        process = self.server
        needs_no_backend = (point or "writer.").startswith(("writer.", "rotation."))
        if self.limits and needs_no_backend and self._chance.random() < 0.5:
            self.backend.stop()
        else:
            self._start_backend()
        port = self.start(f"{point}:{self._passes(point)}" if point else "")
        if port:
            began = [each.number for each in self.senders]
            threads = [threading.Thread(target=each.send, args=(port, events)) for each in self.senders]
            for thread in threads:
                thread.start()
            if point is None:
                # Deaths at the first writes are those of the named points.
                wanted = [number + FIRST_EVENTS for number in began]
                while any(thread.is_alive() for thread in threads) and any(
                    each.number < number for each, number in zip(self.senders, wanted, strict=True)
                ):
                    time.sleep(0.01)
                time.sleep(self._chance.uniform(0.0, 0.5))
                process.kill()
            for thread in threads:
                thread.join()
            deadline = time.monotonic() + 3  # cursors, collection and rejects come after the senders are done
            while process.is_running and time.monotonic() < deadline:
                time.sleep(0.01)
        self.died[(point or "at random") if not process.is_running else f"{point} (not reached)"] += 1
        process.kill()
        self.kills += 1
        self._count_repeated()

    def _passes(self, point: str) -> int:
        """At which pass the point kills: at the first, and once it has, anywhere under load."""
        often = point.startswith(("writer.", "cursor.", "reader."))
        return self._chance.randint(1, 40 if often else 4) if point in self.died else 1

    def _start_backend(self) -> None:
        if not self.backend.is_running:
            self.backend.start()

    def drain(self) -> None:
        """Run the server without a kill until every event is delivered."""
        self._start_backend()
        self.start()
        deadline = time.monotonic() + WAIT_SECONDS
        while any(reader.lag_events for reader in inspect.stat(self.log).readers):
            if time.monotonic() > deadline:
                raise SystemExit(f"it does not drain:\n{self.server.tail()}")
            time.sleep(0.05)
        self.server.stop()
        self._count_repeated()

    def _count_repeated(self) -> None:
        for name, path in ((BACKEND, self.journal), (FILE, self.file)):
            lines = path.read_bytes().splitlines() if path.exists() else []
            self.repeated[name].append(len(lines) - len(set(lines)) - sum(self.repeated[name]))

    def close(self) -> None:
        self.server.kill()
        self.backend.kill()


class Finding(NamedTuple):
    """One promise: what was counted, and whether it holds."""

    text: str
    number: int
    holds: bool


def judge(run: Run) -> list[Finding]:
    """The oracle: everything acknowledged is delivered or rejected, once, whole and in order."""
    arrived = {
        name: [json.loads(line) for line in path.read_bytes().splitlines()]
        for name, path in ((BACKEND, run.journal), (FILE, run.file))
    }
    ids = {name: [id_of(found) for found in events] for name, events in arrived.items()}
    first = {name: list(dict.fromkeys(found)) for name, found in ids.items()}
    store = RejectStore(run.rejects, max_bytes=1 << 40)
    rejected_events = [json.loads(reject.body) for reject in store.list(limit=1_000_000)]
    store.close()
    rejected = [id_of(found) for found in rejected_events]
    acknowledged = {(sender.name, number) for sender in run.senders for number in sender.acknowledged}
    sent = {(sender.name, number) for sender in run.senders for number in range(1, sender.number + 1)}
    whole = [*arrived[BACKEND], *arrived[FILE], *rejected_events]
    changed = sum(found != event(*id_of(found)) for found in whole)
    poison = {each for each in acknowledged if is_poison(each[1])}
    disorder = sum(
        before >= after
        for name in range(SENDERS)
        for order in first.values()
        for before, after in pairwise([number for sender, number in order if sender == name])
    )
    # each outlet has a cursor of its own; that both saw the same order shows that it is the log's
    at_both = set(first[FILE]) & set(first[BACKEND])
    same_order = len({tuple(each for each in order if each in at_both) for order in first.values()}) == 1
    readers = {reader.name: reader for reader in inspect.stat(run.log).readers}
    dropped = {name: reader.dropped_age + reader.dropped_bytes for name, reader in readers.items()}
    sums = all(
        reader.appended == reader.delivered + reader.rejected + dropped[name]
        and reader.lag_events == reader.dropped_damage == 0
        for name, reader in readers.items()
    )
    there = {BACKEND: set(ids[BACKEND]) | set(rejected), FILE: set(ids[FILE])}
    lost = sum(max(0, len(acknowledged - there[name]) - dropped[name]) for name in there)
    # Dropped while a kill left open whether it had arrived: it was in flight, and is never sent again.
    doubted = {name: dropped[name] - (readers[name].appended - len(there[name])) for name in there}
    in_doubt = BATCH * run.kills if run.limits else 0
    counts = readers[BACKEND].rejected == len(rejected) and all(
        readers[name].delivered == len(first[name]) - doubted[name] for name in there
    )
    poison_lost = max(0, len(poison - set(rejected)) - dropped[BACKEND])
    doubled = len(rejected) - len(set(rejected)) + len(set(rejected) & set(ids[BACKEND]))
    most = {name: max(repeated) for name, repeated in run.repeated.items()}
    return [
        Finding("events acknowledged", len(acknowledged), bool(acknowledged)),
        Finding("acknowledged and lost (G1)", lost, not lost),
        Finding(
            "dropped by the limits",
            sum(dropped.values()),
            any(dropped.values()) or run.kills < FEW_KILLS if run.limits else not any(dropped.values()),
        ),
        Finding(
            "dropped, and yet there",
            max(doubted.values()),
            all(0 <= number <= in_doubt for number in doubted.values()),
        ),
        Finding("never sent, and yet there", len(set(ids[FILE]) - sent), set(ids[FILE]) <= sent),
        Finding("not as they were sent", changed, not changed),
        Finding("out of a connection's order (G2)", disorder, not disorder),
        Finding("events in one order at both outlets (G2)", len(first[BACKEND]), same_order),
        Finding("poison events acknowledged", len(poison), bool(poison)),
        Finding("poison neither a reject nor dropped (G6)", poison_lost, not poison_lost),
        Finding("rejects twice, or also delivered", doubled, not doubled),
        Finding("repeated at the backend (G4)", sum(run.repeated[BACKEND]), True),
        Finding("most of them at one kill", most[BACKEND], most[BACKEND] <= BATCH),
        Finding("repeated in the file (G4)", sum(run.repeated[FILE]), True),
        Finding("most of them at one kill", most[FILE], most[FILE] <= BATCH),
        Finding("events appended; the counts add up (G3)", readers[BACKEND].appended, sums),
        Finding("events delivered; as counted (G3)", readers[BACKEND].delivered, counts),
        Finding("problems that verify finds", len(inspect.verify(run.log)), not inspect.verify(run.log)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cycles", type=int, default=200, help="how often the sidecar is killed")
    parser.add_argument("--events", type=int, default=60, help="events per connection and cycle")
    parser.add_argument("--at-random", action="store_true", help="kill at random moments only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep everything there, to look at it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = args.folder or Path(place)
        runs = [Run(folder / "plain", args.seed, {}), Run(folder / "limited", args.seed + 1, LIMITS)]
        began = time.monotonic()
        try:
            for number in range(args.cycles):
                # each point once, then points and moments of chance by turns
                by_point = not args.at_random and (number < len(POINTS) or number % 2)
                run = runs[number // 2 % 2]
                run.cycle(POINTS[number % len(POINTS)] if by_point else None, args.events)
                if sys.stderr.isatty():
                    print(f"\r{number + 1} of {args.cycles} kills", end="", file=sys.stderr)
            runs = [run for run in runs if run.kills]
            for run in runs:
                run.drain()
            findings = {run.folder.name: judge(run) for run in runs}
        finally:
            for run in runs:
                run.close()
    print(f"\n{sum(run.kills for run in runs)} kills in {time.monotonic() - began:.0f} s")
    died = sum((run.died for run in runs), Counter[str]())
    for name, count in sorted(died.items()):
        print(f"  {count:>9,}  {name}")
    findings["both"] = [
        Finding(
            "named crash points that killed",
            len(died.keys() & set(POINTS)),
            args.cycles < len(POINTS) or args.at_random or set(POINTS) <= died.keys(),
        ),
    ]
    for name, found in findings.items():
        print(f"\n{name}:")
        for finding in found:
            print(f"  {finding.number:>9,}  {finding.text:<42} {'ok' if finding.holds else 'BROKEN'}")
    return 0 if all(finding.holds for found in findings.values() for finding in found) else 1


if __name__ == "__main__":
    sys.exit(main())

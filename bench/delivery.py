"""`make bench-delivery`: keyed delivery side by side with dataset-go, in one run.

Both get the same file of events, the same keys and a DataSetServer with the same latency, each run in a
process of its own. Rounds alternate, so that whatever else the machine does hits both; medians are reported,
as ratios. The time is from the first event to the last answer; the peer's start, and its polling at shutdown,
are not counted. Needs `go`, which fetches and builds the peer's published module into the cache.

Then, behind the log: half of the events with one session that fails all the time, against the run without
it; twice as often, and each goes first half of the time, since the two are close and what else the machine
does is not.

100,000 events by default: a run takes seconds, so that its start does not count, and all of them some three
minutes, or five where others use the machine too. 200,000 take twice as long and show nothing more, but that
the peer's memory grows with them. On a machine whose processors are all busy, look at the CPU time per event:
there, events/s say who has more threads.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
from tests.parts import cache
from tests.parts.cache import Missing

from bench.memory import peak_rss_bytes
from bench.report import Table, write_result
from headwater.delivery import Client
from headwater.delivery.outlet_worker import OutletWorker
from headwater.errors import BatchRejected
from headwater.log.queue.log import Log
from headwater.log.rejects.store import RejectStore
from headwater.metrics import Metrics
from headwater.settings import OutletSettings
from headwater.testing import Answer, DataSetServer
from headwater.testing.http_server import Request

__all__ = ["main"]

LATENCY_SECONDS = 0.005
BATCH_EVENTS = 1000  # per call of add_events, on both sides
TOKEN = "bench"
DEAD_KEY = "key-0"
PEER = Path(__file__).parent / "peers" / "dataset_go"


def write_events(path: Path, count: int, keys: int) -> None:
    """About 1 KB each, always the same, text that compresses as log lines do."""
    chance = random.Random(count)
    words = [f"{chance.getrandbits(48):x}"[: chance.randrange(3, 11)] for _ in range(2000)]
    with path.open("wb") as file:
        for number in range(count):
            event = {
                "key": f"key-{number % keys}",
                "seq": number,
                "message": " ".join(chance.choices(words, k=118)),
                "app": "shop",
                "host": f"host-{chance.randrange(50)}",
                "status": chance.choice([200, 204, 404, 500]),
                "elapsed_ms": chance.random() * 100,
            }
            file.write(orjson.dumps(event) + b"\n")


def outlet_settings(url: str, compression: str = "gzip") -> OutletSettings:
    return OutletSettings(
        name="bench",
        type="dataset",
        group_by=("/key",),
        max_batch_events=10_000,
        max_batch_bytes=6_000_000,
        options={"url": url, "api_key": TOKEN, "compression": compression},
    )


# --- processes of their own, each prints one line of JSON


def serve(dead: bool) -> None:
    """The receiver: says its address, and at the end of stdin what it took."""
    with DataSetServer(token=TOKEN, latency_seconds=LATENCY_SECONDS, keeps_events=False) as server:
        if dead:
            server.answer_always(lambda request: Answer(status=503) if is_dead(request) else None)
        say({"url": server.url})
        sys.stdin.read()
        say({"events": server.events, "requests": server.requests, "at_once": server.most_at_once})


def is_dead(request: Request) -> bool:
    # the session's info stands before the events, and only there is the key
    return b'"%b"' % DEAD_KEY.encode() in request.body[:1000]


def send_by_client(file: Path, url: str, compression: str) -> None:
    client = Client(outlet_settings(url, compression))
    began = time.perf_counter()
    with file.open("rb") as lines:
        while batch := list(islice(lines, BATCH_EVENTS)):
            add(client, batch)
    left = client.close(600)
    seconds = time.perf_counter() - began
    delivered = client.statistics().delivered
    say(figures(delivered, seconds) | {"dropped": len(left), "refused": client.statistics().batches_refused})


def add(client: Client, batch: list[bytes]) -> None:
    while True:
        try:
            return client.add_events(batch)
        except BatchRejected:
            time.sleep(0.01)  # over budget: as its callers do, come again


def send_from_log(folder: Path, url: str, count: int) -> None:
    metrics = Metrics()
    log = Log.open(folder, metrics=metrics)
    rejects = RejectStore(folder / "rejects.db", max_bytes=1 << 20)
    log.forget("bench")
    drain = OutletWorker(outlet_settings(url), log, rejects, metrics)
    delivered = metrics.counter("delivery_events_delivered").values
    began = time.perf_counter()
    drain.start()
    while delivered.get(("bench",), 0) < count:
        time.sleep(0.005)
    say(figures(count, time.perf_counter() - began))
    drain.close(1.0)
    rejects.close()
    log.close()


def figures(events: int, seconds: float) -> dict[str, Any]:
    return {"events": events, "seconds": seconds, "peak_rss_bytes": peak_rss_bytes()}


def say(line: dict[str, Any]) -> None:
    print(orjson.dumps(line).decode(), flush=True)


# --- the benchmark


def build_peer() -> Path:
    """The peer's program in the cache, built from its published module where it is not there yet."""
    go = shutil.which("go")
    if go is None:
        raise Missing("`go`, which builds the peer, is not on PATH")
    sources = sorted(PEER.iterdir())
    version = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]

    def fill(folder: Path) -> None:
        built = subprocess.run(
            [go, "build", "-o", str(folder / "dataset_go"), "."], cwd=PEER, capture_output=True, text=True
        )
        if built.returncode != 0:
            raise Missing(f"the peer cannot be built: {built.stderr.strip()}")

    return cache.once(f"dataset-go-{version}", fill) / "dataset_go"


@contextmanager
def receiver(*, dead: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """A fresh receiver's address, and what it took, which is filled in at the end."""
    command = [sys.executable, "-m", "bench.delivery", "--as", "receiver", *(["--dead"] if dead else [])]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    taken: dict[str, Any] = {}
    try:
        yield orjson.loads(child.stdout.readline())["url"], taken
        child.stdin.close()
        taken |= orjson.loads(child.stdout.readline())
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def run(*command: str) -> dict[str, Any]:
    """A sender's figures, with the CPU time it used."""
    before = os.times()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    after = os.times()
    result: dict[str, Any] = orjson.loads(done.stdout)
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return result | {"cpu_seconds": spent, "events_per_second": result["events"] / result["seconds"]}


def round_of_headwater(file: Path, compression: str = "gzip") -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.delivery", "--as", "client", "--file", str(file)]
    with receiver() as (url, taken):
        result = run(*command, "--url", url, "--compression", compression)
    return result | {"taken": taken}


def round_of_peer(file: Path, program: Path) -> dict[str, Any]:
    with receiver() as (url, taken):
        result = run(str(program), "-file", str(file), "-endpoint", url, "-group-by", "key")
    return result | {"taken": taken}


def round_behind_log(folder: Path, count: int, *, dead: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.delivery", "--as", "drain", "--file", str(folder)]
    with receiver(dead=dead) as (url, taken):
        result = run(*command, "--url", url, "--events", str(count))
    return result | {"taken": taken}


def fill_log(folder: Path, file: Path, count: int) -> None:
    log = Log.open(folder)
    with file.open("rb") as lines:
        first = islice(lines, count)
        while batch := [line.rstrip() for line in islice(first, 2000)]:
            log.append_wait(batch)
    log.close()


def median(rounds: list[dict[str, Any]], name: str) -> float:
    return float(statistics.median(done[name] for done in rounds))


def ratio(rounds: dict[str, list[dict[str, Any]]], one: str, other: str, name: str) -> float:
    """Median of the rounds' own ratios: two runs that follow each other share the machine's mood."""
    pairs = zip(rounds[one], rounds[other], strict=True)
    return float(statistics.median(first[name] / second[name] for first, second in pairs))


def row(table: Table, name: str, rounds: list[dict[str, Any]]) -> None:
    rate, cpu = median(rounds, "events_per_second"), median(rounds, "cpu_seconds")
    requests = statistics.median(done["taken"]["requests"] for done in rounds)
    table.row(
        name,
        f"{rate:,.0f}",
        f"{cpu / rounds[0]['events'] * 1e6:.0f}",
        f"{median(rounds, 'peak_rss_bytes') / 1e6:.0f} MB",
        f"{requests:,.0f}",
        max(done["taken"]["at_once"] for done in rounds),
    )


def compare(arguments: argparse.Namespace, folder: Path) -> None:
    count, keys = arguments.events, arguments.keys
    peer = build_peer()
    print(f"delivery: {count:,} events, {keys:,} keys, {LATENCY_SECONDS * 1000:g} ms latency", flush=True)
    file, log = folder / "events.ndjson", folder / "log"
    write_events(file, count, keys)
    behind = count // 2
    fill_log(log, file, behind)
    healthy = behind - len(range(0, behind, keys))
    runs: dict[str, Callable[[], dict[str, Any]]] = {
        "headwater": lambda: round_of_headwater(file),
        "dataset-go": lambda: round_of_peer(file, peer),
        "headwater, zstd": lambda: round_of_headwater(file, "zstd"),
        "behind the log": lambda: round_behind_log(log, behind, dead=False),
        "one session dead": lambda: round_behind_log(log, healthy, dead=True),
    }
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in runs}
    *clients, without, with_dead = runs
    order = clients * arguments.rounds
    order += [without, with_dead, with_dead, without] * arguments.rounds
    for number, name in enumerate(order, 1):
        print(f"run {number} of {len(order)}: {name} …", flush=True)
        rounds[name].append(runs[name]())
    table = Table("", "events/s", "µs CPU/event", "peak memory", "requests", "at once")
    for name, done in rounds.items():
        row(table, name, done)
    print(f"\n{table}\n")
    for name, done in rounds.items():
        for one in done:
            if one["taken"]["events"] < one["events"] or one.get("dropped"):
                raise SystemExit(f"{name} lost events: {one}")
    ratios = {
        "rate": ratio(rounds, "headwater", "dataset-go", "events_per_second"),
        "cpu": ratio(rounds, "headwater", "dataset-go", "cpu_seconds"),
        "memory": ratio(rounds, "headwater", "dataset-go", "peak_rss_bytes"),
        "one_session_dead": ratio(rounds, "one session dead", "behind the log", "events_per_second"),
    }
    print(f"events/s of headwater to dataset-go:       {ratios['rate']:.2f} x (aim 2)")
    print(f"CPU per event of headwater to dataset-go:  {ratios['cpu']:.2f} x")
    print(f"peak memory of headwater to dataset-go:    {ratios['memory']:.2f} x")
    print(f"events/s of the others, one session dead:  {ratios['one_session_dead']:.2f} x (aim 0.9)")
    print(f"written: {write_result('delivery', {'ratios': ratios, 'rounds': rounds})}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--as", dest="role", choices=["receiver", "client", "drain"], help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--compression", default="gzip", help=argparse.SUPPRESS)
    parser.add_argument("--dead", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role == "receiver":
        serve(arguments.dead)
    elif arguments.role == "client":
        send_by_client(arguments.file, arguments.url, arguments.compression)
    elif arguments.role == "drain":
        send_from_log(arguments.file, arguments.url, arguments.events)
    else:
        with tempfile.TemporaryDirectory() as folder:
            try:
                compare(arguments, Path(folder))
            except Missing as missing:
                sys.exit(f"bench-delivery: {missing}")


if __name__ == "__main__":
    main()

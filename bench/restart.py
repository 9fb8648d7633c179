"""Many events behind many keys, half of the keys failing, and kill -9 in the midst: `make bench-restart`.

Shows that memory stays bounded whatever waits (G8), that failing keys delay no other key (G7), and that a
restart sends again only what was under way (G4). The outlet runs in a process of its own, which is killed;
the receiver runs here and counts how often it took each event.

    1  half of the keys fail; killed when half of what can be delivered is delivered
    2  restarted; killed when all that can be delivered is delivered
    3  restarted; runs for a while with nothing to do but to retry; then the failing keys recover
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import orjson

from bench.memory import peak_rss_bytes
from bench.report import Table, write_result
from headwater.delivery.outlet_worker import OutletWorker
from headwater.log.queue import offline as inspect
from headwater.log.queue.log import Log
from headwater.log.rejects.store import RejectStore
from headwater.metrics import Metrics
from headwater.settings import OutletSettings, RetrySettings
from headwater.testing.http_server import Answer, Request, ScriptedServer

__all__ = ["Figures", "Receiver", "run"]

EVENTS = 1_000_000
KEYS = 1_000
IDLE_SECONDS = 10.0
LIMIT_BYTES = 200_000_000
STALLED_SECONDS = 120.0  # no event in so long means that it has stopped, not that it is slow
OUTLET = "receiver"


class Receiver(ScriptedServer):
    """Takes batches of events; keys with an odd number fail while `failing`."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.failing = True
        self.taken = bytearray(count)  # how often each event came
        self.distinct = 0
        self.repeated = 0
        self.unordered = 0
        self._last: dict[int, int] = {}

    async def handle(self, request: Request, answer: Answer | None) -> Answer:
        events = orjson.loads(request.body)
        if self.failing and events[0]["key"] % 2:
            return Answer(status=503)
        for event in events:
            key, number = event["key"], event["number"]
            if self.taken[number]:
                self.repeated += 1
            else:
                self.distinct += 1
                # only a first arrival can be out of order: what is repeated follows its successors
                self.unordered += number < self._last.get(key, -1)
                self._last[key] = number
            self.taken[number] = min(255, self.taken[number] + 1)
        return Answer(status=204)


class Restart(msgspec.Struct):
    """One life of the outlet's process, and what it left behind when it was killed."""

    seconds: float
    peak_rss_bytes: int
    delivered: int
    repeated: int
    under_way: int  # taken by the receiver, but not yet marked as finished in the log


class Figures(msgspec.Struct):
    """What became of the events."""

    events: int
    keys: int
    lives: list[Restart]
    missing: int
    unordered: int

    @property
    def peak_rss_bytes(self) -> int:
        return max(life.peak_rss_bytes for life in self.lives)

    @property
    def repeated_beyond_under_way(self) -> int:
        """Events that were sent again though the log knew that they were delivered; must be 0."""
        allowed = [0, *(life.under_way for life in self.lives[:-1])]
        return sum(
            max(0, life.repeated - under_way) for life, under_way in zip(self.lives, allowed, strict=True)
        )


def fill(folder: Path, count: int, keys: int) -> None:
    """A log of `count` events, their keys in a random but repeatable order."""
    chance = random.Random(count)
    log = Log.open(folder / "log")
    try:
        for start in range(0, count, 5000):
            log.append_wait(
                [_event(number, chance, keys) for number in range(start, min(count, start + 5000))]
            )
    finally:
        log.close()


def _event(number: int, chance: random.Random, keys: int) -> bytes:
    text = f"{chance.getrandbits(640):0160x}"
    return orjson.dumps({"key": chance.randrange(keys), "number": number, "text": text})


def run(folder: Path, events: int = EVENTS, keys: int = KEYS, idle_seconds: float = IDLE_SECONDS) -> Figures:
    """All three lives, on a log that is made in `folder`."""
    fill(folder, events, keys)
    with Receiver(events) as receiver:
        healthy = sum(orjson.loads(event.body)["key"] % 2 == 0 for event in inspect.export(folder / "log"))
        lives = [
            _live(folder, receiver, lambda: receiver.distinct >= healthy // 2),
            _live(folder, receiver, lambda: receiver.distinct >= healthy),
        ]
        receiver.failing = True
        recovers_at = time.monotonic() + idle_seconds

        def is_over() -> bool:
            receiver.failing = time.monotonic() < recovers_at
            return receiver.distinct >= events

        lives.append(_live(folder, receiver, is_over))
        missing = receiver.taken.count(0)
        return Figures(events, keys, lives, missing, receiver.unordered)


def _live(folder: Path, receiver: Receiver, is_over: Callable[[], bool]) -> Restart:
    """Run the outlet until the receiver has what it should have, then kill it."""
    began, repeated_before = time.monotonic(), receiver.repeated
    command = [sys.executable, "-m", "bench.restart", "outlet", str(folder), str(receiver.port)]
    process = subprocess.Popen(command)
    moved_at, distinct = time.monotonic(), receiver.distinct
    try:
        while not is_over():
            if receiver.distinct != distinct:
                moved_at, distinct = time.monotonic(), receiver.distinct
            elif time.monotonic() - moved_at > STALLED_SECONDS:
                raise RuntimeError(f"delivery has stopped at {distinct} events")
            if process.poll() is not None:
                raise RuntimeError(f"the outlet's process ended by itself with {process.returncode}")
            time.sleep(0.01)
        peak = peak_rss_bytes(process.pid)
    finally:
        process.kill()
        process.wait()
    seconds = time.monotonic() - began
    _wait_until_quiet(receiver)
    marked = next(reader for reader in inspect.stat(folder / "log").readers if reader.name == OUTLET)
    return Restart(
        seconds=seconds,
        peak_rss_bytes=peak,
        delivered=receiver.distinct,
        repeated=receiver.repeated - repeated_before,
        under_way=receiver.distinct - marked.delivered,
    )


def _wait_until_quiet(receiver: Receiver) -> None:
    """Requests that were still in a socket when the sender was killed were under way as well."""
    seen = -1
    while seen != (seen := receiver.requests):
        time.sleep(0.5)


def _outlet(folder: Path, port: int) -> None:
    """The process that is killed."""
    settings = OutletSettings(
        name=OUTLET,
        type="openlineage",
        group_by=("/key",),
        retry=RetrySettings(initial_seconds=0.2, max_seconds=2.0),
        options={"url": f"http://127.0.0.1:{port}", "batch": "always"},
    )
    metrics = Metrics()
    log = Log.open(folder / "log", metrics=metrics)
    rejects = RejectStore(folder / "rejects.db", max_bytes=1 << 20, metrics=metrics)
    OutletWorker(settings, log, rejects, metrics).start()
    signal.pause()


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        print(f"restart: {EVENTS:,} events behind {KEYS:,} keys, half of the keys failing ...", flush=True)
        figures = run(Path(folder))
    table = Table("life", "ended by", "seconds", "delivered", "peak memory", "sent again", "was under way")
    ends = ("kill -9, halfway", "kill -9, good half done", "all done")
    before = 0
    for number, (life, end) in enumerate(zip(figures.lives, ends, strict=True), 1):
        memory = f"{life.peak_rss_bytes / 1e6:.0f} MB"
        table.row(number, end, f"{life.seconds:.1f}", f"{life.delivered:,}", memory, life.repeated, before)
        before = life.under_way
    print(table)
    is_good = (
        figures.missing == figures.unordered == figures.repeated_beyond_under_way == 0
        and figures.peak_rss_bytes < LIMIT_BYTES
    )
    print(
        f"missing {figures.missing}, out of order {figures.unordered}, "
        f"sent again beyond what was under way {figures.repeated_beyond_under_way}, "
        f"peak memory {figures.peak_rss_bytes / 1e6:.0f} of {LIMIT_BYTES / 1e6:.0f} MB: "
        f"{'good' if is_good else 'NOT GOOD'}"
    )
    print(f"written: {write_result('restart', figures)}")
    return 0 if is_good else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["outlet"]:
        _outlet(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(main())

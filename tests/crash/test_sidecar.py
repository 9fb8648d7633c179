"""The whole sidecar, killed over and over under load; then every acknowledged event is looked for.

A cycle for each named crash point, then kills at random moments and at the points by turns.
`HEADWATER_CRASH_CYCLES=200` is the long form.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from headwater.faults import CRASH_POINTS
from headwater.log import inspect
from headwater.log.rejects import Rejects
from headwater.testing import OpenLineageServer
from tests.cli.servers import Server

from .senders import Sender, identity, is_refused

STAGES = ("writer", "rotation", "collection", "cursor", "reader", "rejects")
POINTS = [point for point in CRASH_POINTS if point.startswith(STAGES)]
CYCLES = int(os.environ.get("HEADWATER_CRASH_CYCLES", "24"))
SENDERS = 4
EVENTS = 300  # per sender and cycle: more than a server lives to see
BATCH = 50
SETTINGS: dict[str, Any] = {
    "gateway": {"port": 0, "shutdown_timeout_seconds": 5},
    "log": {"partition_bytes": 65536, "collect_seconds": 0.05},
}


class Crashes:
    """Servers that die one after the other on one folder, in front of a backend that lives on."""

    def __init__(self, folder: Path, backend: OpenLineageServer, seed: int) -> None:
        self._folder = folder
        retry = {"initial_seconds": 0.01, "max_seconds": 0.1}
        outlet = {"name": "backend", "type": "openlineage", "url": backend.url, "max_batch_events": BATCH}
        self._settings = SETTINGS | {"outlets": [outlet | {"retry": retry}]}
        self._chance = random.Random(seed)
        self.senders = [Sender(name) for name in range(SENDERS)]
        self.died_at: Counter[str] = Counter()

    def start(self, point: str = "") -> Server:
        env = os.environ | ({"HEADWATER_CRASH_POINT": point} if point else {})
        return Server(self._folder, self._settings, env)

    def cycle(self, point: str | None) -> None:
        """Load until the server dies: at the point, or at a moment of chance."""
        # some places are passed with every commit, others with every partition only
        latest = 60 if (point or "").startswith(("writer", "cursor", "reader")) else 2
        server = self.start(f"{point}:{self._chance.randint(1, latest)}" if point else "")
        try:
            port = int(server.url.rpartition(":")[2])
        except AssertionError:
            port = 0  # it died while it was starting, on what the one before had left
        if port:
            for sender in self.senders:
                sender.start(port, EVENTS)
            if point is None:
                time.sleep(self._chance.uniform(0, 1.0))
                server.process.kill()
            for sender in self.senders:
                sender.join()
            self._wait(server, 5.0 if point else 0.0)
        if point is not None and server.process.poll() is not None:
            assert server.process.returncode == -signal.SIGKILL, server.output
            self.died_at[point] += 1
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait(60)

    def _wait(self, server: Server, seconds: float) -> None:
        """Cursor, collection and rejects come to their points after the senders are done."""
        deadline = time.monotonic() + seconds
        while server.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)

    def drain(self) -> None:
        """One server that nobody kills, until nothing waits."""
        server = self.start()
        try:
            assert server.url
            deadline = time.monotonic() + 120
            while sum(reader.lag_events for reader in inspect.stat(self.log).readers):
                assert time.monotonic() < deadline, server.output
                time.sleep(0.05)
            assert server.stop() == 0
        finally:
            server.process.kill()
            server.process.wait()

    @property
    def log(self) -> Path:
        return self._folder / "headwater-data" / "log"

    def rejected(self) -> list[tuple[int, int]]:
        rejects = Rejects(self.log.parent / "rejects.db", max_bytes=1 << 30)
        try:
            bodies = [reject.body for reject in rejects.list(limit=1_000_000)]
        finally:
            rejects.close()
        return [identity(orjson.loads(body)) for body in bodies]


@pytest.mark.timeout(7200)
def test_every_acknowledged_event_is_accounted_for_when_the_sidecar_is_killed_again_and_again(
    tmp_path: Path,
) -> None:
    with OpenLineageServer(refuse=is_refused) as backend:
        crashes = Crashes(tmp_path, backend, seed=CYCLES)
        for number in range(CYCLES):
            is_random = number >= len(POINTS) and number % 2 == 0
            crashes.cycle(None if is_random else POINTS[number % len(POINTS)])
        crashes.drain()
        received = [identity(found) for found in backend.events()]

    rejected = crashes.rejected()
    first_seen = list(dict.fromkeys(received))
    assert set(crashes.died_at) == set(POINTS)
    # nothing is lost (G1, G3), and what is rejected is what was refused, once each (G6)
    acknowledged = {(sender.name, number) for sender in crashes.senders for number in sender.acknowledged}
    assert len(acknowledged) > CYCLES
    assert acknowledged - set(received) - set(rejected) == set()
    assert len(rejected) == len(set(rejected))
    assert not set(rejected) & set(received)
    # order (G2)
    per_sender: dict[int, list[int]] = defaultdict(list)
    for sender, number in first_seen:
        per_sender[sender].append(number)
    for numbers in per_sender.values():
        assert all(before < after for before, after in pairwise(numbers))
    # twice only what was in flight when the server died (G4): a batch, and the cursor commit behind it
    repeated = sum(count - 1 for count in Counter(received).values())
    assert repeated <= CYCLES * 2 * BATCH
    # the numbers add up (G3), for all that was appended, acknowledged or not
    (reader,) = inspect.stat(crashes.log).readers
    assert (reader.lag_events, reader.dropped_age, reader.dropped_bytes, reader.dropped_damage) == (
        0,
        0,
        0,
        0,
    )
    assert reader.delivered + reader.rejected == reader.appended
    assert (reader.delivered, reader.rejected) == (len(set(received)), len(rejected))
    assert inspect.verify(crashes.log) == []
    print(
        f"\n{CYCLES} kills, {len(acknowledged):,} acknowledged, {reader.appended:,} appended, "
        f"{reader.delivered:,} delivered, {reader.rejected:,} rejected, {repeated:,} repeated, 0 lost"
    )

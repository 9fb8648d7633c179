"""Fire shots at a real `headwater serve` and hold it to three promises: no 5xx, no hang, no growth (G8, G12).

`make fuzz`, or `python -m tests.gateway.volley --count 100000 --seed 1`; `--only NUMBER` repeats one shot.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httptools
import orjson
import psutil
import uvloop

from tests.gateway.shots import CLIENT_SECRET, SERVER_SECRET, Shot, shot

__all__ = ["GROWTH_BYTES", "LIMITS", "Missed", "Outcome", "fire", "serving"]

CONNECTIONS = 32
ANSWER_SECONDS = 60.0  # no answer for so long is a hang; generous, since the machine may be busy
GROWTH_BYTES = 16 * 2**20  # what caches, SQLite and the allocator may take after the warm-up
ALLOWED_5XX = {505}  # an HTTP version that a mutation made up; the answer is right
# The greeting, and refusals by the limits below.
EXPECTED_LINES = (
    "headwater listens",
    "ready: send lineage to ",
    "A lineage request of ",
    "the answers to it are delayed",
)
LIMITS: dict[str, Any] = {
    "max_event_bytes": 20_000,
    "max_failed_bytes": 20_000,
    "max_body_bytes": 60_000,
    "max_batch_events": 200,
    "max_depth": 30,
    "max_keys": 500,
}


@dataclass
class Outcome:
    """What came of it."""

    statuses: Counter[int] = field(default_factory=Counter)
    cut: int = 0  # broken HTTP whose connection was closed without an answer
    seconds: float = 0.0
    warm_bytes: int = 0
    end_bytes: int = 0
    files: int = 0  # more open ones than after the warm-up
    complaints: str = ""  # what the server wrote to its standard error beside its greeting


class Missed(AssertionError):
    """A promise was broken; the text says by which shot and how to repeat it."""

    def __init__(self, seed: int, bad: Shot, why: str) -> None:
        super().__init__(
            f"{why}\n  seed {seed}, shot {bad.number}; again: python -m tests.gateway.volley"
            f" --seed {seed} --only {bad.number}\n  request {bad.data[:1500]!r}\n  body {bad.body[:1500]!r}"
        )


class Gun(asyncio.Protocol):
    """A connection: one shot at a time, kept open as long as the gateway keeps it."""

    def __init__(self) -> None:
        self.is_open = True
        self.statuses: list[int] = []
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaits_end = False
        self._closes = False

    async def fire(self, bad: Shot) -> list[int]:
        """The final statuses that came back; for broken HTTP, until the gateway closed the connection."""
        self.statuses = []
        self._awaits_end = not bad.is_http
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(bad.data)
        if self._awaits_end and self._transport.can_write_eof():
            self._transport.write_eof()
        async with asyncio.timeout(ANSWER_SECONDS):
            await self._done
        return self.statuses

    def close(self) -> None:
        self.is_open = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not self._done.done():
                self._done.set_exception(ValueError(f"the answer is not HTTP ({error}): {data[:300]!r}"))

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return  # "100 Continue" goes before the answer
        self.statuses.append(status)
        if not self._parser.should_keep_alive():
            self.is_open = False
        if not self._awaits_end and not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if not self._done.done():
            self._done.set_result(None)


class _Volley:
    def __init__(self, port: int, seed: int, numbers: Iterator[int], outcome: Outcome) -> None:
        self._port = port
        self._seed = seed
        self._numbers = numbers
        self._outcome = outcome

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._keep_firing())

    async def _keep_firing(self) -> None:
        gun: Gun | None = None
        for number in self._numbers:
            bad = shot(self._seed, number)
            if gun is None or not gun.is_open or not bad.is_http:
                if gun is not None:
                    gun.close()
                gun = await self._connect()
            try:
                statuses = await gun.fire(bad)
            except TimeoutError:
                raise Missed(self._seed, bad, f"no answer within {ANSWER_SECONDS:g} s") from None
            except ValueError as error:
                raise Missed(self._seed, bad, str(error)) from None
            self._judge(bad, statuses)
        if gun is not None:
            gun.close()

    async def _connect(self) -> Gun:
        _, gun = await asyncio.get_running_loop().create_connection(Gun, "127.0.0.1", self._port)
        return gun

    def _judge(self, bad: Shot, statuses: list[int]) -> None:
        self._outcome.statuses.update(statuses)
        if not statuses:
            self._outcome.cut += 1
        if bad.is_http and len(statuses) != 1:
            raise Missed(self._seed, bad, f"{len(statuses)} answers to one request")
        if wrong := [status for status in statuses if status >= 500 and status not in ALLOWED_5XX]:
            raise Missed(self._seed, bad, f"answered {wrong}")


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[psutil.Process, int]]:
    """A sidecar process with all routes, and its port; it must stop on SIGTERM."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    tokens = [
        {
            "id": "fuzz",
            "client_secret": CLIENT_SECRET,
            "server_secret": SERVER_SECRET,
            "origins": ["https://shop.example", "*.example.org", "localhost:8080"],
        }
    ]
    tree = {"data_dir": str(folder / "data"), "gateway": LIMITS | {"port": port}, "tokens": tokens}
    (folder / "headwater.yml").write_bytes(orjson.dumps(tree | {"log_level": "warning"}))
    command = [sys.executable, "-m", "headwater", "--config", str(folder / "headwater.yml"), "serve"]
    with (folder / "stderr").open("wb") as stderr:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        _wait_for(port, child)
        yield psutil.Process(child.pid), port
        child.terminate()
        assert child.wait(60) == 0, "the server did not stop in peace"
    finally:
        child.kill()
        child.wait()


def _wait_for(port: int, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and child.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(0.02)
    raise AssertionError("the server did not start")


def fire(folder: Path, count: int, seed: int, *, warm: int, only: int | None = None) -> Outcome:
    """Fire so many shots, the first `warm` of them to warm up; raises Missed at the first broken promise."""
    outcome = Outcome()
    numbers = [only] if only is not None else range(count)
    with serving(folder) as (server, port):
        began = time.monotonic()
        _fire(port, seed, numbers[:warm], outcome)
        outcome.warm_bytes, warm_files = server.memory_info().rss, server.num_fds()
        for start in range(warm, len(numbers), 10_000):
            _fire(port, seed, numbers[start : start + 10_000], outcome)
            print(
                f"  {min(start + 10_000, count):,} shots, {server.memory_info().rss / 1e6:.1f} MB", flush=True
            )
        outcome.seconds = time.monotonic() - began
        outcome.end_bytes = server.memory_info().rss
        outcome.files = server.num_fds() - warm_files
    said = (folder / "stderr").read_text(errors="replace").splitlines(keepends=True)
    outcome.complaints = "".join(line for line in said if not any(each in line for each in EXPECTED_LINES))
    return outcome


def _fire(port: int, seed: int, numbers: Any, outcome: Outcome) -> None:
    try:
        uvloop.run(_Volley(port, seed, iter(numbers), outcome).run())
    except* Missed as missed:
        raise missed.exceptions[0] from None


def main() -> None:
    parser = argparse.ArgumentParser(description="Hostile requests against a real sidecar.")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="repeat the shot of this number")
    given = parser.parse_args()
    print(f"fuzz: {given.count:,} requests, seed {given.seed}, {CONNECTIONS} connections ...", flush=True)
    with tempfile.TemporaryDirectory() as name:
        warm = max(1, given.count // 10)
        try:
            outcome = fire(Path(name), given.count, given.seed, warm=warm, only=given.only)
        except Missed as missed:
            raise SystemExit(f"fuzz: FAILED: {missed}") from None
    total = sum(outcome.statuses.values())
    said = ", ".join(f"{status}: {count:,}" for status, count in sorted(outcome.statuses.items()))
    growth = outcome.end_bytes - outcome.warm_bytes
    print(f"fuzz: {total:,} answers in {outcome.seconds:.0f} s ({said}), {outcome.cut} cut without one")
    print(
        f"fuzz: no 5xx, no hang; memory {outcome.warm_bytes / 1e6:.1f} MB after {warm:,},"
        f" {outcome.end_bytes / 1e6:.1f} MB at the end, {outcome.files:+d} open files"
    )
    if outcome.complaints:
        raise SystemExit(f"fuzz: FAILED: the server complained:\n{outcome.complaints[:5000]}")
    if given.only is None and growth > GROWTH_BYTES:
        raise SystemExit(f"fuzz: FAILED: memory grew by {growth / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

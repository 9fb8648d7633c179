"""The first half of the demo: a producer sends events while server and backend are killed."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from headwater.errors import HeadwaterError
from headwater.log.queue.offline import stat
from headwater.system.installation import install_command
from headwater.testing.processes import HeadwaterProcess, OpenLineageProcess, free_port

DELIVERY_TIMEOUT_SECONDS = 45.0


class DeliveryReport(msgspec.Struct):
    """Counts of the producer's events."""

    sent: int
    acknowledged: int
    delivered: int
    duplicates: int
    lost: int
    out_of_order: int
    kills: int = 0
    seconds: float = 0.0


def run_delivery(folder: Path, events: int, step: Callable[[str], None]) -> DeliveryReport:
    """Send events in five steps, with the backend stopped in one and kills in two; count the deliveries."""
    began = time.monotonic()
    backend = OpenLineageProcess(folder)
    server = HeadwaterProcess(folder, "serve", settings=_settings(folder, backend.url), name="sidecar")
    try:
        report = _run(backend, server, events, step)
    finally:
        server.stop()
        backend.stop()
    report.kills = server.kills + backend.kills
    report.seconds = time.monotonic() - began
    return report


def _settings(folder: Path, url: str) -> dict[str, Any]:
    # Short pauses between retries, so that the demo is short.
    retry = {"initial_seconds": 0.1, "max_seconds": 0.5}
    return {
        "data_dir": str(folder / "data"),
        "gateway": {"port": free_port()},
        "outlets": [{"name": "backend", "type": "openlineage", "url": url, "retry": retry}],
    }


def _run(
    backend: OpenLineageProcess, server: HeadwaterProcess, events: int, step: Callable[[str], None]
) -> DeliveryReport:
    step("starting a small OpenLineage backend, and headwater in front of it")
    backend.start()
    producer = Producer(server.start().url)

    step(f"sending {events} events with the openlineage-python client, plain")
    producer.send(events, "plain")
    step(f"sending {events} events, gzip")
    producer.send(events, "gzip")
    _wait_until_delivered(server, producer)

    step("stopping the backend")
    backend.stop()
    step(f"sending {events} events; headwater acknowledges them and keeps them")
    producer.send(events, "plain")
    step(f"    {_waiting(server):,} events are waiting on disk")

    step(f"sending {events} events while headwater is killed with kill -9 and restarted")
    with producer.sending(events, "gzip"):
        producer.wait_for(events // 3)
        server.kill()
        _ = server.start().url
    step("restarting the backend")
    backend.start()
    step(f"sending {events} events while backend and headwater are both killed with kill -9 and restarted")
    with producer.sending(events, "plain"):
        producer.wait_for(events // 3)
        backend.kill()
        server.kill()
        _ = server.start().url
        backend.start()

    step("waiting until everything is delivered")
    _wait_until_delivered(server, producer)
    producer.close()
    return producer.compare(backend.events())


def _waiting(server: HeadwaterProcess) -> int:
    """Events in the log that the backend has not accepted, as `headwater status` shows them."""
    return sum(reader.lag_events for reader in stat(server.folder / "data" / "log").readers)


def _wait_until_delivered(server: HeadwaterProcess, producer: Producer) -> None:
    deadline = time.monotonic() + DELIVERY_TIMEOUT_SECONDS
    while waiting := _waiting(server):
        if time.monotonic() > deadline:
            raise HeadwaterError(
                f"{waiting} of {producer.sent} events were not delivered in {DELIVERY_TIMEOUT_SECONDS:g} s.",
                hint="Run it again with --keep, and read sidecar.txt in the folder that it prints.",
            )
        time.sleep(0.05)


class Producer:
    """Sends numbered events, one after the other, and records which were acknowledged."""

    def __init__(self, url: str) -> None:
        try:
            from openlineage.client import OpenLineageClient
        except ModuleNotFoundError:
            raise HeadwaterError(
                "The demo needs the openlineage-python client.", hint=f"Run `{install_command('spool')}`."
            ) from None
        transport = {"type": "http", "url": url}
        self._clients = {
            "plain": OpenLineageClient(config={"transport": dict(transport)}),
            "gzip": OpenLineageClient(config={"transport": {**transport, "compression": "gzip"}}),
        }
        self._run_id = str(uuid.uuid4())
        self.sent = 0
        self.acknowledged: list[int] = []
        self._marker = 0

    def _event(self, number: int) -> Any:
        from openlineage.client.event_v2 import Job, OutputDataset, Run, RunEvent, RunState

        return RunEvent(
            eventType=RunState.RUNNING,
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(runId=self._run_id),
            job=Job(namespace="demo", name="numbers"),
            outputs=[OutputDataset(namespace="demo", name=str(number))],
            producer="urn:headwater:demo",
        )

    def send(self, count: int, how: str) -> None:
        """Send `count` events; one that fails is neither sent again nor counted as acknowledged."""
        for _ in range(count):
            self.sent += 1
            number = self.sent
            try:
                self._clients[how].emit(self._event(number))
            except Exception:  # noqa: S112 - the client raises many; each means: not acknowledged
                continue
            self.acknowledged.append(number)

    @contextmanager
    def sending(self, count: int, how: str) -> Iterator[None]:
        """Send on another thread during the block."""
        self._marker = self.sent
        thread = threading.Thread(target=self.send, args=(count, how))
        thread.start()
        try:
            yield
        finally:
            thread.join()

    def wait_for(self, count: int) -> None:
        """Wait until `count` events of `sending` are sent."""
        while self.sent - self._marker < count:
            time.sleep(0.001)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def compare(self, journal: list[Any]) -> DeliveryReport:
        """Compare the backend's events with the acknowledged ones."""
        numbers = [int(event["outputs"][0]["name"]) for event in journal]
        first_seen = list(dict.fromkeys(numbers))
        delivered = set(first_seen)
        return DeliveryReport(
            sent=self.sent,
            acknowledged=len(self.acknowledged),
            delivered=len(delivered),
            duplicates=len(numbers) - len(delivered),
            lost=len(set(self.acknowledged) - delivered),
            out_of_order=sum(after < before for before, after in pairwise(first_seen)),
        )

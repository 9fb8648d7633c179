"""A log with its rejects and any number of workers, all real, for tests of delivery."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

from headwater.delivery.outlet_worker import OutletWorker
from headwater.log.queue.log import Log
from headwater.log.rejects.store import RejectStore
from headwater.metrics import Metrics
from headwater.settings import LogSettings, OutletSettings, RetrySettings

QUICK = RetrySettings(initial_seconds=0.01, max_seconds=0.05)


def eventually(condition: Callable[[], object], seconds: float = 150.0) -> bool:
    """Whether the condition came true; the limit is generous since machines are slow at times."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def body(i: int, **fields: Any) -> bytes:
    return orjson.dumps({"i": i, **fields})


def numbers(bodies: Sequence[bytes]) -> list[int]:
    return [orjson.loads(one)["i"] for one in bodies]


class Rig:
    """Open with `with`; `restart` closes everything and opens it again from the disk."""

    def __init__(self, folder: Path, settings: LogSettings | None = None) -> None:
        self.folder = folder
        self._log_settings = settings or LogSettings()
        self.workers: list[OutletWorker] = []
        self.open()

    def open(self) -> None:
        self.metrics = Metrics()
        self.log = Log.open(self.folder / "log", self._log_settings, metrics=self.metrics)
        self.rejects = RejectStore(self.folder / "rejects.db", max_bytes=1 << 28, metrics=self.metrics)

    def append(self, *numbers: int, **fields: Any) -> None:
        self.log.append_wait([body(i, **fields) for i in numbers])

    def drain(self, name: str = "one", type: str = "openlineage", **settings: Any) -> OutletWorker:
        """A started outlet worker; what is no outlet setting is an option of the type."""
        known = {
            field: settings.pop(field)
            for field in list(settings)
            if field in OutletSettings.__struct_fields__
        }
        outlet = OutletSettings(name=name, type=type, options=settings, **({"retry": QUICK} | known))
        return self.start(OutletWorker(outlet, self.log, self.rejects, self.metrics, pause_seconds=0.05))

    def start(self, drain: OutletWorker) -> OutletWorker:
        self.workers.append(drain)
        drain.start()
        return drain

    def counter(self, name: str, *labels: str) -> float:
        return self.metrics.counter(name).values.get(labels, 0)

    def gauge(self, name: str, *labels: str) -> float:
        return self.metrics.gauge(name).values.get(labels, 0)

    def balance(self, name: str = "one") -> dict[str, int]:
        """The numbers of G3 for a reader; fails where they do not add up."""
        stat = self.log.stat()
        reader = next(reader for reader in stat.readers if reader.name == name)
        dropped = reader.dropped_age + reader.dropped_bytes + reader.dropped_damage
        assert stat.end - reader.base == reader.delivered + reader.rejected + dropped + reader.lag_events
        return {
            "delivered": reader.delivered,
            "rejected": reader.rejected,
            "dropped": dropped,
            "lag": reader.lag_events,
        }

    def settled(self, name: str = "one") -> bool:
        return self.balance(name)["lag"] == 0

    def close(self) -> None:
        for drain in self.workers:
            drain.close(5.0)
        self.workers.clear()
        self.rejects.close()
        self.log.close()

    def restart(self) -> None:
        self.close()
        self.open()

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

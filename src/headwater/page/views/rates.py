"""Events per second from counters, for the last three minutes."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from itertools import pairwise

from headwater.clock import Clock, SystemClock
from headwater.metrics import Counter, Metrics

logger = logging.getLogger(__name__)

SECONDS = 1.0  # between two samples
KEPT = 180  # samples: three minutes
SHOWN = 90  # of them, as a sparkline
RECENT = 5  # samples whose mean is the current rate
WATCHED = {
    f"headwater_{name}"
    for name in (
        "gateway_events_accepted",
        "gateway_events_refused",
        "log_events_appended",
        "delivery_events_delivered",
        "graph_events_ingested",
    )
}


class Rates:
    """Samples counters every second in a thread and keeps the last three minutes (G8)."""

    def __init__(self, metrics: Metrics, *, clock: Clock | None = None) -> None:
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._samples: deque[tuple[float, dict[str, float]]] = deque(maxlen=KEPT)
        self._read: dict[str, Callable[[], float]] = {}
        self._problems: dict[str, str] = {}  # the last errors
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="page-rates", daemon=True)

    def start(self) -> None:
        self.sample()
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def watch(self, name: str, read: Callable[[], float]) -> None:
        """Sample a total that is not a counter of this process."""
        self._read[name] = read

    def sample(self) -> None:
        """Record the counters: each as a whole, and for each of its labels."""
        found = {name: self._read_total(name) for name in self._read}
        for metric in self._metrics:
            if isinstance(metric, Counter) and metric.description.name in WATCHED:
                name = metric.description.name.removeprefix("headwater_")
                values = dict(metric.values)
                found[name] = sum(values.values())
                for labels, value in values.items():
                    if labels:
                        found[f"{name}:{labels[0]}"] = value
        self._samples.append((self._clock.monotonic(), found))

    def _read_total(self, name: str) -> float:
        try:
            return self._read[name]()
        except Exception as error:  # it reads files: a disk that fails must not end this thread
            if str(error) != self._problems.get(name):
                logger.warning("%s cannot be read for the page: %s", name, error)
            self._problems[name] = str(error)
            return self.total(name)

    def total(self, name: str) -> float:
        """The value of a counter; `name:label` for one of its labels."""
        return self._samples[-1][1].get(name, 0.0) if self._samples else 0.0

    def rates(self, name: str) -> list[float]:
        """Events per second between consecutive samples, oldest first."""
        samples = list(self._samples)
        return [
            max(0.0, now.get(name, 0.0) - then.get(name, 0.0)) / max(1e-3, at - before)
            for (before, then), (at, now) in pairwise(samples)
        ]

    def history(self, name: str) -> list[float]:
        """The rates of the period that is shown, smoothed; zero before the start."""
        rates = [0.0] * (SHOWN + RECENT) + self.rates(name)
        return [
            sum(rates[end - RECENT : end]) / RECENT for end in range(len(rates) - SHOWN + 1, len(rates) + 1)
        ]

    def rate(self, name: str) -> float:
        """Events per second in the last few seconds."""
        latest = self.rates(name)[-RECENT:]
        return sum(latest) / len(latest) if latest else 0.0

    def _run(self) -> None:
        while not self._stop.wait(SECONDS):
            self.sample()

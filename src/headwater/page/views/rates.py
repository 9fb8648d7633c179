"""The pulse: how fast events move, over the last minutes. Counters say how many; people ask how fast."""

from __future__ import annotations

import threading
from collections import deque
from itertools import pairwise

from headwater.clock import Clock, SystemClock
from headwater.metrics import Counter, Metrics

__all__ = ["Pulse"]

SECONDS = 1.0  # between two looks at the counters
KEPT = 180  # looks: three minutes
SHOWN = 90  # of them, as a small chart
RECENT = 5  # looks that the present rate is the mean of
WATCHED = {
    f"headwater_{name}"
    for name in (
        "gateway_events_accepted",
        "gateway_events_refused",
        "log_events_appended",
        "incoming_events_appended",
        "delivery_events_delivered",
        "graph_events_ingested",
    )
}


class Pulse:
    """Looks at some counters every second, from a thread of its own, and remembers a bounded past (G8)."""

    def __init__(self, metrics: Metrics, *, clock: Clock | None = None) -> None:
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._looks: deque[tuple[float, dict[str, float]]] = deque(maxlen=KEPT)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="page-pulse", daemon=True)

    def start(self) -> None:
        self.look()
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def look(self) -> None:
        """Remember what the counters say now: each as a whole, and for each of its labels."""
        found: dict[str, float] = {}
        for metric in self._metrics:
            if isinstance(metric, Counter) and metric.description.name in WATCHED:
                name = metric.description.name.removeprefix("headwater_")
                values = dict(metric.values)
                found[name] = sum(values.values())
                for labels, value in values.items():
                    if labels:
                        found[f"{name}:{labels[0]}"] = value
        self._looks.append((self._clock.monotonic(), found))

    def total(self, name: str) -> float:
        """What a counter says; `name:label` for one of its labels."""
        return self._looks[-1][1].get(name, 0.0) if self._looks else 0.0

    def rates(self, name: str) -> list[float]:
        """Events per second between each two looks, oldest first."""
        looks = list(self._looks)
        return [
            max(0.0, now.get(name, 0.0) - then.get(name, 0.0)) / max(1e-3, at - before)
            for (before, then), (at, now) in pairwise(looks)
        ]

    def recent(self, name: str) -> list[float]:
        """The rates of the time that is shown, smoothed; before the start there were none."""
        rates = [0.0] * (SHOWN + RECENT) + self.rates(name)
        return [
            sum(rates[end - RECENT : end]) / RECENT for end in range(len(rates) - SHOWN + 1, len(rates) + 1)
        ]

    def rate(self, name: str) -> float:
        """Events per second in the last few seconds."""
        recent = self.rates(name)[-RECENT:]
        return sum(recent) / len(recent) if recent else 0.0

    def _run(self) -> None:
        while not self._stop.wait(SECONDS):
            self.look()

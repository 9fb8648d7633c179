"""The metrics: one catalogue, published both as OpenMetrics text and to statsd.

The catalogue is the documentation: docs/metrics.md is generated from it, and a metric that is not in it
cannot be counted.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

logger = logging.getLogger(__name__)

MAX_DATAGRAM_BYTES = 1432  # an Ethernet frame less the headers of IPv6 and UDP

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Description(NamedTuple):
    """A metric's kind (`counter`, `gauge`, `histogram`), name without the `_total`, labels and meaning."""

    kind: str
    name: str
    labels: tuple[str, ...]
    help: str


def _describe(kind: str, name: str, labels: str, text: str) -> Description:
    return Description(kind, f"headwater_{name}", tuple(labels.split()), text)


CATALOGUE: tuple[Description, ...] = (
    _describe("counter", "gateway_requests", "route status", "HTTP requests answered."),
    _describe("counter", "gateway_events_received", "", "Events that arrived, valid or not."),
    _describe(
        "counter", "gateway_events_accepted", "", "Events acknowledged: on disk before the answer (G1)."
    ),
    _describe("counter", "gateway_events_refused", "reason", "Events answered with an error, by reason."),
    _describe(
        "counter",
        "gateway_events_repeated",
        "",
        "Events that were sent again and are stored once: received = accepted + refused + repeated.",
    ),
    _describe("counter", "gateway_events_warned", "", "Events accepted with a warning, such as a bad URI."),
    _describe(
        "counter", "gateway_failed_handler_errors", "", "Failed events that their handler could not take."
    ),
    _describe("histogram", "gateway_request_seconds", "route", "From the request's last byte to the answer."),
    _describe("gauge", "gateway_connections", "", "Open connections."),
    _describe("gauge", "gateway_pending_bytes", "", "Bytes of requests in memory, heads included."),
    _describe("counter", "log_events_appended", "", "Events committed to the log."),
    _describe("counter", "log_bytes_appended", "", "Bytes of those events, before compression."),
    _describe("histogram", "log_commit_seconds", "", "One group commit, fsync included."),
    _describe("counter", "log_commit_errors", "reason", "Group commits that failed: `full` or `io`."),
    _describe("gauge", "log_bytes", "", "Bytes on disk of all partitions."),
    _describe("gauge", "log_partitions", "", "Partition files."),
    _describe(
        "counter", "log_events_dropped", "reader reason", "Events a reader lost by `age`, `bytes`, `damage`."
    ),
    _describe("gauge", "log_damaged_files", "", "Files set aside as damaged, in all (G9)."),
    _describe(
        "counter",
        "queue_commit_errors",
        "destination reason",
        "Group commits to the queue of a stream that failed: `full` or `io`.",
    ),
    _describe("counter", "incoming_events_appended", "token", "Events on disk in incoming files."),
    _describe("counter", "incoming_bytes_appended", "token", "Bytes of those events."),
    _describe("histogram", "incoming_commit_seconds", "", "One group commit to a file, fsync included."),
    _describe("counter", "incoming_commit_errors", "reason", "Such commits that failed: `full` or `io`."),
    _describe("counter", "incoming_files_rotated", "token", "Incoming files completed for the pipeline."),
    _describe("gauge", "incoming_files_waiting", "", "Complete files that wait for the pipeline."),
    _describe(
        "gauge", "queue_lag_events", "destination", "Events in a stream's queue, not loaded and archived yet."
    ),
    _describe("counter", "delivery_events_delivered", "outlet", "Events that the receiver took."),
    _describe("counter", "delivery_events_rejected", "outlet", "Events that the receiver refused for good."),
    _describe("counter", "delivery_bytes_sent", "outlet", "Bytes of delivered events."),
    _describe(
        "counter", "delivery_requests", "outlet result", "Batches sent: `ok`, `partial`, `retry`, `refused`."
    ),
    _describe("counter", "delivery_retries", "outlet", "Pauses before another try."),
    _describe(
        "gauge", "delivery_lag_events", "outlet", "Events in the log that the outlet has not finished."
    ),
    _describe("gauge", "delivery_lag_seconds", "outlet", "Age of the oldest of them."),
    _describe("gauge", "delivery_failing", "outlet", "1 while the outlet is waiting to retry, else 0."),
    _describe("gauge", "delivery_sessions", "outlet", "Sessions that hold events."),
    _describe("gauge", "delivery_in_flight", "outlet", "Requests that have no answer yet."),
    _describe("counter", "graph_events_ingested", "", "Lineage events ingested into the graph."),
    _describe("counter", "graph_events_invalid", "", "Events that are not valid lineage events; skipped."),
    _describe("counter", "graph_events_folded", "", "Old name of graph_events_ingested, for one release."),
    _describe("counter", "graph_events_unreadable", "", "Old name of graph_events_invalid, for one release."),
    _describe(
        "counter",
        "graph_events_mistimed",
        "",
        "Events dated more than a day after their receipt, or before 2000: the time of receipt counts.",
    ),
    _describe(
        "counter",
        "graph_parts_left_out",
        "kind",
        "Parts of events beyond the graph's limits: `datasets`, `facets`, `fields`, `edges`, `aliases`.",
    ),
    _describe("gauge", "graph_lag_events", "", "Events in the log that are not in the graph yet."),
    _describe("gauge", "rejects_open", "", "Rejects in the store."),
    _describe(
        "gauge", "rejects_by_stage", "stage", "Open rejects: `gateway`, `outlet:NAME`, `destination:ID`."
    ),
    _describe(
        "gauge",
        "rejects_full_ratio",
        "kind",
        "Bytes of rejects of the `gateway`, of `outlets` or of `destination:ID`, as a share of their limit; "
        "at 1 the oldest go.",
    ),
    _describe("gauge", "build_info", "version python", "Always 1; the release, and its Python."),
    _describe("gauge", "disk_free_bytes", "", "Free bytes of the disk that has the data folder."),
    _describe("gauge", "incoming_oldest_seconds", "", "Age of the oldest complete file that is not loaded."),
    _describe("gauge", "events_damaged_files", "", "Event files and queues in which damage was found."),
    _describe("gauge", "orphaned_files", "destination", "Files for a destination that is not configured."),
    _describe(
        "gauge", "orphaned_events", "destination", "Events in the queue of one that is not configured."
    ),
    _describe("gauge", "pipeline_last_cycle_timestamp_seconds", "", "When the last cycle with files began."),
    _describe("gauge", "pipeline_last_cycle_seconds", "", "How long it took."),
    _describe("gauge", "pipeline_last_cycle_errors", "", "How many errors it had."),
    _describe(
        "gauge",
        "destination_rows",
        "destination",
        "Rows that are stored there: since its queue was made, and of files still in the archive.",
    ),
    _describe("gauge", "stream_running", "stream", "1 while a pipeline follows the queue, else 0."),
    _describe("gauge", "stream_waiting_events", "stream", "Events of the queue that are not loaded."),
    _describe("gauge", "stream_failing", "stream", "1 while the cursor has an error, else 0."),
    _describe("gauge", "stream_missing_events", "stream", "Events that the queue no longer had."),
    _describe(
        "counter",
        "rejects_dropped",
        "stage reason",
        "Rejects gone by `bytes`, `age`, `damage`, or by `hand`; since the store was made.",
    ),
)
_BY_NAME = {entry.name: entry for entry in CATALOGUE}


class Counter:
    """A number that only grows, per label values."""

    def __init__(self, description: Description) -> None:
        self.description = description
        # without labels it is known from the start, and a rate needs the zero to begin from
        self.values: dict[tuple[str, ...], float] = {} if description.labels else {(): 0}
        self._lock = threading.Lock()

    def begin(self, *labels: str) -> None:
        """Report these labels at 0: a series that begins with its first event shows no growth."""
        self.add(0, *labels)

    def add(self, amount: float = 1, *labels: str) -> None:
        with self._lock:
            self.values[labels] = self.values.get(labels, 0) + amount


class Gauge:
    """A number that is set, or read from a function when metrics are reported."""

    def __init__(self, description: Description) -> None:
        self.description = description
        self._values: dict[tuple[str, ...], float | Callable[[], float]] = {}

    def set(self, value: float | Callable[[], float], *labels: str) -> None:
        self._values[labels] = value

    def forget(self, place: int, value: str) -> None:
        """Remove the values whose label at this place has this value."""
        self._values = {labels: each for labels, each in self._values.items() if labels[place] != value}

    @property
    def values(self) -> dict[tuple[str, ...], float]:
        found: dict[tuple[str, ...], float] = {}
        for labels, value in list(self._values.items()):
            try:
                found[labels] = value() if callable(value) else value
            except Exception:
                # the function's owner may be closing; the other metrics must still be reported
                logger.debug("%s%s could not be read", self.description.name, labels, exc_info=True)
        return found


class Histogram:
    """Observations in fixed buckets, per label values."""

    def __init__(self, description: Description) -> None:
        self.description = description
        self.series: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}
        self._lock = threading.Lock()

    def observe(self, value: float, *labels: str) -> None:
        with self._lock:
            if (series := self.series.get(labels)) is None:
                series = self.series[labels] = ([0] * (len(SECONDS) + 1), [0.0])
            series[0][bisect_left(SECONDS, value)] += 1
            series[1][0] += value


M = TypeVar("M", Counter, Gauge, Histogram)


class Metrics:
    """One process's numbers: `metrics.counter("log_events_appended").add(3)`."""

    def __init__(self) -> None:
        self._metrics: dict[str, Counter | Gauge | Histogram] = {}

    def counter(self, name: str) -> Counter:
        return self._get(name, Counter)

    def gauge(self, name: str) -> Gauge:
        return self._get(name, Gauge)

    def histogram(self, name: str) -> Histogram:
        return self._get(name, Histogram)

    def _get(self, name: str, kind: type[M]) -> M:
        metric = self._metrics.get(name)
        if metric is None:  # `setdefault` is atomic: two threads get the same metric
            metric = self._metrics.setdefault(name, kind(_BY_NAME[f"headwater_{name}"]))
        assert isinstance(metric, kind)
        return metric

    def forget(self, label: str, value: str) -> None:
        """Report no more gauges with this value of a label: what they measured is gone."""
        for metric in self:
            if isinstance(metric, Gauge) and label in metric.description.labels:
                metric.forget(metric.description.labels.index(label), value)

    def __iter__(self) -> Iterator[Counter | Gauge | Histogram]:
        return iter(list(self._metrics.values()))

    def openmetrics(self) -> str:
        """The OpenMetrics text of everything counted so far."""
        lines: list[str] = []
        for metric in self:
            about = metric.description
            lines += [f"# TYPE {about.name} {about.kind}", f"# HELP {about.name} {about.help}"]
            lines += _histogram_lines(metric) if isinstance(metric, Histogram) else _value_lines(metric)
        return "\n".join([*lines, "# EOF", ""])

    def statsd(self, prefix: str, before: dict[str, float]) -> Iterator[str]:
        """Lines for a statsd server: counters as the growth since `before`, which is brought up to date.

        Label values become parts of the name, since plain statsd knows no labels.
        """
        for metric in self:
            name = metric.description.name.removeprefix("headwater_")
            if isinstance(metric, Gauge):
                for labels, value in metric.values.items():
                    key = _dotted(prefix, name, *labels)
                    if value < 0:
                        yield f"{key}:0|g"  # a bare minus would mean "less than before"
                    yield f"{key}:{_number(value)}|g"
                continue
            totals: dict[tuple[str, ...], float] = {}
            if isinstance(metric, Counter):
                totals = dict(metric.values)
            else:
                for labels, (buckets, total) in list(metric.series.items()):
                    count, mean = _dotted(prefix, name, *labels, "count"), _dotted(prefix, name, *labels)
                    grown = sum(buckets) - before.get(count, 0)
                    if grown:
                        yield f"{mean}:{(total[0] - before.get(mean, 0.0)) / grown * 1000:.3f}|ms"
                    before[mean] = total[0]
                    totals[(*labels, "count")] = sum(buckets)
            for labels, total_now in totals.items():
                key = _dotted(prefix, name, *labels)
                grown = total_now - before.get(key, 0)
                before[key] = total_now
                if grown:
                    yield f"{key}:{_number(grown)}|c"


def _number(value: float) -> str:
    """All digits and no exponent, which not every statsd server reads."""
    return str(int(value)) if float(value).is_integer() else f"{value:.6f}"


def _dotted(prefix: str, *parts: str) -> str:
    clean = [re.sub(r"[^A-Za-z0-9_-]+", "_", part) for part in parts if part]
    return ".".join([prefix.strip("."), *clean] if prefix.strip(".") else clean)


def _labels(names: Iterable[str], values: Iterable[str], more: str = "") -> str:
    pairs = [f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)]
    pairs += [more] if more else []
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _value_lines(metric: Counter | Gauge) -> Iterator[str]:
    about = metric.description
    suffix = "_total" if isinstance(metric, Counter) else ""
    for labels, value in list(metric.values.items()):
        yield f"{about.name}{suffix}{_labels(about.labels, labels)} {value:.17g}"


def _histogram_lines(metric: Histogram) -> Iterator[str]:
    about = metric.description
    for labels, (buckets, total) in list(metric.series.items()):
        below = 0
        for bound, count in zip([*map(str, SECONDS), "+Inf"], buckets, strict=True):
            below += count
            bucket = _labels(about.labels, labels, f'le="{bound}"')
            yield f"{about.name}_bucket{bucket} {below}"
        yield f"{about.name}_count{_labels(about.labels, labels)} {below}"
        yield f"{about.name}_sum{_labels(about.labels, labels)} {total[0]:.17g}"


class StatsdPublisher:
    """Sends the numbers to a statsd server by UDP, from a thread of its own, every few seconds.

    UDP needs no answer: an unreachable server delays nothing (G7).
    """

    def __init__(self, metrics: Metrics, host: str, port: int, prefix: str, interval_seconds: float) -> None:
        self._metrics = metrics
        self._address = (host, port)
        self._prefix = prefix
        self._interval = interval_seconds
        self._before: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="statsd", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop, after one last publication."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def publish(self) -> None:
        """Send everything now, several lines to a datagram that fits an Ethernet frame."""
        found = socket.getaddrinfo(*self._address, type=socket.SOCK_DGRAM)
        # IPv4 if there is a choice: UDP does not report that no server listens on the other `localhost`
        family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
        with socket.socket(family, socket.SOCK_DGRAM) as udp:
            datagram = ""
            for line in self._metrics.statsd(self._prefix, self._before):
                if datagram and len(datagram) + len(line) + 1 > MAX_DATAGRAM_BYTES:
                    udp.sendto(datagram.encode(), address)
                    datagram = ""
                datagram += line + "\n"
            if datagram:
                udp.sendto(datagram.encode(), address)

    def _run(self) -> None:
        while True:
            stopping = self._stop.wait(self._interval)
            try:
                self.publish()
            except (OSError, UnicodeError):  # UnicodeError: a name that no host can have
                logger.debug("statsd at %s:%s cannot be reached", *self._address)
            if stopping:
                return

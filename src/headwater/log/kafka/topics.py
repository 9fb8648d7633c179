"""Topics: Kafka as the log of events for the pipeline, where several gateways share the work.

Each token has a topic, `<prefix><token>`. An event is acknowledged when every in-sync replica of its
partition has it (`acks=all`), which takes the place of the fsync (G1). The producer is idempotent, so its own
retries neither double nor reorder. While no broker answers, events are refused (503) after
`timeout_seconds`, or as soon as the buffer is full: memory is bounded (G8).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from headwater.clock import SystemClock
from headwater.errors import HeadwaterError, LogClosed, LogUnavailable, SettingsError
from headwater.log.kafka.client import LINGER_MILLIS, KafkaProducer, client_config
from headwater.log.queue.group_commit import OnCommitted, complete_runs
from headwater.metrics import Metrics
from headwater.settings import KafkaSettings

logger = logging.getLogger(__name__)

CREATE_SECONDS = 5.0
LIST_SECONDS = 1.0  # `close` waits for it
START_SECONDS = 3.0
RETRY_SECONDS = 0.2
MAX_BUFFERED = 1_000_000
MAX_EVENT_BYTES = 16 * 1024 * 1024  # Kafka's default is 1 MB, less than the gateway accepts


def new_producer(settings: KafkaSettings, on_poll: Callable[[], None] = lambda: None) -> KafkaProducer:
    """The producer of the topics, not started; SettingsError if a setting is wrong."""
    config = {
        "compression.type": "zstd",
        "linger.ms": LINGER_MILLIS,
        "queue.buffering.max.kbytes": max(1024, settings.buffer_bytes // 1024),
        "queue.buffering.max.messages": MAX_BUFFERED,
        "message.max.bytes": MAX_EVENT_BYTES,
        **client_config(settings),
        "message.timeout.ms": max(1, round(settings.timeout_seconds * 1000)),
    }
    try:
        return KafkaProducer(config, name="topics", on_poll=on_poll)
    except HeadwaterError:
        raise
    except Exception as error:  # how librdkafka reports a wrong setting
        raise SettingsError([f"`events.kafka` cannot be used: {error}"]) from error


class Topics:
    """Appends events of this process. Any number of processes may do so at once."""

    def __init__(
        self,
        settings: KafkaSettings,
        token_ids: Iterable[str],
        *,
        metrics: Metrics | None = None,
        start_seconds: float = START_SECONDS,
    ) -> None:
        """Starts whether or not a broker answers; missing topics are created as soon as one does."""
        self._settings = settings
        self._names = {id: settings.topic(id) for id in token_ids}
        found = metrics or Metrics()
        self._events = found.counter("incoming_events_appended")
        self._bytes = found.counter("incoming_bytes_appended")
        self._errors = found.counter("incoming_commit_errors")
        self._errors.begin("io")
        self._seconds = found.histogram("incoming_commit_seconds")
        self._clock = SystemClock()
        self._guard = threading.Lock()
        self._is_closing = threading.Event()
        self._problem = ""  # of the topics' creation
        self._reported_on: list[_InFlight] = []
        self.pending_bytes = 0
        self._is_last_stored = True
        self._existing: set[str] = set()
        self._all_exist = threading.Event()
        self._retired: list[KafkaProducer] = []
        self._producer = self._new_producer()
        self._producer.start()
        self._creator = self._new_creator()
        self._all_exist.wait(start_seconds)

    def add(self, token_ids: Iterable[str]) -> None:
        """Create the topics of further tokens, too; returns at once."""
        names = {id: self._settings.topic(id) for id in token_ids}
        with self._guard:
            if names.keys() <= self._names.keys():
                return
            self._names = self._names | names
            if self._all_exist.is_set():  # else the thread that creates them runs, and finds these
                self._all_exist.clear()
                self._creator = self._new_creator()

    def _new_creator(self) -> threading.Thread:
        creator = threading.Thread(target=self._create_topics, name="topics-creator", daemon=True)
        creator.start()
        return creator

    @property
    def healthy(self) -> bool:
        """Whether all topics exist and the last event that was reported on was stored."""
        return self._is_last_stored and self._all_exist.is_set()

    def append(
        self, token_id: str, bodies: Sequence[bytes], on_committed: OnCommitted, receipt: object
    ) -> None:
        """Produce the events; `on_committed` is called once the broker has reported on all of them.

        With an error not all of the events are known to be stored; some may be. LogUnavailable at once if
        there is no room for any.
        """
        if self._is_closing.is_set():
            raise LogClosed("The topics are being closed.", hint="Send it again.")
        count, size = len(bodies), sum(map(len, bodies))
        in_flight = _InFlight(on_committed, receipt, token_id, count, count, size, self._clock.monotonic())
        topic = self._names[token_id]
        if topic not in self._existing:
            # producing to it would make the broker create it, with the broker's own settings
            self._errors.add(1, "io")
            raise self._unavailable(f"the topic {topic} does not exist yet")
        report = partial(self._on_report, in_flight)
        for place, body in enumerate(bodies):
            try:
                self._producer.produce(topic, body, report)
            except Exception as error:
                failure = self._failure(error)
                if not place:
                    self._errors.add(1, "io")
                    raise failure from error
                self._count_reports(in_flight, len(bodies) - place, failure)
                break
            if not place:
                with self._guard:
                    self.pending_bytes += in_flight.bytes

    def close(self) -> None:
        """Accept nothing new, and answer all requests when the broker or the timeout has reported on them."""
        self._is_closing.set()
        for producer in [*self._retired, self._producer]:
            producer.close(purge=False)
        self._creator.join()

    def _new_producer(self) -> KafkaProducer:
        return new_producer(self._settings, self._complete_reported)

    # --- in the poll thread, and in `append` where it fails -------------------------------------------

    def _on_report(self, in_flight: _InFlight, error: Any, _: Any) -> None:
        if error is None:
            self._count_reports(in_flight, 1, None)
        else:
            self._producer.is_broken = self._producer.is_broken or error.fatal()
            self._count_reports(in_flight, 1, self._unavailable(error.str()))

    def _failure(self, error: Exception) -> HeadwaterError:
        if isinstance(error, HeadwaterError):
            return error
        if isinstance(error, BufferError):
            return self._unavailable(f"{self._settings.buffer_bytes} bytes wait for it already")
        first = error.args[0] if error.args else error
        if getattr(first, "fatal", bool)():
            self._producer.is_broken = True
        return self._unavailable(str(first))

    def _unavailable(self, reason: str) -> LogUnavailable:
        problem = self._producer.problem or self._problem
        cause = f" ({problem})" if problem and problem not in reason else ""
        return LogUnavailable(
            f"Kafka at {self._settings.servers} did not take it: {reason}{cause}.",
            hint="Nothing was acknowledged. Send it again.",
        )

    def _count_reports(self, in_flight: _InFlight, count: int, error: HeadwaterError | None) -> None:
        """Note reports on events of a request; the request is completed after the poll of its last."""
        with self._guard:
            in_flight.open -= count
            in_flight.error = in_flight.error or error
            if not in_flight.open:
                self.pending_bytes -= in_flight.bytes
                self._reported_on.append(in_flight)

    def _complete_reported(self) -> None:
        with self._guard:
            reported, self._reported_on = self._reported_on, []
        for in_flight in reported:
            if in_flight.error is None:
                self._events.add(in_flight.count, in_flight.token_id)
                self._bytes.add(in_flight.bytes, in_flight.token_id)
                self._seconds.observe(self._clock.monotonic() - in_flight.at)
            else:
                self._errors.add(1, "io")
            self._is_last_stored = in_flight.error is None
        complete_runs((each.on_committed, each.error, [each.receipt]) for each in reported)
        if self._producer.is_broken and not self._is_closing.is_set():
            self._replace_producer()

    def _replace_producer(self) -> None:
        """Open another producer after a fatal error; the old one fails its events and ends by itself."""
        logger.error("Kafka's producer failed (%s); another one is opened.", self._producer.problem)
        old, self._producer = self._producer, self._new_producer()
        self._producer.start()
        self._retired = [*self._retired[-1:], old]
        old.close(purge=True, wait=False)

    # --- topics ---------------------------------------------------------------------------------------

    def _create_topics(self) -> None:
        """Create the missing topics, and try again until all exist."""
        from confluent_kafka.admin import AdminClient

        admin: AdminClient | None = None
        while not self._is_closing.is_set():
            try:
                wanted = set(self._names.values())
                admin = admin or AdminClient(client_config(self._settings))
                self._existing = wanted & admin.list_topics(timeout=LIST_SECONDS).topics.keys()
                if missing := wanted - self._existing:
                    self._create(admin, sorted(missing))
                with self._guard:
                    if not missing and wanted == set(self._names.values()):
                        self._all_exist.set()
                        return
            except Exception as error:
                problem = str(error.args[0] if error.args else error)
                if problem != self._problem:
                    logger.warning("The topics of Kafka cannot be created yet: %s", problem)
                self._problem = problem
            self._is_closing.wait(RETRY_SECONDS)

    def _create(self, admin: Any, names: list[str]) -> None:
        from confluent_kafka.cimpl import NewTopic

        settings = self._settings
        limit = {"max.message.bytes": str(MAX_EVENT_BYTES)}
        topics = [NewTopic(name, settings.partitions, settings.replicas, config=limit) for name in names]
        for future in admin.create_topics(topics, request_timeout=CREATE_SECONDS).values():
            future.result(2 * CREATE_SECONDS)


class _InFlight(msgspec.Struct, eq=False):
    """Events of one request that were given to the producer; `open` of them were not reported on yet."""

    on_committed: OnCommitted
    receipt: object
    token_id: str
    count: int
    open: int
    bytes: int
    at: float
    error: HeadwaterError | None = None

"""Topics: Kafka as the log of events for the pipeline, where several gateways share the work.

Each token has a topic, `<prefix><token>`. It stands where `Incoming` stands for the gateway: an event is
answered when every in-sync replica of its partition has it (`acks=all`), which takes the place of the fsync
(G1). The producer is idempotent, so its own retries neither double nor reorder. While no broker answers,
events are refused (503) after `timeout_seconds`, or as soon as the buffer is full: memory is bounded (G8).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from headwater.clock import SystemClock
from headwater.errors import ExtensionError, HeadwaterError, LogClosed, LogUnavailable, SettingsError
from headwater.log.queue.group_commit import OnCommitted, complete_runs
from headwater.metrics import Metrics
from headwater.settings import KafkaSettings

__all__ = ["Topics", "client_config", "reach"]

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
CREATE_SECONDS = 5.0
START_SECONDS = 3.0
RETRY_SECONDS = 0.2
MAX_BUFFERED = 1_000_000
MAX_EVENT_BYTES = 16 * 1024 * 1024  # Kafka's own limit is 1 MB, which is less than the gateway takes

OURS = {
    "enable.idempotence": True,  # no duplicates and no change of order by the producer's own retries
    "acks": "all",
}


def client_config(settings: KafkaSettings) -> dict[str, Any]:
    """What every client of the brokers is given."""
    if clash := sorted(OURS.keys() & settings.config.keys()):
        raise SettingsError(
            [f"`events.kafka.config.{name}` cannot be set: acknowledged events rest on it" for name in clash]
        )
    return {"bootstrap.servers": settings.servers, "logger": log, **settings.config}


def reach(settings: KafkaSettings, timeout_seconds: float) -> None:
    """LogUnavailable unless the settings can be used and, with a timeout, a broker answers."""
    config = client_config(settings)
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise _uninstalled() from error
    try:
        admin = AdminClient({"log_level": 0, **config})
        if timeout_seconds:
            admin.list_topics(timeout=timeout_seconds)
    except KafkaException as error:
        raise LogUnavailable(
            f"Kafka at {settings.servers} does not answer: {error.args[0].str()}.",
            hint="Check `events.kafka`, and whether the brokers can be reached from here.",
        ) from error


def _uninstalled() -> ExtensionError:
    return ExtensionError(
        "`events.kafka` needs the package confluent-kafka, which is not installed.",
        hint="Run `pip install 'headwater[kafka]'`.",
    )


class Topics:
    """Appends events of this process. Any number of processes may do so at once."""

    def __init__(
        self, settings: KafkaSettings, token_ids: Iterable[str], *, metrics: Metrics | None = None
    ) -> None:
        """Starts whether or not a broker answers; topics that are missing are made as soon as one does."""
        self._settings = settings
        self._names = {id: settings.topic(id) for id in token_ids}
        found = metrics or Metrics()
        self._events = found.counter("incoming_events_appended")
        self._bytes = found.counter("incoming_bytes_appended")
        self._errors = found.counter("incoming_commit_errors")
        self._seconds = found.histogram("incoming_commit_seconds")
        self._clock = SystemClock()
        self._guard = threading.Lock()
        self._is_closing = threading.Event()
        self._is_broken = False
        self._problem = ""
        self._reported_on: list[_InFlight] = []
        self.pending_bytes = 0
        self._is_taken = True
        self._ready: set[str] = set()
        self._are_ready = threading.Event()
        self._producer = self._made()
        self._poller = threading.Thread(target=self._poll, name="topics", daemon=True)
        self._poller.start()
        self._maker = threading.Thread(target=self._make_topics, name="topics-maker", daemon=True)
        self._maker.start()
        self._are_ready.wait(START_SECONDS)

    @property
    def healthy(self) -> bool:
        """Whether there are topics, and the last event that was reported on was taken."""
        return self._is_taken and self._are_ready.is_set()

    def append(
        self, token_id: str, bodies: Sequence[bytes], on_committed: OnCommitted, receipt: object
    ) -> None:
        """Produce the events; `on_committed` is called once the broker has reported on all of them.

        An error means that not all of them are known to be there; some may be. LogUnavailable at once where
        there is no room for any.
        """
        if self._is_closing.is_set():
            raise LogClosed("The topics are being closed.", hint="Send it again.")
        in_flight = _InFlight(on_committed, receipt, token_id, bodies, self._clock.monotonic())
        topic = self._names[token_id]
        if topic not in self._ready:
            # to produce to it would have the broker make it, in its own way
            self._errors.add(1, "io")
            raise self._unavailable(f"the topic {topic} is not there yet")
        report = partial(self._reported, in_flight)
        for place, body in enumerate(bodies):
            try:
                self._producer.produce(topic, body, on_delivery=report)
            except Exception as error:
                failure = self._failure(error)
                if not place:
                    self._errors.add(1, "io")
                    raise failure from error
                self._part(in_flight, len(bodies) - place, failure)
                break
            if not place:
                with self._guard:
                    self.pending_bytes += in_flight.bytes

    def close(self) -> None:
        """Take nothing new, wait for what is under way as long as it may take, and answer everybody."""
        self._is_closing.set()
        self._poller.join()
        self._maker.join()

    def _made(self) -> Any:
        try:
            from confluent_kafka import Producer
        except ImportError as error:
            raise _uninstalled() from error
        settings = self._settings
        config = {
            "compression.type": "zstd",
            "linger.ms": settings.linger_seconds * 1000,
            "queue.buffering.max.kbytes": max(1024, settings.buffer_bytes // 1024),
            "queue.buffering.max.messages": MAX_BUFFERED,
            "message.max.bytes": MAX_EVENT_BYTES,
            **client_config(settings),
            "message.timeout.ms": max(1, round(settings.timeout_seconds * 1000)),
            "error_cb": self._heard,
            **OURS,
        }
        try:
            return Producer(config)
        except Exception as error:  # librdkafka tells of a wrong setting so
            raise SettingsError([f"`events.kafka` cannot be used: {error}"]) from error

    # --- in the poller's thread, but for what append meets --------------------------------------------

    def _heard(self, error: Any) -> None:
        self._problem = error.str()
        self._is_broken = self._is_broken or error.fatal()

    def _reported(self, in_flight: _InFlight, error: Any, _: Any) -> None:
        if error is None:
            self._part(in_flight, 1, None)
        else:
            self._is_broken = self._is_broken or error.fatal()
            self._part(in_flight, 1, self._unavailable(error.str()))

    def _failure(self, error: Exception) -> HeadwaterError:
        if isinstance(error, BufferError):
            return self._unavailable(f"{self._settings.buffer_bytes} bytes wait for it already")
        first = error.args[0] if error.args else error
        if getattr(first, "fatal", bool)():
            self._is_broken = True
        return self._unavailable(str(first))

    def _unavailable(self, reason: str) -> LogUnavailable:
        said = f" ({self._problem})" if self._problem and self._problem not in reason else ""
        return LogUnavailable(
            f"Kafka at {self._settings.servers} did not take it: {reason}{said}.",
            hint="Nothing was acknowledged. Send it again.",
        )

    def _part(self, in_flight: _InFlight, count: int, error: HeadwaterError | None) -> None:
        """Some events of a request are reported on; when all are, it is reported after this poll."""
        with self._guard:
            in_flight.open -= count
            in_flight.error = in_flight.error or error
            if not in_flight.open:
                self.pending_bytes -= in_flight.bytes
                self._reported_on.append(in_flight)

    def _poll(self) -> None:
        while not self._is_closing.is_set():
            self._serve(POLL_SECONDS)
        # the producer gives up by itself what it cannot deliver in time
        while len(self._producer):
            self._serve(POLL_SECONDS)
        self._serve(0)

    def _serve(self, seconds: float) -> None:
        try:
            self._producer.poll(seconds)
            if self._is_broken:
                self._replace()
        except Exception:
            log.exception("The producer failed; it goes on.")
        with self._guard:
            reported, self._reported_on = self._reported_on, []
        self._complete(reported)

    def _replace(self) -> None:
        """One that met a fatal error takes nothing any more: what it has fails, and another is made."""
        log.error("Kafka's producer failed (%s); another one is made.", self._problem)
        old = self._producer
        self._is_broken = False
        self._producer = self._made()
        old.purge()
        old.flush(1.0)

    def _complete(self, reported: list[_InFlight]) -> None:
        for in_flight in reported:
            if in_flight.error is None:
                self._events.add(in_flight.count, in_flight.token_id)
                self._bytes.add(in_flight.bytes, in_flight.token_id)
                self._seconds.observe(self._clock.monotonic() - in_flight.at)
            else:
                self._errors.add(1, "io")
            self._is_taken = in_flight.error is None
        complete_runs((each.on_committed, each.error, [each.receipt]) for each in reported)

    # --- topics ---------------------------------------------------------------------------------------

    def _make_topics(self) -> None:
        """See which topics are there, and make the others, until all are."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(client_config(self._settings))
        while not self._is_closing.is_set():
            try:
                self._ready = (
                    set(self._names.values()) & admin.list_topics(timeout=CREATE_SECONDS).topics.keys()
                )
                if missing := set(self._names.values()) - self._ready:
                    self._make(admin, sorted(missing))
                else:
                    self._are_ready.set()
                    return
            except (KafkaException, TimeoutError) as error:
                self._problem = str(error.args[0] if error.args else error)
            self._is_closing.wait(RETRY_SECONDS)

    def _make(self, admin: Any, names: list[str]) -> None:
        from confluent_kafka.cimpl import NewTopic

        settings = self._settings
        limit = {"max.message.bytes": str(MAX_EVENT_BYTES)}
        wanted = [NewTopic(name, settings.partitions, settings.replicas, config=limit) for name in names]
        for future in admin.create_topics(wanted, request_timeout=CREATE_SECONDS).values():
            future.result(2 * CREATE_SECONDS)


class _InFlight:
    """Events of one request that the producer has."""

    __slots__ = ("at", "bytes", "count", "error", "on_committed", "open", "receipt", "token_id")

    def __init__(
        self, on_committed: OnCommitted, receipt: object, token_id: str, bodies: Sequence[bytes], at: float
    ) -> None:
        self.on_committed = on_committed
        self.receipt = receipt
        self.token_id = token_id
        self.count = self.open = len(bodies)
        self.bytes = sum(map(len, bodies))
        self.at = at
        self.error: HeadwaterError | None = None

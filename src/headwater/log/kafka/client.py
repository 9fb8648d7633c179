"""Kafka clients: the settings that the promises need, and an idempotent producer with its poll thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from headwater.clock import Clock, SystemClock
from headwater.errors import ExtensionError, LogClosed, LogUnavailable, SettingsError
from headwater.settings import KafkaSettings
from headwater.system.installation import install_command

logger = logging.getLogger(__name__)

REPEAT_SECONDS = 60.0


class RepeatFilter(logging.Filter):
    """Passes a line of each kind, then none of it for a minute, and says how many were held back.

    librdkafka logs each try to connect, of which there are several a second while no broker answers. The
    first argument of its lines is their kind, such as `FAIL` or `ERROR`.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        self._kinds: dict[str, tuple[float, int]] = {}  # when the last line was passed, lines held back since
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        kind = str(record.args[0]) if isinstance(record.args, tuple) and record.args else record.msg
        now = self._clock.monotonic()
        with self._lock:
            last, held_back = self._kinds.get(kind, (now - REPEAT_SECONDS, 0))
            if now - last < REPEAT_SECONDS:
                self._kinds[kind] = last, held_back + 1
                return False
            self._kinds[kind] = now, 0
        if held_back:
            record.msg = f"{record.getMessage()} (and {held_back} lines like this one since the last)"
            record.args = ()
        return True


client_logger = logging.getLogger(f"{__name__}.librdkafka")
"""The logger of every librdkafka client."""
client_logger.addFilter(RepeatFilter())

POLL_SECONDS = 0.1  # how late a thread sees that it should end; reports wake it at once
PURGE_SECONDS = 1.0
LINGER_MILLIS = 5  # how long a producer waits for more to send together

GUARANTEES: Mapping[str, Any] = {
    "enable.idempotence": True,  # no duplicates and no change of order by the producer's own retries
    "acks": "all",
}


def refuse_fixed_settings(
    config: Mapping[str, str], fixed: Mapping[str, Any], path: str, *, source: str = "configuration"
) -> None:
    """SettingsError if the user's librdkafka settings contain one that a promise depends on."""
    if clash := sorted(fixed.keys() & config.keys()):
        raise SettingsError(
            [f"`{path}.{name}` cannot be set: the order and safety of events depend on it" for name in clash],
            source=source,
        )


def client_config(settings: KafkaSettings) -> dict[str, Any]:
    """The librdkafka settings of every client of `events.kafka`."""
    refuse_fixed_settings(settings.config, GUARANTEES, "events.kafka.config")
    return {"bootstrap.servers": settings.servers, "logger": client_logger, **settings.config}


def check_brokers(settings: KafkaSettings, timeout_seconds: float) -> None:
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
        hint=f"Run `{install_command('kafka')}`.",
    )


class KafkaProducer:
    """An idempotent producer and the thread that serves its delivery reports.

    `on_poll` is called by that thread after each poll. After a fatal error `is_broken` is set: the producer
    takes nothing more, and its owner closes it and opens another.
    """

    def __init__(
        self, config: Mapping[str, Any], *, name: str, on_poll: Callable[[], None] = lambda: None
    ) -> None:
        """Needs no broker yet; ValueError or KafkaException if a setting is wrong."""
        try:
            from confluent_kafka import Producer
        except ImportError as error:
            raise _uninstalled() from error
        self.problem = ""  # the last error that librdkafka reported
        self.is_broken = False
        self._on_poll = on_poll
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self._give_up_at: float | None = None
        self._producer = Producer({**config, "error_cb": self._on_kafka_error, **GUARANTEES})
        self._thread = threading.Thread(target=self._poll, name=name, daemon=True)

    def start(self) -> None:
        """Serve delivery reports from now on."""
        self._thread.start()

    def produce(
        self, topic: str, value: bytes, on_delivery: Callable[[Any, Any], None], key: bytes | None = None
    ) -> None:
        """Queue an event; `on_delivery(error, message)` is called by the poll thread, once.

        BufferError if the queue is full, KafkaException if the event cannot be sent, LogClosed after `close`.
        """
        with self._guard:  # so that the poll thread does not end between the check and the call
            if self._closing.is_set():
                raise LogClosed("The producer is being closed.", hint="Send it again.")
            self._producer.produce(topic, value, key, on_delivery=on_delivery)

    def list_topics(self, topic: str, timeout_seconds: float) -> None:
        """KafkaException unless a broker answers within the time."""
        self._producer.list_topics(topic, timeout_seconds)

    def close(self, *, purge: bool, wait: bool = True) -> None:
        """Accept nothing new, and end when all events are reported on; with `purge` they fail at once."""
        with self._guard:
            self._closing.set()
        if purge:
            self._give_up_at = time.monotonic() + PURGE_SECONDS
            self._producer.purge()
        if wait and self._thread.is_alive():
            self._thread.join()

    def _on_kafka_error(self, error: Any) -> None:
        self.problem = error.str()
        self.is_broken = self.is_broken or error.fatal()

    def _poll(self) -> None:
        while not self._closing.is_set() or self._has_reports():
            self._serve(POLL_SECONDS)
        self._serve(0)

    def _has_reports(self) -> bool:
        late = self._give_up_at is not None and time.monotonic() > self._give_up_at
        return bool(len(self._producer)) and not late

    def _serve(self, seconds: float) -> None:
        try:
            self._producer.poll(seconds)
            self._on_poll()
        except Exception:
            logger.exception("A poll of a Kafka producer failed; its thread continues.")

"""The `kafka` outlet: events into a topic, keyed by their session's key, by an idempotent producer.

Order (G2): events of one key go to one partition, in order. Without `group_by` there is one session; all its
events then carry the outlet's name as key, so they share a partition and keep their order.

The producer itself never gives up an event (no message timeout): if it did, a later one could overtake. When
`send` runs into its own timeout the events stay with the producer, and the next try waits for the same ones
instead of handing them in twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from headwater.delivery.outlets.base import (
    DELIVERED,
    Batch,
    NotConnected,
    Outlet,
    Refused,
    Result,
    Results,
    Retry,
)
from headwater.errors import OutletUnavailable
from headwater.log.kafka.client import (
    GUARANTEES,
    LINGER_MILLIS,
    KafkaProducer,
    client_logger,
    refuse_fixed_settings,
)
from headwater.settings import LIBRDKAFKA, OutletSettings, doc

try:
    from confluent_kafka import KafkaError, KafkaException
except ImportError as error:
    raise ImportError(f"the package confluent-kafka is missing: {error}") from error

REFUSED_ERRORS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_TIMESTAMP,
    }
)
"""Errors that are about the event; every other one is about the broker, and is tried again."""

CONNECT_SECONDS = 10.0  # how long a broker may take to answer
FIXED = {**GUARANTEES, "message.timeout.ms": 0}


class KafkaOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster, the topic, and the settings of the producer."""

    removed: ClassVar[Mapping[str, str]] = {
        "linger_seconds": '`config: {linger.ms: "5"}` does the same, in milliseconds',
        "connect_seconds": "a broker that does not answer for ten seconds is asked again",
    }

    servers: Annotated[str, doc("Brokers to begin with: `host:port`, several with commas.")]
    topic: Annotated[str, msgspec.Meta(min_length=1, max_length=249), doc("The topic; it must exist.")]
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"], doc("How the producer compresses.")
    ] = "zstd"
    config: Annotated[
        dict[str, str],
        doc("Further librdkafka settings, such as `security.protocol` and `sasl.username`."),
        LIBRDKAFKA,
    ] = {}


Report = asyncio.Future[KafkaError | None]


class KafkaOutlet(Outlet):
    """Produces events to Kafka; delivered means acknowledged by all in-sync replicas."""

    shares_loop = True
    Settings = KafkaOptions
    options: KafkaOptions

    def __init__(
        self, options: Any, settings: OutletSettings, *, connect_seconds: float = CONNECT_SECONDS
    ) -> None:
        super().__init__(options, settings)
        self._connect_seconds = connect_seconds
        refuse_fixed_settings(self.options.config, FIXED, "config", source=f"outlet {settings.name}")
        self._producer: KafkaProducer | None = None
        self._reports: dict[str, dict[int, Report]] = {}  # session -> position -> report to come

    @property
    def max_events(self) -> int | None:
        """One, where a refused event may not be overtaken."""
        return 1 if self.settings.on_refused == "block" else None

    def _config(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.options.servers,
            "compression.type": self.options.compression,
            "linger.ms": LINGER_MILLIS,
            "logger": client_logger,
            **self.options.config,
            **FIXED,
        }

    @property
    def _problem(self) -> str:
        return self._producer.problem if self._producer is not None else ""

    async def connect(self) -> None:
        if self._producer is not None:
            return
        producer: KafkaProducer | None = None
        try:
            producer = KafkaProducer(self._config(), name=f"outlet-{self.settings.name}-kafka")
            await asyncio.to_thread(producer.list_topics, self.options.topic, self._connect_seconds)
        except (KafkaException, ValueError, TypeError) as error:
            problem = _text(error)
            if producer is not None:
                problem = producer.problem or problem
                await asyncio.to_thread(producer.close, purge=True)
            raise OutletUnavailable(
                f"Kafka at {self.options.servers} cannot be reached: {problem}."
            ) from error
        except BaseException:
            if producer is not None:
                producer.close(purge=True, wait=False)
            raise
        self._loop = asyncio.get_running_loop()
        self._reports.clear()
        producer.start()
        self._producer = producer

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await asyncio.to_thread(producer.close, purge=True)
            self._reports.clear()

    def trouble(self) -> str | None:
        if problem := self._problem:
            return f"Kafka at {self.options.servers} takes no events: {problem}"
        return None

    async def send(self, batch: Batch) -> Results:
        if self._producer is None:
            raise NotConnected(f"Kafka at {self.options.servers} is not connected.")
        pending = self._reports.setdefault(batch.session, {})
        reports: list[Report] = []
        for event, piece in zip(batch.events, batch.pieces, strict=True):
            report = pending.get(event.position)
            if report is None:
                report = self._produce(batch, piece)
                if report is None:
                    break  # the producer's queue is full: the rest goes next time
                pending[event.position] = report
            reports.append(report)
        if not reports:
            raise OutletUnavailable(f"Kafka at {self.options.servers} takes no more: {self._problem}")
        # cancelled by the timeout, this leaves the reports where they are, for the next try to wait for
        await asyncio.wait(reports)
        results = [self.result(report.result()) for report in reports]
        for event in batch.events[: len(reports)]:
            pending.pop(event.position, None)
        if not pending:
            self._reports.pop(batch.session, None)
        if any((error := report.result()) is not None and error.fatal() for report in reports):
            problem = self._problem
            await self.close()  # after a fatal error a producer sends nothing more; `connect` opens another
            raise NotConnected(f"Kafka at {self.options.servers}: the producer failed: {problem}")
        return results

    def _produce(self, batch: Batch, piece: bytes) -> Report | None:
        """Hand one event to the producer; None when it has no room."""
        producer = self._producer
        assert producer is not None
        report: Report = self._loop.create_future()
        key = (batch.key.text or self.settings.name).encode()

        def reported(error: KafkaError | None, _: object) -> None:
            if error is None:
                producer.problem = ""  # a broker answers again
            try:
                self._loop.call_soon_threadsafe(_settle, report, error)
            except RuntimeError:
                pass  # the loop is closed, and with it the outlet

        try:
            producer.produce(self.options.topic, piece, reported, key)
        except BufferError:
            return None
        except KafkaException as error:
            report.set_result(error.args[0])
        return report

    def result(self, error: KafkaError | None) -> Result:
        """The result of an event by its delivery report."""
        if error is None:
            return DELIVERED
        reason = f"Kafka topic {self.options.topic}: {error.str()}"
        return Refused(reason) if error.code() in REFUSED_ERRORS else Retry(reason)


def _settle(report: Report, error: KafkaError | None) -> None:
    if not report.done():
        report.set_result(error)


def _text(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return first.str() if isinstance(first, KafkaError) else str(error)

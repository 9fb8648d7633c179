"""Settings of the server: gateway, TLS, log, outlets, retry, tokens, event files, Kafka, metrics."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from headwater.settings.types import MIB, Bytes, Count, Hours, Id, Port, Seconds, doc


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """TLS for the gateway; without it the gateway speaks plain HTTP."""

    certificate: Annotated[str, doc("PEM file with the certificate and its chain.")]
    key: Annotated[str, doc("PEM file with the private key.")]
    client_ca: Annotated[str, doc("PEM file; where set, clients must show a certificate signed by it.")] = ""


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where events come in."""

    host: Annotated[str, doc("Address to listen on.")] = "127.0.0.1"
    port: Annotated[Port, doc("Port to listen on; 0 takes a free one.")] = 8750
    tls: Annotated[TlsSettings | None, doc("TLS; null for plain HTTP.")] = None
    api_keys: Annotated[
        tuple[str, ...], doc("Bearer keys that producers must send; empty: none is required.")
    ] = ()
    admin_token: Annotated[
        str,
        doc(
            "Token that readers of the graph and the page must send; empty: if `host` is a loopback address, "
            "requests from this machine are served, otherwise none."
        ),
    ] = ""
    trusted_proxies: Annotated[
        tuple[str, ...],
        doc("Networks of proxies whose `X-Forwarded-For` is believed when a sender's address is noted."),
    ] = ("127.0.0.0/8", "::1/128")
    strict: Annotated[
        bool, doc("Refuse what the official schemas refuse; off, a bad `format: uri` is only a warning.")
    ] = False
    failed_events: Annotated[
        str, doc("Handler of non-compliant events: `rejects`, `log`, `both`, or an extension's name.")
    ] = "rejects"
    max_event_bytes: Annotated[Bytes, doc("Largest event, after decompression; larger: 413.")] = 1 * MIB
    max_body_bytes: Annotated[Bytes, doc("Largest request body, after decompression; larger: 413.")] = (
        16 * MIB
    )
    max_batch_events: Annotated[Count, doc("Most events in one batch; more: 413.")] = 10_000
    max_depth: Annotated[Count, doc("Deepest nesting of an event; deeper: 400.")] = 100
    max_keys: Annotated[Count, doc("Most object keys in an event; more: 400.")] = 50_000
    max_connections: Annotated[Count, doc("Open connections; further ones are answered 503.")] = 1_000
    max_pending_bytes: Annotated[
        Bytes, doc("Bytes of requests in memory that wait for the disk; beyond it: 503 with Retry-After.")
    ] = 32 * MIB
    request_timeout_seconds: Annotated[Seconds, doc("A request must arrive whole within this time.")] = 30.0
    idle_timeout_seconds: Annotated[Seconds, doc("A connection without a request is closed after it.")] = 75.0
    shutdown_timeout_seconds: Annotated[Seconds, doc("Time for what is under way when stopped.")] = 20.0


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how much is kept."""

    partition_bytes: Annotated[Bytes, doc("A partition file is closed at this size on disk.")] = 64 * MIB
    partition_hours: Annotated[Hours, doc("A partition file is closed at this age.")] = 1.0
    retention_hours: Annotated[
        Hours, doc("T: events are kept at least this long for an unreachable receiver, then dropped.")
    ] = 168.0
    retention_bytes: Annotated[
        Bytes, doc("B: bytes on disk; beyond it the oldest partitions are dropped, delivered or not.")
    ] = 4096 * MIB
    max_commit_bytes: Annotated[Bytes, doc("Most bytes of events in one group commit.")] = 4 * MIB
    collect_seconds: Annotated[Seconds, doc("Pause between two collections of what may go.")] = 10.0
    rejects_bytes: Annotated[Bytes, doc("Bytes of rejects kept; beyond it the oldest are dropped.")] = (
        256 * MIB
    )


class RetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an outlet waits before it tries again. There is no last try: the log keeps the events."""

    initial_seconds: Annotated[Seconds, doc("First pause.")] = 0.5
    max_seconds: Annotated[Seconds, doc("Longest pause.")] = 30.0
    multiplier: Annotated[float, msgspec.Meta(ge=1), doc("Growth from one pause to the next.")] = 2.0
    jitter: Annotated[
        float, msgspec.Meta(ge=0, le=1), doc("Each pause is varied at random by up to this part of it.")
    ] = 0.5
    max_retry_after_seconds: Annotated[Seconds, doc("A receiver's Retry-After is honoured up to this.")] = (
        3600.0
    )


class OutletSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One receiver of the events. Keys that are not listed here are the outlet type's own."""

    name: Annotated[
        str,
        msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z"),
        doc("Names the outlet's cursor; keep it when you change the rest."),
    ]
    type: Annotated[
        str, doc("`openlineage`, `dataset`, `kafka`, `http`, `file`, `console`, or an extension's name.")
    ]
    start: Annotated[
        Literal["earliest", "latest"],
        doc("Where a new outlet begins: all that is kept, or only new events."),
    ] = "earliest"
    on_refused: Annotated[
        Literal["reject", "block"],
        doc("An event the receiver refuses for good: put it into the rejects, or retry it without limit."),
    ] = "reject"
    max_batch_events: Annotated[Count, doc("Most events in one request.")] = 500
    max_batch_bytes: Annotated[Bytes, doc("Most bytes of events in one request.")] = 4 * MIB
    batch_age_seconds: Annotated[
        Seconds, doc("A batch that is not full is sent when its first event has waited this long.")
    ] = 0.0
    group_by: Annotated[
        tuple[str, ...],
        doc(
            "JSON pointers such as `/run/runId`; events that differ in them go in sessions of their own, "
            "with order kept within each. Empty: one session, total order."
        ),
    ] = ()
    max_in_flight: Annotated[Count, doc("Requests under way at once; one session never has two.")] = 16
    session_budget_bytes: Annotated[Bytes, doc("Most bytes of events that one session holds in memory.")] = (
        8 * MIB
    )
    budget_bytes: Annotated[Bytes, doc("Most bytes of events that the outlet holds in memory in all.")] = (
        32 * MIB
    )
    recovery_seconds: Annotated[
        Seconds,
        doc("Without a log: a session in error takes new events again after this time at the latest."),
    ] = 300.0
    timeout_seconds: Annotated[Seconds, doc("A request must be answered within this time; 0: no limit.")] = (
        30.0
    )
    retry: Annotated[RetrySettings, doc("Pauses between tries.")] = RetrySettings()
    options: Annotated[dict[str, Any], doc("The type's own settings.")] = msgspec.field(default_factory=dict)


class StatsdSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the numbers are sent by UDP, beside `/metrics`."""

    host: Annotated[str, doc("Host of the statsd server.")] = "127.0.0.1"
    port: Annotated[Port, doc("Its UDP port.")] = 8125
    prefix: Annotated[str, doc("First part of each name.")] = "headwater"
    interval_seconds: Annotated[float, msgspec.Meta(gt=0), doc("Pause between two publications.")] = 10.0


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the numbers are published."""

    openmetrics: Annotated[bool, doc("Serve `GET /metrics`.")] = True
    statsd: Annotated[StatsdSettings | None, doc("Send to a statsd server; null: do not.")] = None


class TokenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One source of events. Its id names its files; its secrets are what senders show."""

    id: Annotated[Id, doc("Names the token in file names and in `only_keys`; not a secret.")]
    client_secret: Annotated[
        str, doc("Shown by browsers, so it is no secret at all; empty: no browser events.")
    ] = ""
    server_secret: Annotated[
        str, doc("Shown by servers; never written into an event; empty: no server events.")
    ] = ""
    origins: Annotated[
        tuple[str, ...],
        doc("Pages that may send: `https://shop.example`, `*.example.org` (any scheme); empty: all pages."),
    ] = ()
    rate_limit_per_second: Annotated[
        float, msgspec.Meta(ge=0), doc("Most events a second, beyond it: 429; 0: no limit.")
    ] = 0.0


class KafkaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Kafka as the log of events, for installations with several gateways."""

    servers: Annotated[str, doc("Brokers to begin with: `host:port`, several with commas.")]
    topic_prefix: Annotated[
        str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{0,180}\Z"), doc("A token's topic is this and its id.")
    ] = "headwater."
    partitions: Annotated[
        Count, doc("Partitions of a topic that is made; each is a stream of its own per destination.")
    ] = 3
    replicas: Annotated[int, doc("Copies of a topic that is made; -1: as the brokers are set.")] = -1
    timeout_seconds: Annotated[
        Seconds, doc("Events that the brokers have not confirmed by then are answered 503.")
    ] = 10.0
    buffer_bytes: Annotated[Bytes, doc("Most bytes that wait for the brokers; beyond it: 503.")] = 64 * MIB
    linger_seconds: Annotated[Seconds, doc("How long to wait for more to send together.")] = 0.005
    config: Annotated[
        dict[str, str], doc("Further librdkafka settings, such as `security.protocol` and `sasl.username`.")
    ] = msgspec.field(default_factory=dict)

    def topic(self, token_id: str) -> str:
        """The topic of a token."""
        return f"{self.topic_prefix}{token_id}"


class EventsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where events wait for the pipeline: in files, or in Kafka."""

    kafka: Annotated[
        KafkaSettings | None,
        doc("Kafka as the log, instead of files and queues; all destinations are then in stream mode."),
    ] = None
    dir: Annotated[str, doc("Folder of the files; empty: `events` in the data folder.")] = ""
    rotation_minutes: Annotated[
        float,
        msgspec.Meta(gt=0),
        doc(
            "Files of a token are closed this far apart, and the pipeline loads closed files. The first file "
            "after a pause of this length is closed 5 seconds after its first event."
        ),
    ] = 5.0
    rotation_bytes: Annotated[Bytes, doc("A file is closed at this size.")] = 100 * MIB
    archive_days: Annotated[
        float,
        msgspec.Meta(ge=0),
        doc("Files that were processed are kept this long; 0: without limit."),
    ] = 30.0

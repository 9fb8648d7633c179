"""Every setting: its name, type, default and meaning. The server first, then the pipeline and the graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from headwater.settings.relative_paths import LIBRDKAFKA, PATH

MIB = 1024 * 1024

# The upper limits are those of timers, clocks, databases and C libraries, which fail on larger numbers.
Bytes = Annotated[int, msgspec.Meta(ge=1, le=2**50)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
Hours = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
# Part of file names, where a dot, a slash or a bar would end it (G12).
Id = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")]
# As the names that the pipeline makes, with wildcards.
TablePattern = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_*?]+\Z")]
Pointer = Annotated[str, msgspec.Meta(pattern=r"^/")]


def doc(text: str) -> msgspec.Meta:
    """The description of a setting, for docs/settings.md and `headwater init`."""
    return msgspec.Meta(description=text)


# --- the server ---------------------------------------------------------------------------------------


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """TLS for the gateway; without it the gateway speaks plain HTTP."""

    certificate: Annotated[str, doc("PEM file with the certificate and its chain."), PATH]
    key: Annotated[str, doc("PEM file with the private key."), PATH]
    client_ca: Annotated[
        str, doc("PEM file; where set, clients must show a certificate signed by it."), PATH
    ] = ""


class ApiKeySettings(msgspec.Struct, frozen=True, kw_only=True):
    """A key of producers, and what it may be used for."""

    key: Annotated[str, doc("Sent as `Authorization: Bearer`.")]
    namespaces: Annotated[
        tuple[str, ...],
        doc(
            "Patterns such as `food_delivery` or `postgres://*`: every job and dataset that an event names "
            "must be in one of these namespaces; empty: all namespaces."
        ),
    ] = ()


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where events come in."""

    host: Annotated[str, doc("Address to listen on.")] = "127.0.0.1"
    port: Annotated[Port, doc("Port to listen on; 0 takes a free one.")] = 8750
    tls: Annotated[TlsSettings | None, doc("TLS; null for plain HTTP.")] = None
    api_keys: Annotated[
        tuple[str | ApiKeySettings, ...],
        doc("Bearer keys that producers must send, or sections with `key`; empty: none is required."),
    ] = ()
    origins: Annotated[
        tuple[str, ...],
        doc("Pages of other sites that may send lineage; patterns as in `tokens.origins`; empty: none."),
    ] = ()
    admin_token: Annotated[
        str,
        doc(
            "Token that readers of the graph and the page must send; empty: if `host` is a loopback address, "
            "requests from this machine that no proxy forwarded are served, otherwise none."
        ),
    ] = ""
    trusted_proxies: Annotated[
        tuple[str, ...],
        doc("Networks of proxies whose `X-Forwarded-For` is trusted for the address of a sender."),
    ] = ("127.0.0.0/8", "::1/128")
    strict: Annotated[
        bool, doc("Refuse what the official schemas refuse; off, a bad `format: uri` is only a warning.")
    ] = False
    failed_events: Annotated[
        str, doc("Handler of non-compliant events: `rejects`, `log`, `both`, or an extension's name.")
    ] = "rejects"
    max_failed_bytes: Annotated[
        Bytes, doc("Most bytes of a refused lineage event that `failed_events` gets; more are cut off.")
    ] = 16 * MIB
    max_event_bytes: Annotated[
        Bytes,
        doc("Largest event for tables, after decompression; larger: 413. Lineage: `max_body_bytes`."),
    ] = 1 * MIB
    max_body_bytes: Annotated[Bytes, doc("Largest request body, after decompression; larger: 413.")] = (
        16 * MIB
    )
    max_batch_events: Annotated[Count, doc("Most events in one batch; more: 413.")] = 10_000
    max_depth: Annotated[Count, doc("Deepest nesting of an event; deeper: 400.")] = 100
    max_keys: Annotated[
        Count,
        doc(
            "Most object keys in an event; more: 400. A lineage event may have as many times more of them as "
            "`max_body_bytes` is of `max_event_bytes`."
        ),
    ] = 50_000
    idempotency_seconds: Annotated[
        Seconds,
        doc(
            "A request that is repeated within this time is stored once: by the same `Idempotency-Key`, or "
            "as a browser's event with the same bytes and an `eventn_ctx.event_id`; 0: each is stored."
        ),
    ] = 600.0
    max_connections: Annotated[
        Count, doc("Open connections, TLS handshakes included; further ones are answered 503, except probes.")
    ] = 1_000
    max_connections_per_address: Annotated[
        int,
        msgspec.Meta(ge=0),
        doc(
            "Open connections of one IPv4 address or IPv6 /64 network outside `trusted_proxies`; further "
            "ones are answered 503. 0: nine tenths of `max_connections`, so that no address takes all."
        ),
    ] = 0
    max_pending_bytes: Annotated[
        Bytes, doc("Bytes of requests in memory, heads included; beyond it: 503 with Retry-After.")
    ] = 32 * MIB
    request_timeout_seconds: Annotated[Seconds, doc("A request must arrive whole within this time.")] = 30.0
    idle_timeout_seconds: Annotated[Seconds, doc("A connection without a request is closed after it.")] = 75.0
    shutdown_timeout_seconds: Annotated[Seconds, doc("Time for requests under way when stopped.")] = 20.0

    @property
    def key_texts(self) -> tuple[str, ...]:
        """The keys of `api_keys`."""
        return tuple(each if isinstance(each, str) else each.key for each in self.api_keys)


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The log: how long events are kept, and how much disk space they may take."""

    removed: ClassVar[Mapping[str, str]] = {
        "partition_hours": "a partition is closed after an hour, or after `log.retention_hours` if shorter",
    }

    partition_bytes: Annotated[Bytes, doc("A partition file is closed at this size on disk.")] = 64 * MIB
    retention_hours: Annotated[
        Hours, doc("T: events are kept at least this long for an unreachable receiver, then dropped.")
    ] = 168.0
    retention_bytes: Annotated[
        Bytes, doc("B: bytes on disk; beyond it the oldest partitions are dropped, delivered or not.")
    ] = 4096 * MIB
    max_commit_bytes: Annotated[Bytes, doc("Most bytes of events in one group commit.")] = 4 * MIB
    collect_seconds: Annotated[Seconds, doc("Pause between two removals of old partitions.")] = 10.0
    rejects_bytes: Annotated[
        Bytes,
        doc(
            "Bytes of rejects of the gateway, which were never acknowledged; the oldest go first. Rejects "
            "of outlets are kept apart, in `retention_bytes` and for `retention_hours` once more; those of "
            "each destination as well."
        ),
    ] = 256 * MIB


class RetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an outlet waits before it tries again, and for how long it tries.

    Each pause is twice the one before, varied at random by up to half of it.
    """

    removed: ClassVar[Mapping[str, str]] = {
        "multiplier": "each pause is twice the one before, within `initial_seconds` and `max_seconds`",
        "jitter": "each pause varies by up to half of it",
    }

    initial_seconds: Annotated[Seconds, doc("First pause.")] = 0.5
    max_seconds: Annotated[Seconds, doc("Longest pause.")] = 30.0
    max_retry_after_seconds: Annotated[Seconds, doc("A receiver's Retry-After is honoured up to this.")] = (
        3600.0
    )
    max_elapsed_seconds: Annotated[
        Seconds,
        doc(
            "An event that was tried in vain for so long becomes a reject, and its session goes on; 0: it is "
            "tried without limit. `on_refused: block` has no limit either."
        ),
    ] = 0.0


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
    max_batch_events: Annotated[
        Count | None, doc("Most events in one request; null: 500, and for `dataset` as many as fit.")
    ] = None
    max_batch_bytes: Annotated[
        Bytes | None, doc("Most bytes of events in one request; null: 4 MiB, and for `dataset` 6 MB.")
    ] = None
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
    session_budget_bytes: Annotated[
        Bytes | None,
        doc("Most bytes of events that one session holds in memory; null: 8 MiB, and for `dataset` 18 MB."),
    ] = None
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
    """A statsd server that metrics are sent to by UDP, beside `/metrics`."""

    host: Annotated[str, doc("Host of the statsd server.")] = "127.0.0.1"
    port: Annotated[Port, doc("Its UDP port.")] = 8125
    prefix: Annotated[str, doc("First part of each name.")] = "headwater"
    interval_seconds: Annotated[
        float, msgspec.Meta(gt=0, le=1_000_000), doc("Pause between two publications.")
    ] = 10.0


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How metrics are published."""

    removed: ClassVar[Mapping[str, str]] = {
        "openmetrics": "`GET /metrics` is always served; with `gateway.api_keys` it needs a key",
    }

    statsd: Annotated[StatsdSettings | None, doc("Send to a statsd server; null: do not.")] = None


class TokenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One source of events. Its id names its files; senders authenticate with its secrets."""

    id: Annotated[Id, doc("Names the token in file names and in `only_keys`; not a secret.")]
    client_secret: Annotated[
        str, doc("Sent by browsers, so everyone can read it; empty: no browser events.")
    ] = ""
    server_secret: Annotated[
        str, doc("Sent by servers; never written into an event; empty: no server events.")
    ] = ""
    origins: Annotated[
        tuple[str, ...],
        doc("Pages that may send: `https://shop.example`, `*.example.org` (any scheme); empty: all pages."),
    ] = ()
    rate_limit_per_second: Annotated[
        float,
        msgspec.Meta(ge=0, le=1_000_000_000),
        doc("Most events a second, beyond it: 429; 0: no limit."),
    ] = 0.0


class KafkaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Kafka as the log of events, for installations with several gateways."""

    removed: ClassVar[Mapping[str, str]] = {
        "linger_seconds": '`config: {linger.ms: "5"}` does the same, in milliseconds',
    }

    servers: Annotated[str, doc("Brokers to begin with: `host:port`, several with commas.")]
    topic_prefix: Annotated[
        str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{0,180}\Z"), doc("A token's topic is this and its id.")
    ] = "headwater."
    partitions: Annotated[
        Count, doc("Partitions of a new topic; each is a stream of its own per destination.")
    ] = 3
    replicas: Annotated[
        int, msgspec.Meta(ge=-1, le=32_767), doc("Replicas of a new topic; -1: the brokers' default.")
    ] = -1
    timeout_seconds: Annotated[
        Seconds, doc("Events that the brokers have not confirmed by then are answered 503.")
    ] = 10.0
    buffer_bytes: Annotated[Bytes, doc("Most bytes that wait for the brokers; beyond it: 503.")] = 64 * MIB
    config: Annotated[
        dict[str, str],
        doc("Further librdkafka settings, such as `security.protocol` and `sasl.username`."),
        LIBRDKAFKA,
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
    dir: Annotated[str, doc("Folder of the files; empty: `events` in the data folder."), PATH] = ""
    rotation_minutes: Annotated[
        float,
        msgspec.Meta(gt=0, le=1_000_000),
        doc(
            "In a steady flow, files of a token are closed this far apart; the pipeline loads closed files. "
            "After a pause of this length a file is closed 5 seconds after its first event, and the time "
            "between files doubles from there."
        ),
    ] = 5.0
    rotation_bytes: Annotated[Bytes, doc("A file is closed at this size.")] = 100 * MIB
    archive_days: Annotated[
        float,
        msgspec.Meta(ge=0, le=100_000),
        doc("Files that were processed are kept this long; 0: without limit."),
    ] = 30.0


# --- the pipeline and the graph -----------------------------------------------------------------------


class EnrichmentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that looks a value up and adds the result to the event."""

    name: Annotated[str, doc("`ip_lookup`, `user_agent_parse`, or an extension's name.")]
    from_: Annotated[Pointer, doc("JSON pointer to the value, such as `/source_ip`.")] = msgspec.field(
        name="from"
    )
    to: Annotated[Pointer, doc("JSON pointer to where the result goes, such as `/eventn_ctx/location`.")]


class FieldSettings(msgspec.Struct, frozen=True, kw_only=True):
    """An action on one field before it becomes a column."""

    action: Annotated[
        Literal["move", "remove", "cast", "constant"],
        doc("Move a subtree, remove it, give it an SQL type, or set a constant."),
    ]
    src: Annotated[str, doc("JSON pointer to the field; not needed for `constant`.")] = ""
    dst: Annotated[str, doc("JSON pointer or name of the column; for `move` and `constant`.")] = ""
    type: Annotated[
        str, doc("SQL type of the destination; required for `cast`, may be given for `move`.")
    ] = ""
    value: Annotated[Any, doc("What `constant` sets.")] = None
    column_type: Annotated[
        str, doc("SQL type of the column, if it differs from the type that values are cast to.")
    ] = ""


class MappingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How fields become columns."""

    keep_unmapped: Annotated[bool, doc("Keep the fields that no line below names.")] = True
    fields: Annotated[tuple[FieldSettings, ...], doc("Actions on single fields.")] = ()


class DestinationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A destination, which stores rows. Keys that are not listed here are the destination type's own."""

    id: Annotated[Id, doc("Names the destination in status files, rejects and locks.")]
    type: Annotated[
        str,
        doc(
            "`duckdb`, `postgres`, `clickhouse`, `snowflake`, `bigquery`, `redshift`, `delta`, `iceberg`, "
            "`http`, or an extension's name."
        ),
    ]
    mode: Annotated[
        Literal["batch", "stream", "both"],
        doc("Load rotated files, load events as they arrive, or both (which needs a `primary_key`)."),
    ] = "batch"
    only_keys: Annotated[
        tuple[str, ...], doc("Ids of the tokens whose events go there; empty: those of all tokens.")
    ] = ()
    table_name_template: Annotated[
        str, doc("Table of an event, such as `{{ event_type | lower }}`; if empty, the event is skipped.")
    ] = "events"
    tables: Annotated[
        tuple[TablePattern, ...],
        doc(
            "Tables that the template may name, such as `page_*`; empty: all. Set it where browsers fill the "
            "fields of the template."
        ),
    ] = ()
    unlisted_tables: Annotated[
        str,
        msgspec.Meta(pattern=r"^[a-z_][a-z0-9_]*\Z"),
        doc("Where events of other tables go: `reject`, or the name of a default table."),
    ] = "reject"
    reserved_tables: Annotated[
        tuple[TablePattern, ...],
        doc("Tables that are never written, beside Headwater's own, which begin with `_headwater_`."),
    ] = ()
    adopt_tables: Annotated[
        tuple[TablePattern, ...],
        doc("Existing tables that are written though Headwater did not create them."),
    ] = ()
    max_tables_per_load: Annotated[
        Count, doc("Most tables of one file or micro-batch; events of further tables are rejects.")
    ] = 1_000
    max_new_tables_per_hour: Annotated[
        Count, doc("Most tables that are created within an hour; events of further ones are rejects.")
    ] = 200
    enrichment: Annotated[tuple[EnrichmentSettings, ...], doc("Rules that look values up.")] = ()
    mappings: Annotated[MappingSettings, doc("How fields become columns.")] = MappingSettings()
    primary_key: Annotated[
        tuple[str, ...], doc("Columns of the key; a later event replaces the columns it has.")
    ] = ()
    max_columns: Annotated[
        Count, doc("Most columns of a table; further fields go into `_unmapped_data`.")
    ] = 1_000
    max_new_columns: Annotated[
        Count,
        doc(
            "Most columns that one load adds to a table, those of the most events first; further fields go "
            "into `_unmapped_data`."
        ),
    ] = 500
    widen_columns: Annotated[
        Literal["never", "numbers", "text"],
        doc(
            "Whether a column takes a wider type when values do not fit: never, from integer to decimal or "
            "double, or to text as well. Values that do not fit go into `_unmapped_data`."
        ),
    ] = "never"
    text_numbers: Annotated[
        Literal["canonical", "always", "never"],
        doc(
            "When a text becomes a number or a boolean in a column of that type: if it is written as the "
            "number itself is (`7`, not `007` or `7.0`), if it is any form of a number, or never. Other "
            "texts go into `_unmapped_data`."
        ),
    ] = "canonical"
    max_widen_rows: Annotated[Count, doc("Columns of larger tables are not widened.")] = 1_000_000
    options: Annotated[dict[str, Any], doc("The type's own settings.")] = msgspec.field(default_factory=dict)

    @property
    def is_batch(self) -> bool:
        """Whether it loads rotated files."""
        return self.mode != "stream"

    @property
    def is_stream(self) -> bool:
        """Whether it loads events from a queue of its own."""
        return self.mode != "batch"

    def wants(self, token_id: str) -> bool:
        """Whether it stores events of the token."""
        return not self.only_keys or token_id in self.only_keys


class LockSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The lock service, which lets one pipeline at a time change a table."""

    type: Annotated[
        Literal["file", "postgres", "redis"],
        doc("A file (all pipelines on one machine), a Postgres server, or a Redis server."),
    ] = "file"
    url: Annotated[str, doc("The server, for `postgres` and `redis`.")] = ""
    dir: Annotated[str, doc("Folder of the files, for `file`; empty: `locks` in the data folder."), PATH] = ""
    timeout_seconds: Annotated[Seconds, doc("Waiting longer than this for a lock is an error.")] = 60.0


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How destinations in stream mode are served."""

    max_batch_events: Annotated[Count, doc("Most events of one micro-batch.")] = 20_000
    max_batch_bytes: Annotated[
        int,
        msgspec.Meta(ge=1, le=1024 * MIB),
        doc("Most bytes of one micro-batch, which the driver has in memory; an event may be larger alone."),
    ] = 64 * MIB
    trigger_seconds: Annotated[
        Seconds, doc("Shortest time from the start of a micro-batch to the start of the next.")
    ] = 0.1
    max_retry_seconds: Annotated[
        Seconds, doc("Longest pause before an unreachable destination is tried again.")
    ] = 30.0


class OwnLineageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Lineage events about the pipeline's tables."""

    enabled: Annotated[
        bool | None, doc("Send the lineage of the pipeline's tables; null: if the graph is enabled.")
    ] = None
    url: Annotated[
        str, doc("An OpenLineage receiver; empty: this installation's own gateway, without TLS.")
    ] = ""
    api_key: Annotated[
        str,
        doc(
            "Sent as `Authorization: Bearer`; empty: for our own the first of `gateway.api_keys` that is "
            "good for all namespaces."
        ),
    ] = ""
    namespace: Annotated[str, doc("Namespace of the pipeline's jobs.")] = "headwater"


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the pipeline runs."""

    master: Annotated[str, doc("Spark's master: `local[*]`, `spark://…`, `yarn`, `k8s://…`.")] = "local[*]"
    memory: Annotated[
        str, doc("Memory of the driver, such as `2g`; empty: a quarter of the machine's, 1 to 4 GB.")
    ] = ""
    staging_dir: Annotated[
        str, doc("Folder of staged Parquet files; empty: `staging` in the data folder."), PATH
    ] = ""
    staging_url: Annotated[
        str,
        doc(
            "Object store for what a cluster's executors read and write, such as `s3://bucket/headwater`; "
            "empty: they see `staging_dir` and the event files themselves."
        ),
    ] = ""
    ship_packages: Annotated[
        bool,
        doc("Send the Python packages that executors of a cluster need; false: they are installed there."),
    ] = True
    city_database: Annotated[
        str, doc("A `.mmdb` file for `ip_lookup`; empty: the bundled one, countries only."), PATH
    ] = ""
    lock: Annotated[LockSettings, doc("Lock service: one pipeline at a time changes a table.")] = (
        LockSettings()
    )
    stream: Annotated[StreamSettings, doc("How destinations in stream mode are served.")] = StreamSettings()
    lineage: Annotated[OwnLineageSettings, doc("Lineage events about the tables.")] = OwnLineageSettings()
    spark: Annotated[dict[str, Any], doc("Any setting of Spark, such as `spark.executor.memory: 4g`.")] = (
        msgspec.field(default_factory=dict)
    )


class GraphSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The graph of jobs, runs, datasets and columns that is built from lineage events."""

    removed: ClassVar[Mapping[str, str]] = {
        "path": "the folder is `graph` in `data_dir`, and may be a link to another one",
        "batch_events": "a transaction has at most 1,000 events",
    }

    enabled: Annotated[
        bool | None,
        doc("Ingest lineage events and serve the graph; null: `headwater up` does, `headwater serve` not."),
    ] = None
    retention_days: Annotated[
        float,
        msgspec.Meta(gt=0, le=100_000),
        doc("Runs, edges and datasets that no event has named for this long are removed."),
    ] = 90.0
    max_runs_per_job: Annotated[Count, doc("Runs kept of one job; beyond it the oldest are removed.")] = 1_000
    max_schema_versions: Annotated[Count, doc("Schemas kept of one dataset.")] = 100
    max_facet_bytes: Annotated[Bytes, doc("Largest facet that is kept; of a larger one only its size.")] = (
        64 * 1024
    )


# --- all of them --------------------------------------------------------------------------------------


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration."""

    data_dir: Annotated[str, doc("Folder of the log, the rejects and the events."), PATH] = "./headwater-data"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], doc("Least severe line that is printed.")
    ] = "info"
    log_format: Annotated[Literal["text", "json"], doc("Form of the lines.")] = "text"
    gateway: Annotated[GatewaySettings, doc("The gateway, which receives events.")] = GatewaySettings()
    log: Annotated[LogSettings, doc("How long events are kept, and in how much space.")] = LogSettings()
    outlets: Annotated[tuple[OutletSettings, ...], doc("The receivers of events.")] = ()
    tokens: Annotated[
        tuple[TokenSettings, ...], doc("Senders of events for the pipeline; empty: their routes are off.")
    ] = ()
    events: Annotated[EventsSettings, doc("The files in which events wait for the pipeline.")] = (
        EventsSettings()
    )
    destinations: Annotated[tuple[DestinationSettings, ...], doc("The destinations that store rows.")] = ()
    pipeline: Annotated[PipelineSettings, doc("How the pipeline runs.")] = PipelineSettings()
    graph: Annotated[GraphSettings, doc("The graph of lineage.")] = GraphSettings()
    metrics: Annotated[MetricsSettings, doc("How metrics are published.")] = MetricsSettings()

    @property
    def events_dir(self) -> Path:
        """The folder of incoming, archived and failed events."""
        return Path(self.events.dir) if self.events.dir else Path(self.data_dir) / "events"

    @property
    def staging_dir(self) -> Path:
        """The folder of staged Parquet files."""
        # absolute: Spark's JVM may have another working folder
        return Path(self.pipeline.staging_dir or Path(self.data_dir) / "staging").absolute()

    @property
    def locks_dir(self) -> Path:
        """The folder of the lock files."""
        return Path(self.pipeline.lock.dir or Path(self.data_dir) / "locks")

    @property
    def graph_dir(self) -> Path:
        """The folder of the graph of lineage."""
        return Path(self.data_dir) / "graph"

"""Settings of the graph of lineage."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from headwater.settings.types import MIB, Bytes, Count, Id, Seconds, doc

Pointer = Annotated[str, msgspec.Meta(pattern=r"^/")]


class EnrichmentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that looks a value up and adds what it finds."""

    name: Annotated[str, doc("`ip_lookup`, `user_agent_parse`, or an extension's name.")]
    from_: Annotated[Pointer, doc("JSON pointer to the value, such as `/source_ip`.")] = msgspec.field(
        name="from"
    )
    to: Annotated[Pointer, doc("JSON pointer to where the result goes, such as `/eventn_ctx/location`.")]


class FieldSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to one field on its way to a column."""

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
        str, doc("Type that the column is made with, where it differs from what values are cast to.")
    ] = ""


class MappingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How fields become columns."""

    keep_unmapped: Annotated[bool, doc("Keep the fields that no line below names.")] = True
    fields: Annotated[tuple[FieldSettings, ...], doc("What happens to which field.")] = ()


class DestinationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where rows are stored. Keys that are not listed here are the destination type's own."""

    id: Annotated[Id, doc("Names the destination in status files, rejects and locks.")]
    type: Annotated[
        str,
        doc(
            "`duckdb`, `postgres`, `clickhouse`, `snowflake`, `bigquery`, `redshift`, `http`, "
            "or an extension's name."
        ),
    ]
    mode: Annotated[
        Literal["batch", "stream", "both"],
        doc("By rotated files, as soon as possible, or both ways (which needs a `primary_key`)."),
    ] = "batch"
    only_keys: Annotated[
        tuple[str, ...], doc("Ids of the tokens whose events go there; empty: those of all tokens.")
    ] = ()
    table_name_template: Annotated[
        str, doc("Table of an event, such as `{{ event_type | lower }}`; where it is empty: none.")
    ] = "events"
    enrichment: Annotated[tuple[EnrichmentSettings, ...], doc("Rules that look values up.")] = ()
    mappings: Annotated[MappingSettings, doc("How fields become columns.")] = MappingSettings()
    primary_key: Annotated[
        tuple[str, ...], doc("Columns of the key; a later event replaces the columns it has.")
    ] = ()
    max_columns: Annotated[
        Count, doc("Most columns of a table; further fields go into `_unmapped_data`.")
    ] = 1_000
    options: Annotated[dict[str, Any], doc("The type's own settings.")] = msgspec.field(default_factory=dict)

    @property
    def is_batch(self) -> bool:
        """Whether its events come by rotated files."""
        return self.mode != "stream"

    @property
    def is_stream(self) -> bool:
        """Whether its events come by a queue of its own."""
        return self.mode != "batch"

    def wants(self, token_id: str) -> bool:
        """Whether events of the token go there."""
        return not self.only_keys or token_id in self.only_keys


class LockSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who lets only one pipeline at a time change a table."""

    type: Annotated[
        Literal["file", "postgres", "redis"],
        doc("A file (all pipelines on one machine), a Postgres server, or a Redis server."),
    ] = "file"
    url: Annotated[str, doc("The server, for `postgres` and `redis`.")] = ""
    dir: Annotated[str, doc("Folder of the files, for `file`; empty: `locks` in the data folder.")] = ""
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
        Seconds, doc("A micro-batch begins at most this often; sooner is not worth the looking.")
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
        str, doc("Sent as `Authorization: Bearer`; empty: the first of `gateway.api_keys` for our own.")
    ] = ""
    namespace: Annotated[str, doc("Namespace of the pipeline's jobs.")] = "headwater"


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the pipeline runs."""

    master: Annotated[str, doc("Spark's master: `local[*]`, `spark://…`, `yarn`, `k8s://…`.")] = "local[*]"
    memory: Annotated[
        str, doc("Memory of the driver, such as `2g`; empty: chosen by what the machine has.")
    ] = ""
    staging_dir: Annotated[
        str, doc("Folder of the Parquet files on their way; empty: `staging` in the data folder.")
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
        doc(
            "Send the Python packages that executors of a cluster need along; "
            "false: they are installed there."
        ),
    ] = True
    city_database: Annotated[
        str, doc("A `.mmdb` file for `ip_lookup`; empty: the bundled one, countries only.")
    ] = ""
    lock: Annotated[LockSettings, doc("Who lets only one pipeline at a time change a table.")] = (
        LockSettings()
    )
    stream: Annotated[StreamSettings, doc("How destinations in stream mode are served.")] = StreamSettings()
    lineage: Annotated[OwnLineageSettings, doc("Lineage events about the tables.")] = OwnLineageSettings()
    spark: Annotated[dict[str, Any], doc("Any setting of Spark, such as `spark.executor.memory: 4g`.")] = (
        msgspec.field(default_factory=dict)
    )


class GraphSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The graph of jobs, runs, datasets and columns that is built from lineage events."""

    enabled: Annotated[
        bool | None,
        doc(
            "Fold lineage events and serve the graph; null: `headwater up` does, `headwater serve` does not."
        ),
    ] = None
    path: Annotated[str, doc("Folder of the graph; empty: `graph` in `data_dir`.")] = ""
    retention_days: Annotated[
        float,
        msgspec.Meta(gt=0),
        doc("Runs, edges and datasets that no event mentioned for so long are removed."),
    ] = 90.0
    max_runs_per_job: Annotated[Count, doc("Runs kept of one job; beyond it the oldest are removed.")] = 1_000
    max_schema_versions: Annotated[Count, doc("Schemas kept of one dataset.")] = 100
    max_facet_bytes: Annotated[Bytes, doc("Largest facet that is kept; of a larger one only its size.")] = (
        64 * 1024
    )
    batch_events: Annotated[Count, doc("Most events ingested in one transaction.")] = 1_000

"""Settings of the intake of events for the pipeline: who may send, and the files that they become."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headwater.settings.fields import MIB, Bytes, Count, Id, Seconds, doc

__all__ = ["EventsSettings", "KafkaSettings", "TokenSettings"]


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
        float, msgspec.Meta(gt=0), doc("A file is closed at this age, and is then ready for the pipeline.")
    ] = 5.0
    rotation_bytes: Annotated[Bytes, doc("A file is closed at this size.")] = 100 * MIB
    archive_days: Annotated[
        float,
        msgspec.Meta(ge=0),
        doc("Files that were processed are kept this long; 0: for ever."),
    ] = 30.0

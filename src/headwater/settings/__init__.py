"""The configuration: one typed tree, read from `headwater.yml`.

Each field is declared once, with its default and its meaning; docs/settings.md is generated from here.
`${env.NAME}` and `${env.NAME|default}` are replaced in any value. An unknown key is refused and the nearest
known one is named.
"""

from headwater.settings.fields import Bytes, Count, Hours, Id, Port, Seconds
from headwater.settings.graph import GraphSettings
from headwater.settings.intake import EventsSettings, KafkaSettings, TokenSettings
from headwater.settings.pipeline import (
    DestinationSettings,
    EnrichmentSettings,
    FieldSettings,
    LockSettings,
    MappingSettings,
    OwnLineageSettings,
    PipelineSettings,
    StreamSettings,
)
from headwater.settings.reading import convert, load, parse
from headwater.settings.sidecar import (
    GatewaySettings,
    LogSettings,
    MetricsSettings,
    OutletSettings,
    RetrySettings,
    StatsdSettings,
    TlsSettings,
)
from headwater.settings.tree import Settings

__all__ = [
    "Bytes",
    "Count",
    "DestinationSettings",
    "EnrichmentSettings",
    "EventsSettings",
    "FieldSettings",
    "GatewaySettings",
    "GraphSettings",
    "Hours",
    "Id",
    "KafkaSettings",
    "LockSettings",
    "LogSettings",
    "MappingSettings",
    "MetricsSettings",
    "OutletSettings",
    "OwnLineageSettings",
    "PipelineSettings",
    "Port",
    "RetrySettings",
    "Seconds",
    "Settings",
    "StatsdSettings",
    "StreamSettings",
    "TlsSettings",
    "TokenSettings",
    "convert",
    "load",
    "parse",
]

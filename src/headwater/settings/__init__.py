"""The configuration: one typed tree, read from `headwater.yml`.

Each field is declared once, with its default and its meaning; docs/settings.md is generated from it.
Start reading at `settings`.
"""

from headwater.settings.load import convert, load, parse
from headwater.settings.pipeline import (
    DestinationSettings,
    EnrichmentSettings,
    FieldSettings,
    GraphSettings,
    LockSettings,
    MappingSettings,
    OwnLineageSettings,
    PipelineSettings,
    StreamSettings,
)
from headwater.settings.server import (
    EventsSettings,
    GatewaySettings,
    KafkaSettings,
    LogSettings,
    MetricsSettings,
    OutletSettings,
    RetrySettings,
    StatsdSettings,
    TlsSettings,
    TokenSettings,
)
from headwater.settings.settings import Settings
from headwater.settings.types import Bytes, Count, Hours, Id, Port, Seconds

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

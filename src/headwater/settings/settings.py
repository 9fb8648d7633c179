"""The whole configuration as one typed tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from headwater.settings.pipeline import DestinationSettings, GraphSettings, PipelineSettings
from headwater.settings.server import (
    EventsSettings,
    GatewaySettings,
    LogSettings,
    MetricsSettings,
    OutletSettings,
    TokenSettings,
)
from headwater.settings.types import doc


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration."""

    data_dir: Annotated[str, doc("Folder of the log, the rejects and the events.")] = "./headwater-data"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], doc("Least severe line that is printed.")
    ] = "info"
    log_format: Annotated[Literal["text", "json"], doc("Form of the lines.")] = "text"
    gateway: Annotated[GatewaySettings, doc("Where events come in.")] = GatewaySettings()
    log: Annotated[LogSettings, doc("How long and how much is kept.")] = LogSettings()
    outlets: Annotated[tuple[OutletSettings, ...], doc("Who receives the events.")] = ()
    tokens: Annotated[
        tuple[TokenSettings, ...], doc("Who may send events for the pipeline; none: those routes are off.")
    ] = ()
    events: Annotated[EventsSettings, doc("The files in which events wait for the pipeline.")] = (
        EventsSettings()
    )
    destinations: Annotated[tuple[DestinationSettings, ...], doc("Where rows are stored.")] = ()
    pipeline: Annotated[PipelineSettings, doc("How the pipeline runs.")] = PipelineSettings()
    graph: Annotated[GraphSettings, doc("The graph of lineage.")] = GraphSettings()
    metrics: Annotated[MetricsSettings, doc("How the numbers are published.")] = MetricsSettings()

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
        return Path(self.graph.path or Path(self.data_dir) / "graph")

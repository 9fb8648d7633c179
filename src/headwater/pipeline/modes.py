"""Which files and destinations belong to which mode."""

from __future__ import annotations

from headwater.log.files.layout import IncomingFile, unprocessed
from headwater.settings import DestinationSettings, Settings

__all__ = ["batch_files", "replays", "stream_destinations"]


def stream_destinations(settings: Settings) -> list[DestinationSettings]:
    """The destinations that are served from queues."""
    return [destination for destination in settings.destinations if destination.is_stream]


def batch_files(settings: Settings) -> list[IncomingFile]:
    """The files that a cycle takes, oldest first: not the replays of destinations that only stream."""
    only_stream = {each.id for each in settings.destinations if not each.is_batch}
    return [file for file in unprocessed(settings.events_dir) if file.destination_id not in only_stream]


def replays(settings: Settings, destination_id: str) -> list[IncomingFile]:
    """The rejects of a destination that are to be tried again."""
    return [file for file in unprocessed(settings.events_dir) if file.destination_id == destination_id]

"""Rejects of destinations for people: numbered, listed, replayed by the pipeline, dropped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headwater.errors import HeadwaterError, RejectNotFound
from headwater.log.files.layout import EventFolder
from headwater.log.rejects.destination_file import (
    EventError,
    count_failed,
    drop_failed,
    read_failed,
    request_replay,
)
from headwater.settings import Settings

__all__ = ["PREFIX", "FailedEvents", "NumberedReject"]

PREFIX = "destination:"


class NumberedReject(NamedTuple):
    """A reject with the id that a person types: `<destination>:<number>`."""

    id: str
    stage: str
    error: EventError

    def plain(self) -> dict[str, Any]:
        """As JSON is made of it."""
        event = self.error.event if bytes(self.error.event) else self.error.malformed_event
        fields = msgspec.structs.asdict(self.error) | {"event": event}
        del fields["malformed_event"]
        return {"id": self.id, "stage": self.stage} | fields


class FailedEvents:
    """The rejects of all destinations, or of the one that `stage` names."""

    def __init__(self, settings: Settings, stage: str | None = None) -> None:
        self._folder: Path = settings.events_dir
        known = sorted(EventFolder(self._folder).error_files())
        self.ids = [id for id in known if stage in (None, PREFIX + id)]
        configured = {destination.id for destination in settings.destinations}
        self.gone = [id for id in self.ids if id not in configured]
        self._stage = stage
        if stage is not None and stage.removeprefix(PREFIX) not in {*known, *configured}:
            raise HeadwaterError(
                f"There is no destination `{stage.removeprefix(PREFIX)}`, and no rejects of it.",
                hint=f"Known: {', '.join(sorted({*known, *configured})) or 'none'}.",
            )

    def __iter__(self) -> Iterator[NumberedReject]:
        for id in self.ids:
            for number, error in enumerate(read_failed(self._folder, id), 1):
                yield NumberedReject(f"{id}:{number}", PREFIX + id, error)

    def get(self, id: str) -> NumberedReject:
        """One reject by its id."""
        destination, _, number = id.rpartition(":")
        if destination in self.ids and number.isdecimal() and int(number):
            errors = islice(read_failed(self._folder, destination), int(number) - 1, None)
            if (error := next(errors, None)) is not None:
                return NumberedReject(id, PREFIX + destination, error)
        raise RejectNotFound(f"No reject has the id {id}.", hint="See `headwater rejects list`.")

    def counts(self) -> dict[str, int]:
        """How many there are, by stage."""
        found = count_failed(self._folder)
        return {PREFIX + id: found[id] for id in self.ids if found.get(id)}

    def replay(self) -> int:
        """Have them tried again by the next cycle of the pipeline; returns how many.

        Those of a destination that the settings do not have any more stay: nobody would take them.
        """
        if self.gone and self._stage is not None:
            raise HeadwaterError(
                f"The settings have no destination {self.gone[0]} any more.",
                hint=f"Add it again, or remove its rejects: headwater rejects drop --stage {self._stage}",
            )
        wanted = [id for id in self.ids if id not in self.gone]
        return sum(request_replay(self._folder, id, time.time()) for id in wanted)

    def drop(self) -> int:
        """Remove all of them for good; returns how many."""
        return sum(drop_failed(self._folder, id) for id in self.ids)

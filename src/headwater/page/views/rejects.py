"""What was refused, at every stage, as one list for people: shown, tried again, dropped (G6)."""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

from headwater.errors import RejectNotFound
from headwater.log.rejects.destination_rejects import PREFIX, FailedEvents, NumberedReject
from headwater.log.rejects.store import Reject, Rejects
from headwater.settings import Settings

__all__ = ["Refusal", "Refused"]

LIMIT = 50  # on one page
MAX_ID = 2**62


class Refusal(NamedTuple):
    """One reject. `is_single`: it can be replayed and dropped by itself; destinations are replayed whole."""

    id: str
    stage: str
    at: float | str
    reason: str
    details: list[dict[str, Any]]
    body: bytes
    tries: int
    is_asked: bool
    is_single: bool
    source: str


class Refused:
    """The store of gateway and outlets, and the files of the destinations. Called by any thread."""

    def __init__(self, settings: Settings, rejects: Rejects) -> None:
        self._settings = settings
        self._rejects = rejects

    def counts(self) -> dict[str, int]:
        """How many there are, by stage."""
        return self._rejects.counts() | FailedEvents(self._settings).counts()

    def some(self, stage: str | None = None, after: int = 0) -> list[Refusal]:
        """One page of them, oldest first, those of destinations behind the others."""
        found: list[Refusal] = []
        if stage is None or not stage.startswith(PREFIX):
            found = [_of_store(each) for each in self._rejects.list(stage, limit=LIMIT, after=after)]
        if (stage is None or stage.startswith(PREFIX)) and len(found) < LIMIT:
            failed = FailedEvents(self._settings, stage)
            found += [_of_file(each) for each in islice(failed, LIMIT - len(found))]
        return found

    def get(self, id: str) -> Refusal:
        """One of them; RejectNotFound where there is none."""
        if id.isascii() and id.isdecimal():
            if len(id) < 19 and int(id) < MAX_ID:
                return _of_store(self._rejects.get(int(id)))
            raise RejectNotFound(f"There is no reject {id[:30]}.", hint="The list shows those there are.")
        return _of_file(FailedEvents(self._settings).get(id))

    def replay(self, ids: list[int], stage: str | None) -> int:
        """Ask for these, or all of a stage, to be tried again; how many."""
        if ids:
            return self._rejects.request_replay(ids)
        if stage is not None and stage.startswith(PREFIX):
            return FailedEvents(self._settings, stage).replay()
        return self._rejects.request_replay(None, stage) if stage else 0

    def drop(self, ids: list[int], stage: str | None) -> int:
        """Remove these, or all of a stage, for good; how many."""
        if ids:
            return self._rejects.drop(ids)
        if stage is not None and stage.startswith(PREFIX):
            return FailedEvents(self._settings, stage).drop()
        return self._rejects.drop(None, stage) if stage else 0


def _of_store(reject: Reject) -> Refusal:
    return Refusal(
        str(reject.id),
        reject.stage,
        reject.at,
        reject.reason,
        reject.details,
        reject.body,
        reject.tries,
        reject.replay_requested,
        True,
        f"position {reject.position:,}" if reject.position is not None else "",
    )


def _of_file(reject: NumberedReject) -> Refusal:
    error = reject.error
    return Refusal(
        reject.id, reject.stage, error.at, error.error, [], error.line(), 0, False, False, error.source
    )

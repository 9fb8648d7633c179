"""The rejects of every stage as one list: the store of gateway and outlets, and the files of destinations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from headwater.errors import HeadwaterError, RejectNotFound
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from headwater.log.rejects.groups import Grouping, RejectGroup, reason_pattern
from headwater.log.rejects.store import Reject, RejectReader, RejectStore
from headwater.log.rejects.totals import DESTINATION_PREFIX
from headwater.settings import Settings

PAGE_ROWS = 500
COUNT_SECONDS = 1.0  # to wait for another thread that counts a large file for the first time

T = TypeVar("T")


# Asked before each reject that is read: the reading ends where it answers False.
GoesOn = Callable[[], bool]


def to_the_end() -> bool:
    """Read all."""
    return True


def rejects_path(settings: Settings) -> Path:
    """The file of the store."""
    return Path(settings.data_dir) / "rejects.db"


class ListedReject(NamedTuple):
    """A reject of any stage.

    `id` is a number, or `<destination>:<number>`. Only a reject `is_single` can be replayed and dropped by
    its id; those of a destination are replayed and dropped together. `record` is the stored form.
    """

    id: str
    stage: str
    at: float | str
    reason: str
    body: bytes
    source: str
    record: Reject | EventError
    is_single: bool
    details: Sequence[dict[str, Any]] = ()
    tries: int = 0
    replay_requested: bool = False

    def as_json(self) -> dict[str, Any]:
        """The fields of the stored form; the event as JSON if it is JSON, else as text."""
        fields = msgspec.structs.asdict(self.record)
        if isinstance(self.record, Reject):
            return fields | {"body": json_or_text(self.record.body)}
        fields["event"] = self.record.event if bytes(self.record.event) else self.record.malformed_event
        del fields["malformed_event"]
        return {"id": self.id, "stage": self.stage} | fields


class ReplayCounts(NamedTuple):
    """How many replays were requested of the server and of the pipeline."""

    server: int = 0
    pipeline: int = 0


def json_or_text(body: bytes) -> msgspec.Raw | str:
    """The event as JSON if it is JSON, else as text."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return body.decode(errors="replace")
    return msgspec.Raw(body)


class Rejects:
    """Lists, shows, replays and drops the rejects of all stages; thread-safe.

    `store` is None where only a pipeline runs, which has no such store.
    """

    def __init__(
        self, settings: Settings, store: RejectReader | None, files: DestinationRejects | None = None
    ) -> None:
        self._settings = settings
        self._store = store
        self._files = files or DestinationRejects(settings.events_dir)

    @classmethod
    def open(cls, settings: Settings, *, read_only: bool = False) -> Rejects:
        """The rejects beside a running server or without one; HeadwaterError if the data folder has none.

        A command that only reads must open them `read_only`: the file belongs to the server.
        """
        path = rejects_path(settings)
        if path.exists():
            if read_only:
                return cls(settings, RejectReader(path))
            return cls(settings, RejectStore(path, max_bytes=settings.log.rejects_bytes))
        if not settings.events_dir.exists():
            raise _nothing_served(path)
        return cls(settings, None)

    def counts(self) -> dict[str, int]:
        """How many there are, by stage."""
        found = {
            DESTINATION_PREFIX + id: count
            for id, count in self._files.counts(timeout_seconds=COUNT_SECONDS).items()
        }
        return (self._store.counts() if self._store is not None else {}) | found

    def list(
        self,
        stage: str | None = None,
        *,
        limit: int = 50,
        after: str = "",
        goes_on: GoesOn = to_the_end,
    ) -> Sequence[ListedReject]:
        """A page of rejects, oldest first, those of destinations last; `after` is the last id of a page."""
        found: list[ListedReject] = []
        if not after or _is_stored(after):
            if self._includes_store(stage):
                rows = self._stored().list(stage, limit=limit, after=int(after or 0))
                found = [_of_store(each) for each in rows]
            after = ""
        if stage is None or _is_destination(stage):
            found += islice(self._of_files(stage, after, goes_on), limit - len(found))
        return found

    def select(
        self, stage: str | None = None, *, reason: str = "", before: float | None = None
    ) -> Iterator[ListedReject]:
        """All rejects whose reason contains a text, and which are from before a time; oldest first."""
        after = ""
        while page := self.list(stage, limit=PAGE_ROWS, after=after):
            for each in page:
                is_old = before is None or _time(each.at) < before
                if is_old and reason.casefold() in each.reason.casefold():
                    yield each
            after = page[-1].id

    def stored_ids(
        self, stage: str | None, *, reason: str = "", before: float | None = None
    ) -> Sequence[int]:
        """The ids of those of the gateway and of outlets."""
        if self._store is None:
            return []
        return [
            id
            for id, _, at, text in self._store.reasons(stage)
            if (before is None or at < before) and reason.casefold() in text.casefold()
        ]

    def groups(self, stage: str | None = None, *, goes_on: GoesOn = to_the_end) -> Sequence[RejectGroup]:
        """The rejects by stage and reason, the latest first."""
        found = Grouping()
        if self._store is not None and self._includes_store(stage):
            for number, of, at, reason in _while(goes_on, self._store.reasons(stage)):
                found.add(of, at, str(number), reason)
        if stage is None or _is_destination(stage):
            for each in self._of_files(stage, "", goes_on):
                found.add(each.stage, each.at, each.id, each.reason)
        return found.groups()

    def ids_of_group(self, stage: str, pattern: str) -> Sequence[int]:
        """The ids of the rejects of the gateway or an outlet with this reason."""
        if self._store is None or _is_destination(stage):
            return []
        return [id for id, _, _, reason in self._store.reasons(stage) if reason_pattern(reason) == pattern]

    def list_group(
        self, stage: str, pattern: str, *, limit: int, after: str = "", goes_on: GoesOn = to_the_end
    ) -> Sequence[ListedReject]:
        """A page of the rejects of a stage with this reason, oldest first."""
        if _is_destination(stage):
            rejects = self._of_files(stage, after, goes_on)
            return [*islice((each for each in rejects if reason_pattern(each.reason) == pattern), limit)]
        if self._store is None:
            return []
        first = int(after) if after and _is_stored(after) else 0
        rows = _while(goes_on, self._store.reasons(stage, after=first))
        ids = islice((id for id, _, _, reason in rows if reason_pattern(reason) == pattern), limit)
        return [_of_store(self._store.get(id)) for id in [*ids]]

    def get(self, id: str, *, goes_on: GoesOn = to_the_end) -> ListedReject:
        """The reject with this id; RejectNotFound if there is none."""
        if _is_stored(id):
            return _of_store(self._stored().get(int(id)))
        destination, _, number = id.rpartition(":")
        if destination in self._files.ids and number.isdecimal() and int(number):
            rejects = _while(goes_on, self._files.read(destination))
            for error in islice(rejects, int(number) - 1, int(number)):
                return _of_file(destination, int(number), error)
        raise RejectNotFound(f"No reject has the id {id[:80]}.", hint="See `headwater rejects list`.")

    def request_replay(self, ids: Sequence[int] = (), stage: str | None = None) -> ReplayCounts:
        """Request a replay of these ids or, without ids, of the stage; without a stage, of all stages.

        The gateway (gateway/replay.py) and the outlets (delivery/outlet_worker.py) read the request
        from the store; the pipeline loads the rejects of destinations in its next cycle.
        Rejects of a destination that is no longer configured stay.
        """
        server = pipeline = 0
        if ids or self._includes_store(stage):
            server = self._writable().request_replay(list(ids) or None, stage)
        if not ids and (stage is None or _is_destination(stage)):
            configured = {destination.id for destination in self._settings.destinations}
            for id in self._destinations(stage):
                if id in configured:
                    pipeline += self._files.request_replay(id, time.time())
                elif stage is not None:
                    self._require_configured(id)
        return ReplayCounts(server, pipeline)

    def replay_group(self, stage: str, pattern: str) -> ReplayCounts:
        """Request a replay of a stage's rejects with this reason."""
        if not _is_destination(stage):
            ids = self.ids_of_group(stage, pattern)
            return self.request_replay(ids) if ids else ReplayCounts()
        pipeline = 0
        for id in self._destinations(stage):
            self._require_configured(id)
            pipeline += self._files.request_replay(id, time.time(), _has_reason(pattern))
        return ReplayCounts(pipeline=pipeline)

    def drop_group(self, stage: str, pattern: str) -> int:
        """Remove a stage's rejects with this reason for good; returns how many."""
        if not _is_destination(stage):
            ids = self.ids_of_group(stage, pattern)
            return self.drop(ids) if ids else 0
        return sum(self._files.drop(id, _has_reason(pattern)) for id in self._destinations(stage))

    def drop(self, ids: Sequence[int] = (), stage: str | None = None) -> int:
        """Remove these ids for good or, without ids, the stage; without a stage, all. Returns how many."""
        count = 0
        if ids or self._includes_store(stage):
            count = self._writable().drop(list(ids) or None, stage)
        if not ids and (stage is None or _is_destination(stage)):
            count += sum(self._files.drop(id) for id in self._destinations(stage))
        return count

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    # --- inside --------------------------------------------------------------------------------------

    def _includes_store(self, stage: str | None) -> bool:
        return self._store is not None if stage is None else not _is_destination(stage)

    def _stored(self) -> RejectReader:
        if self._store is None:
            raise _nothing_served(rejects_path(self._settings))
        return self._store

    def _writable(self) -> RejectStore:
        store = self._stored()
        assert isinstance(store, RejectStore), "opened read-only"
        return store

    def _destinations(self, stage: str | None) -> Sequence[str]:
        """The destinations with rejects that are meant; HeadwaterError if the stage names an unknown one."""
        known = self._files.ids
        if stage is None:
            return known
        id = stage.removeprefix(DESTINATION_PREFIX)
        every = sorted({*known, *(destination.id for destination in self._settings.destinations)})
        if id not in every:
            raise HeadwaterError(
                f"There is no destination `{id}`, and no rejects of it.",
                hint=f"Known: {', '.join(every) or 'none'}.",
            )
        return [id] if id in known else []

    def _require_configured(self, id: str) -> None:
        if id not in {destination.id for destination in self._settings.destinations}:
            stage = DESTINATION_PREFIX + id
            raise HeadwaterError(
                f"The settings no longer have the destination {id}.",
                hint=f"Add it again, or remove its rejects: headwater rejects drop --stage {stage}",
            )

    def _of_files(
        self, stage: str | None, after: str, goes_on: GoesOn = to_the_end
    ) -> Iterator[ListedReject]:
        last, _, number = after.rpartition(":")
        skip = int(number) if number.isdecimal() else 0
        for id in self._destinations(stage):
            if id >= last:
                start = skip if id == last else 0
                rejects = _while(goes_on, self._files.read(id))
                for place, error in enumerate(islice(rejects, start, None), start + 1):
                    yield _of_file(id, place, error)


def _has_reason(pattern: str) -> Callable[[EventError], bool]:
    return lambda error: reason_pattern(error.error) == pattern


def _while(goes_on: GoesOn, items: Iterable[T]) -> Iterator[T]:
    return takewhile(lambda _: goes_on(), items)


def _time(at: float | str) -> float:
    """Seconds since the epoch; a time that cannot be read is no reason to keep or drop: it is now."""
    if isinstance(at, float):
        return at
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return time.time()


def _is_destination(stage: str) -> bool:
    return stage.startswith(DESTINATION_PREFIX)


def _is_stored(id: str) -> bool:
    """Whether the id is one of the store: all others have a colon."""
    return id.isascii() and id.isdecimal()


def _nothing_served(path: Path) -> HeadwaterError:
    return HeadwaterError(
        f"{path} does not exist: nothing was ever served from this `data_dir`.",
        hint="Name the server's configuration with -c, or start it with `headwater serve`.",
    )


def _of_store(reject: Reject) -> ListedReject:
    return ListedReject(
        id=str(reject.id),
        stage=reject.stage,
        at=reject.at,
        reason=reject.reason,
        body=reject.body,
        source=f"position {reject.position:,}" if reject.position is not None else "",
        record=reject,
        is_single=True,
        details=reject.details,
        tries=reject.tries,
        replay_requested=reject.replay_requested,
    )


def _of_file(destination: str, number: int, error: EventError) -> ListedReject:
    return ListedReject(
        id=f"{destination}:{number}",
        stage=DESTINATION_PREFIX + destination,
        at=error.at,
        reason=error.error,
        body=error.line(),
        source=error.source,
        record=error,
        is_single=False,
    )

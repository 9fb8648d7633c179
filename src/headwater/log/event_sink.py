"""The stores for the events of tokens: files, queues of streams, topics of Kafka, or several of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from headwater.errors import HeadwaterError
from headwater.log.queue.group_commit import OnCommitted, complete_runs
from headwater.log.queue.log import Log
from headwater.log.streams import Queues
from headwater.settings import DestinationSettings


class EventSink(Protocol):
    """Stores the events of a token durably and reports when they are on disk."""

    def append(
        self, token_id: str, bodies: Sequence[bytes], on_committed: OnCommitted, receipt: object
    ) -> None:
        """Start to store the events; never blocks, callable from any thread.

        `on_committed([receipt, …], error)` is called once for each receipt, by a thread of the sink. Without
        an error the events are on disk (G1). HeadwaterError if the sink cannot take them at all.
        """


class FanOut:
    """Appends events to every store that wants their token: event files and queues of streams.

    A request is answered when its events are on disk in all stores (G1). If one store fails, the request
    fails with its error, and the other stores keep the events: when the sender repeats the request, these
    stores have them twice, as after a lost answer.
    """

    def __init__(self, files: EventSink, queues: Queues, destinations: Sequence[DestinationSettings]) -> None:
        self._files = files
        self._queues = queues
        self._destinations = destinations
        self._routes: dict[str, tuple[list[Log], bool]] = {}
        self._guard = threading.Lock()

    def append(
        self, token_id: str, bodies: Sequence[bytes], on_committed: OnCommitted, receipt: object
    ) -> None:
        """Append to every store of the token; `on_committed` is called by the thread of the last one."""
        if (route := self._routes.get(token_id)) is None:
            route = self._routes[token_id] = self._route(token_id)
        queues, wants_file = route
        if not queues:
            self._files.append(token_id, bodies, on_committed, receipt)
            return
        if len(queues) == 1 and not wants_file:
            queues[0].append(bodies, on_committed, receipt)
            return
        pending = _PendingFanOut(on_committed, receipt, len(queues) + wants_file)
        started = 0
        try:
            if wants_file:
                self._files.append(token_id, bodies, self._one_stored, pending)
                started += 1
            for queue in queues:
                queue.append(bodies, self._one_stored, pending)
                started += 1
        except HeadwaterError as error:  # a store is being closed: it and those after it never report
            for _ in range(len(queues) + wants_file - started):
                self._one_stored([pending], error)

    def _route(self, token_id: str) -> tuple[list[Log], bool]:
        wanting = [each for each in self._destinations if each.wants(token_id)]
        queues = [self._queues.log(each.id) for each in wanting if each.is_stream]
        # Events without a destination are kept in files, for a destination that is added later.
        return queues, not queues or any(each.is_batch for each in wanting)

    def _one_stored(self, pending: list[Any], error: HeadwaterError | None) -> None:
        """Called when one store has committed; completes the requests whose last store this was."""
        done: list[_PendingFanOut] = []
        with self._guard:
            for each in pending:
                each.error = each.error or error
                each.open -= 1
                if not each.open:
                    done.append(each)
        complete_runs((each.on_committed, each.error, [each.receipt]) for each in done)


class _PendingFanOut(msgspec.Struct, eq=False):
    """Events that several stores were asked to keep; `open` of them have not reported yet."""

    on_committed: OnCommitted
    receipt: object
    open: int
    error: HeadwaterError | None = None

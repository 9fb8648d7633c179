"""From messages to sent events, for one application: runs, builder, filter and queue of the transport."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from headwater.lineage.agent.messages import Message
from headwater.lineage.events.building import Builder, DeadlineBuilder
from headwater.lineage.runs import Failure, Kind, Runs, State, Step
from headwater.lineage.sending.emit import Emitter
from headwater.lineage.sending.telling import Teller
from headwater.lineage.settings import LineageSettings

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

__all__ = ["Narrator"]

logger = logging.getLogger(__name__)


class Narrator:
    """Tells each message on; `finish` tells the end, once. One thread at a time, whichever it is."""

    def __init__(
        self,
        settings: LineageSettings,
        builder: Builder,
        make_client: Callable[[], OpenLineageClient],
        release: Callable[[list[int]], None],
    ) -> None:
        self._settings = settings
        self._release = release
        self._runs = Runs(_uuid(settings.application_run_id))
        self.emitter = Emitter(make_client, settings)
        self._builder = DeadlineBuilder(builder, settings.deadline_millis / 1000)
        self._teller = Teller(self._builder, self.emitter.emit, settings)
        self._lock = threading.RLock()
        self._is_finished = False

    def handle(self, message: Message) -> None:
        """Take in one message and tell what follows from it."""
        with self._lock:
            self._tell(self._runs.handle(message))

    def finish(self, failure: Failure | None, deadline: float) -> None:
        """The application has ended; send what is left until then, by the monotonic clock."""
        self._builder.hurry(deadline)
        if not self._lock.acquire(timeout=max(0.1, deadline - time.monotonic())):
            return  # somebody's builder hangs in the thread that listens
        try:
            if self._is_finished:
                return
            self._is_finished = True
            if failure is None and self._runs.end_error:
                failure = Failure(self._runs.end_error)
            self._tell(self._runs.finish(self._runs.ended or int(time.time() * 1000), failure))
            self._builder.close()
        finally:
            self._lock.release()
        self.emitter.close(max(0.0, deadline - time.monotonic()))

    def _tell(self, steps: list[Step]) -> None:
        for step in steps:
            self._teller.tell(step)
            if step.state is not State.START and step.run.kind is not Kind.STREAM:
                self._release([execution.id for execution in step.run.executions])


def _uuid(text: str | None) -> UUID | None:
    if not text:
        return None
    try:
        return UUID(text)
    except ValueError:
        logger.warning("applicationRunId is not used: %r is not a UUID.", text)
        return None

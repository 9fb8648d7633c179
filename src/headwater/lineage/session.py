"""Lineage of one Spark application: the agent in its JVM, the thread that asks it, and what the thread tells.

Making one costs the caller's thread the loading of the agent and no more: everything else, from the import of
openlineage-python to the first event, happens on the thread that listens.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headwater.lineage.events.deadline import Builder, DeadlineBuilder
from headwater.lineage.events.event_filter import Teller
from headwater.lineage.jvm import compile as jvm
from headwater.lineage.jvm.agent import Listener
from headwater.lineage.jvm.messages import AppStart, Message
from headwater.lineage.runs import ExtractionError, Failure, Kind, Runs, State, Step
from headwater.lineage.sending.sender import Emitter
from headwater.lineage.settings import LineageSettings

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from pyspark import SparkContext

    from headwater.lineage.events.deadline import Builder
    from headwater.lineage.runs import Failure

__all__ = ["Attachment", "Narrator"]


logger = logging.getLogger(__name__)


class Narrator:
    """Tells each message on; `finish` tells the end, once. One thread at a time, whichever it is."""

    def __init__(
        self,
        settings: LineageSettings,
        builder: Builder,
        make_client: Callable[[], OpenLineageClient],
        release: Callable[[list[int]], None],
        agent_error: str | None = None,
    ) -> None:
        self._settings = settings
        self._agent_error = agent_error
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
            steps = self._runs.handle(message)
            if isinstance(message, AppStart) and self._agent_error and self._runs.application is not None:
                error = ExtractionError("agent", self._agent_error)
                self._runs.application.extraction_errors.append(error)
            self._tell(steps)

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


LINGER_SECONDS = 5.0  # how long after `stop` the process may still turn out to have failed


class Attachment:
    """Begins to listen when it is made; `stopped` and `finish` end it, in any order, also twice."""

    def __init__(
        self,
        context: SparkContext,
        settings: LineageSettings,
        make_builder: Callable[[Any], Builder],
        make_client: Callable[[], OpenLineageClient],
    ) -> None:
        self.context = context
        self.settings = settings
        self._make_builder = make_builder
        self._make_client = make_client
        gateway: Any = context._gateway
        self.agent, self.agent_error = _agent(context)
        if self.agent is not None:
            self.agent.needMemory(settings.memory_threshold)
            self.agent.attach()
        self._narrator: Narrator | None = None
        self._lock = threading.Lock()
        self._is_listening = True
        self._is_finished = False
        self._is_mute = False  # whether nothing can be told, which has been told
        self._timer: threading.Timer | None = None
        self._listener = Listener(self.agent, gateway, self._handle, first=_application(context))
        self._wrap_stop()

    @property
    def is_finished(self) -> bool:
        """Whether everything has been told, the end of the application included."""
        return self._is_finished

    def flush(self, seconds: float) -> bool:
        """Tell and send everything that has happened so far; whether that was done in time."""
        deadline = time.monotonic() + seconds
        if not self._is_listening:
            self.finish(None, seconds)
        elif not self._listener.flush(seconds):
            return False
        narrator = self._narrator
        return narrator is None or narrator.emitter.flush(max(0.0, deadline - time.monotonic()))

    def finish(self, failure: Failure | None, seconds: float) -> None:
        """The application has ended, well or by `failure`; sends what is left, for so long at most."""
        deadline = time.monotonic() + seconds
        if self._is_listening:
            self._listener.flush(seconds / 2)
            self._stop_listening(max(0.1, (deadline - time.monotonic()) / 2))
        with self._lock:
            if self._is_finished:
                return
            self._is_finished = True
            if self._timer is not None:
                self._timer.cancel()
        if self._narrator is not None:
            self._narrator.finish(failure, deadline)

    def stopped(self) -> None:
        """Spark has stopped. Whether the application ended well is known when the script has ended."""
        seconds = self.settings.exit_millis / 1000
        self._stop_listening(seconds)
        with self._lock:
            if self._is_finished or self._timer is not None:
                return
            self._timer = threading.Timer(LINGER_SECONDS, self.finish, (None, seconds))
            self._timer.daemon = True
            self._timer.start()

    def abandon(self) -> None:
        """Forget everything without telling anything more; for a process that forked."""
        self._is_listening = False
        self._is_finished = True

    def _handle(self, message: Message) -> None:
        """Called by the thread that listens, and by no other."""
        if self._narrator is None and not self._is_mute:
            try:
                self._narrator = self._make_narrator()
            except Exception as error:
                self._is_mute = True
                logger.warning("No lineage: %s", error, exc_info=True)
        if self._narrator is not None:
            self._narrator.handle(message)

    def _make_narrator(self) -> Narrator:
        from headwater.lineage.session import Narrator

        builder = self._make_builder(self.agent)
        return Narrator(
            self.settings,
            builder,
            self._make_client,
            lambda ended: self._listener.release(ended),
            self.agent_error,
        )

    def _stop_listening(self, seconds: float) -> None:
        """Take in what the agent has heard, and leave Spark alone from now on."""
        with self._lock:
            if not self._is_listening:
                return
            self._is_listening = False
        self.context.__dict__.pop("stop", None)
        self._listener.close(seconds)

    def _wrap_stop(self) -> None:
        original = self.context.stop

        def stop() -> None:
            try:
                original()
            finally:
                self.stopped()

        stop.__doc__ = original.__doc__
        self.context.stop = stop  # type: ignore[method-assign]


def _agent(context: SparkContext) -> tuple[Any, str | None]:
    """The compiled agent, or None and the reason why this JVM does not accept it."""
    try:
        spark: Any = context._jsc
        return jvm.load(context).new(context._gateway, "Agent", spark.sc()), None
    except Exception as error:
        return None, f"the agent cannot be compiled in this JVM: {jvm.reason(error)}"


def _application(context: SparkContext) -> AppStart:
    return AppStart(
        id=str(context.applicationId),
        name=str(context.appName),
        time=int(context.startTime),
        user=str(context.sparkUser()),
    )

"""Lineage of one Spark application: the agent in its JVM, and everything between that and the transport."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headwater.lineage import jvm
from headwater.lineage.building import Builder, DeadlineBuilder
from headwater.lineage.emit import Emitter
from headwater.lineage.listener import Listener
from headwater.lineage.messages import AppStart, Message
from headwater.lineage.runs import Failure, Run, Runs, State, Step
from headwater.lineage.settings import LineageSettings
from headwater.lineage.telling import Teller

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from pyspark import SparkContext

__all__ = ["Attachment"]

logger = logging.getLogger(__name__)

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
        self.units = jvm.load(context)
        gateway: Any = context._gateway
        spark: Any = context._jsc
        self.agent = self.units.new(gateway, "Agent", spark.sc())
        self.agent.needMemory(settings.memory_threshold)
        self._runs = Runs(_uuid(settings.application_run_id))
        self._emitter = Emitter(make_client, settings)
        self.builder = make_builder(self.agent)
        self._builder = DeadlineBuilder(self.builder, settings.deadline_millis / 1000)
        self._teller = Teller(self._builder, self._emitter.emit, settings)
        self._telling = threading.RLock()  # only the thread that listens tells, until there is none any more
        self._is_listening = True
        self._is_finished = False
        self._timer: threading.Timer | None = None
        self._started = self._application()
        self.agent.attach()
        self._tell(self._started)
        self._listener = Listener(self.agent, gateway, self._handle)
        self._wrap_stop()

    @property
    def is_finished(self) -> bool:
        """Whether everything has been told, the end of the application included."""
        return self._is_finished

    @property
    def sent(self) -> int:
        """Events that the transport has taken."""
        return self._emitter.sent

    def flush(self, seconds: float) -> bool:
        """Tell and send everything that has happened so far; whether that was done in time."""
        deadline = time.monotonic() + seconds
        is_done = self._listener.flush(seconds) if self._is_listening else True
        if not self._is_listening:
            self.finish(None, seconds)
        return self._emitter.flush(max(0.0, deadline - time.monotonic())) and is_done

    def stop_listening(self, seconds: float) -> None:
        """Take in what the agent has heard, and leave Spark alone from now on."""
        if self._is_listening:
            self._is_listening = False
            self._unwrap_stop()
            self._listener.close(seconds)

    def finish(self, failure: Failure | None, seconds: float) -> None:
        """The application has ended, well or by `failure`; sends what is left, for so long at most."""
        deadline = time.monotonic() + seconds
        if self._is_listening:
            self._listener.flush(seconds / 2)
        self.stop_listening(max(0.1, (deadline - time.monotonic()) / 2))
        self._builder.hurry(deadline)
        if not self._telling.acquire(timeout=max(0.1, deadline - time.monotonic())):
            return  # somebody's builder hangs in the thread that listens
        try:
            if self._is_finished:
                return
            self._is_finished = True
            if self._timer is not None:
                self._timer.cancel()
            ended = self._runs.ended or int(time.time() * 1000)
            if failure is None and self._runs.end_error:
                failure = Failure(self._runs.end_error)
            self._tell(self._runs.finish(ended, failure))
            self._builder.close()
        finally:
            self._telling.release()
        self._emitter.close(max(0.0, deadline - time.monotonic()))

    def abandon(self) -> None:
        """Take everything back without telling anything more; for a process that forked."""
        self._is_listening = False
        self._is_finished = True

    def _application(self) -> AppStart:
        context = self.context
        return AppStart(
            id=str(context.applicationId),
            name=str(context.appName),
            time=int(context.startTime),
            user=str(context.sparkUser()),
        )

    def _handle(self, message: Message) -> None:
        self._tell(message)

    def _tell(self, what: Message | list[Step]) -> None:
        with self._telling:
            steps = what if isinstance(what, list) else self._runs.handle(what)
            for step in steps:
                self._teller.tell(step)
                if step.state is not State.START:
                    self._release(step.run)

    def _release(self, run: Run) -> None:
        """The JVM need not keep the plans of this run any longer."""
        if not self._is_listening:
            return
        try:
            if run.executions and run.kind != "stream":
                self.agent.release(run.executions[0].id)
        except Exception as error:
            logger.debug("The agent does not answer: %s", error)

    # ---- around SparkContext.stop

    def _wrap_stop(self) -> None:
        original = self.context.stop

        def stop() -> None:
            try:
                original()
            finally:
                self.stopped()

        stop.__doc__ = original.__doc__
        self.context.stop = stop  # type: ignore[method-assign]

    def _unwrap_stop(self) -> None:
        self.context.__dict__.pop("stop", None)

    def stopped(self) -> None:
        """Spark has stopped. Whether the application ended well is known when the script has ended."""
        seconds = self.settings.exit_millis / 1000
        self.stop_listening(seconds)
        with self._telling:
            if self._is_finished or self._timer is not None:
                return
            self._timer = threading.Timer(LINGER_SECONDS, self.finish, (None, seconds))
            self._timer.daemon = True
            self._timer.start()


def _uuid(text: str | None) -> UUID | None:
    if not text:
        return None
    try:
        return UUID(text)
    except ValueError:
        logger.warning("applicationRunId is not used: %r is not a UUID.", text)
        return None

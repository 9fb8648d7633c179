"""Lineage of one Spark application, from the agent's messages to the events that are sent.

    poll -> track_runs -> build_event -> filter_event -> send

Each step is one method of `LineageSession`, called in this order on the session's thread; the end of the
application is built and sent on the thread that calls `finish`. The thread that calls `start` loads the agent
and nothing else: openlineage-python is imported on the session's thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from headwater.lineage.extend.isolation import IsolatedThread, NotCompleted
from headwater.lineage.jvm.compile import reason
from headwater.lineage.jvm.messages import AppStart, Dropped, Message
from headwater.lineage.runs import DueEvent, ExtractionError, Failure, Run, RunKind, RunTracker, State
from headwater.lineage.settings import LineageSettings

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from pyspark import SparkContext

    from headwater.lineage.events.event_filter import EventFilter
    from headwater.lineage.jvm.agent import Agent
    from headwater.lineage.sending.sender import EventSender

logger = logging.getLogger(__name__)

Event = dict[str, Any]

# Time after `spark.stop()` in which the process may still fail: then the application's end event is a FAIL.
LINGER_SECONDS = 5.0
# Pause after a poll that returned messages: the end of a query and the start of the next come together, and
# each poll costs both processes a round trip. A flush ends the pause.
POLL_PAUSE_SECONDS = 0.2
SHORTEST_BUILD_SECONDS = 0.05


class Builder(Protocol):
    """Makes events of runs, one at a time; an abandoned build may still run beside the next."""

    def build(self, run: Run, state: str, time: int) -> Event:
        """The whole event, valid. May raise and may take long."""
        ...

    def partial(self, run: Run, state: str, time: int) -> Event:
        """The event without datasets and extensions: names, parents, the run's error. Must not wait."""
        ...


class LineageSession:
    """Sends the lineage of one application. Any thread may call its methods, in any order, also twice."""

    def __init__(
        self,
        context: SparkContext,
        settings: LineageSettings,
        make_builder: Callable[[Agent | None], Builder],
        make_client: Callable[[], OpenLineageClient],
    ) -> None:
        self.context = context
        self.settings = settings
        self.agent: Agent | None = None
        self.agent_error: str | None = None
        self.is_finished = False
        self._make_builder = make_builder
        self._make_client = make_client
        self._application: AppStart | None = None
        application_run_id = _run_id(settings.application_run_id)
        self._runs = RunTracker(application_run_id, sends_running=settings.is_like_upstream)
        # made on the session's thread
        self._builder: Builder | None = None
        self._filter: EventFilter | None = None
        self._sender: EventSender | None = None
        self._builds = IsolatedThread("headwater-lineage-build", pause_after=3)
        self._exit_deadline = float("inf")
        self._processing = threading.RLock()  # held while a message becomes events
        # polling; `_changed` guards `_handled` and `_waiting`; the two flags are set once
        self._changed = threading.Condition()
        # from -1: the application's start is counted, though it is no message of the agent
        self._handled = -1
        self._waiting = 0  # callers that wait for messages to be handled
        self._is_closing = False
        self._is_jvm_gone = False
        self._released: list[int] = []
        self._thread = threading.Thread(target=self._run, name="headwater-lineage", daemon=True)
        self._state_lock = threading.Lock()
        self._is_polling = True
        self._linger: threading.Timer | None = None

    # --- life of the session

    def start(self) -> None:
        """Attach the agent, or set `agent_error` if there is none, and start the session's thread."""
        from headwater.lineage.jvm.agent import Agent, application_of

        try:
            self.agent = Agent(self.context)
        except Exception as error:
            self.agent_error = f"the agent cannot be compiled in this JVM: {reason(error)}"
        self._application = application_of(self.context)
        if self.agent is not None:
            self.agent.set_memory_threshold(self.settings.memory_threshold)
            if self.settings.circuit_breaker == "javaRuntime":
                self.agent.set_gc_threshold(self.settings.gc_cpu_threshold)
            if self.settings.is_like_upstream:
                self.agent.announce_jobs()
            self.agent.attach()
        self._thread.start()
        self._wrap_stop()

    def flush(self, seconds: float) -> bool:
        """Send the events of everything that has happened so far; return whether that was done in time."""
        deadline = time.monotonic() + seconds
        if not self._is_polling:
            self.finish(None, seconds)
        elif not self._handle_messages_so_far(seconds):
            return False
        return self._sender is None or self._sender.flush(max(0.0, deadline - time.monotonic()))

    def finish(self, failure: Failure | None, seconds: float) -> None:
        """Send the application's end event, a FAIL if there is a `failure`, and the events that wait."""
        deadline = time.monotonic() + seconds
        if self._is_polling:
            self._handle_messages_so_far(seconds / 2)
            self._stop_polling(max(0.1, (deadline - time.monotonic()) / 2))
        with self._state_lock:
            if self.is_finished:
                return
            self.is_finished = True
            if self._linger is not None:
                self._linger.cancel()
        self._end_application(failure, deadline)

    def spark_stopped(self) -> None:
        """Finish after `LINGER_SECONDS`: the script may still exit with an error, which is a FAIL."""
        seconds = self.settings.exit_millis / 1000
        self._stop_polling(seconds)
        with self._state_lock:
            if self.is_finished or self._linger is not None:
                return
            self._linger = threading.Timer(LINGER_SECONDS, self.finish, (None, seconds))
            self._linger.daemon = True
            self._linger.start()

    def abandon(self) -> None:
        """Send nothing more; for a forked process, which has none of the threads."""
        self._is_polling = False
        self.is_finished = True

    # --- the steps, in order

    def _run(self) -> None:
        """The session's thread."""
        try:
            self._prepare()
            if self._application is not None:
                self._process(self._application)
            self._count_handled()
            if self.agent is None:
                return
            while not self._is_closing:
                for message in self._poll():
                    self._process(message)
                    if not isinstance(message, Dropped):
                        self._count_handled()
        except Exception as error:
            # The JVM has ended with the process or by `kill`, or py4j has lost its connection.
            if not self._is_closing:
                logger.debug("Lineage ends here: the JVM does not answer: %s", error)
        finally:
            with self._changed:
                self._is_jvm_gone = not self._is_closing
                self._changed.notify_all()

    def _process(self, message: Message) -> None:
        """Take one message through all steps; an error costs only its own event (G10)."""
        try:
            with self._processing:
                for due in self._track_runs(message):
                    self._process_due_event(due)
        except Exception:
            logger.exception("A message of the agent was not handled")

    def _process_due_event(self, due: DueEvent) -> None:
        try:
            if self._filter is not None and self._filter.wants(due.run):
                event = self._build_event(due)
                for ready in self._filter_event(due, event):
                    self._send(*ready)
        except Exception:
            logger.exception("No lineage for %r", due.run)
        if due.state not in (State.START, State.RUNNING) and due.run.kind is not RunKind.STREAM:
            self._released += [execution.id for execution in due.run.executions]

    def _poll(self) -> Iterator[Message]:
        """The agent's next messages. Pull, never push: nothing in the JVM ever waits for Python."""
        assert self.agent is not None
        released, self._released = self._released, []
        messages = self.agent.poll(released)
        for message in messages:
            if isinstance(message, Exception):
                logger.warning("A message of the agent cannot be read: %s", message)
                self._count_handled()
            else:
                yield message
        if messages:
            with self._changed:
                if not self._waiting and not self._is_closing:
                    self._changed.wait(POLL_PAUSE_SECONDS)

    def _track_runs(self, message: Message) -> list[DueEvent]:
        """The events that are due because of a message."""
        due = self._runs.on_message(message)
        if isinstance(message, AppStart) and self.agent_error and self._runs.application is not None:
            error = ExtractionError("agent", self.agent_error)
            self._runs.application.extraction_errors.append(error)
        return due

    def _build_event(self, due: DueEvent) -> Event | None:
        """Build on a thread that is abandoned after the deadline; the event is then partial (G10)."""
        builder = self._builder
        if builder is None:
            return None
        left = self._exit_deadline - time.monotonic()
        seconds = max(SHORTEST_BUILD_SECONDS, min(self.settings.deadline_millis / 1000, left))
        # the tracker changes runs, and an abandoned build reads on: each build has its own copy
        run = due.run.snapshot()
        try:
            return self._builds.run(lambda: builder.build(run, due.state, due.time), seconds)
        except NotCompleted as error:
            logger.warning("Lineage of %r is partial: %s", due.run, error)
            failed = ExtractionError("build", str(error), error.stack)
        return self._partial_event(builder, due, failed)

    def _filter_event(self, due: DueEvent, event: Event | None) -> list[tuple[Event, int]]:
        """The events to send now, with their times: none, this one, or its run's START and this one."""
        if event is None or self._filter is None:
            return []
        return self._filter.accept(due, event)

    def _send(self, event: Event, moment: int) -> None:
        """Add the facets that the program registered, and put the event in the sender's queue."""
        from headwater.lineage.events.event_filter import add_registered_facets

        add_registered_facets(event, moment, self.settings.disabled_facets)
        if self._sender is not None:
            self._sender.put(event)

    # --- helpers of the steps

    def _prepare(self) -> None:
        """Create the parts that need openlineage-python; without it there is one warning and no lineage."""
        from headwater.lineage.events.event_filter import EventFilter
        from headwater.lineage.sending.sender import EventSender

        try:
            self._builder = self._make_builder(self.agent)
            self._filter = EventFilter(self.settings)
            self._sender = EventSender(self._make_client, self.settings)
        except Exception as error:
            self._filter = None
            logger.warning("No lineage: %s", error, exc_info=True)
        if self.agent is not None:
            try:
                self.agent.open_connection()
            except Exception as error:
                logger.debug("TCP_NODELAY was not set: %s", error)

    def _partial_event(self, builder: Builder, due: DueEvent, error: ExtractionError) -> Event | None:
        from headwater.lineage.events.size_limit import add_extraction_errors

        try:
            event = builder.partial(due.run, due.state, due.time)
            add_extraction_errors(event, [error])
            return event
        except Exception:
            logger.exception("No event for %r", due.run)
            return None

    def _end_application(self, failure: Failure | None, deadline: float) -> None:
        self._exit_deadline = deadline
        if not self._processing.acquire(timeout=max(0.1, deadline - time.monotonic())):
            return  # a build hangs on the session's thread
        try:
            if failure is None and self._runs.end_error:
                failure = Failure(self._runs.end_error)
            for due in self._runs.finish(self._runs.ended or int(time.time() * 1000), failure):
                self._process_due_event(due)
            self._builds.close()
            _forget_registered_facets()
        finally:
            self._processing.release()
        if self._sender is not None:
            self._sender.close(max(0.0, deadline - time.monotonic()))

    def _handle_messages_so_far(self, seconds: float) -> bool:
        """Wait until every event of Spark so far is handled; return whether that happened in time."""
        deadline = time.monotonic() + seconds
        if self.agent is None:
            return self._wait_until_handled(0, deadline)
        with self._flush_requested():
            try:
                is_handled = self.agent.wait_until_handled(seconds)
                wanted = self.agent.offered()
                self.agent.wake()  # some messages wait for an urgent one
            except Exception as error:
                logger.debug("The agent does not answer: %s", error)
                return False
            return self._wait_until_handled(wanted, deadline) and is_handled

    def _stop_polling(self, seconds: float) -> None:
        """Handle the agent's last messages, detach it from Spark and end the session's thread."""
        with self._state_lock:
            if not self._is_polling:
                return
            self._is_polling = False
        self.context.__dict__.pop("stop", None)
        deadline = time.monotonic() + seconds
        if self.agent is None:
            self._wait_until_handled(0, deadline)
            return
        with self._flush_requested():
            try:
                self.agent.detach(seconds / 2)
                self._wait_until_handled(self.agent.offered(), deadline)
            except Exception as error:
                logger.debug("The agent does not answer: %s", error)
            self._is_closing = True
        try:
            self.agent.wake()
        except Exception as error:
            logger.debug("The agent does not answer: %s", error)
        self._thread.join(max(0.0, deadline - time.monotonic()))

    @contextmanager
    def _flush_requested(self) -> Iterator[None]:
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._waiting -= 1

    def _wait_until_handled(self, wanted: int, deadline: float) -> bool:
        with self._changed:
            while self._handled < wanted:
                left = deadline - time.monotonic()
                if left <= 0 or self._is_jvm_gone or not self._thread.is_alive():
                    return False
                self._changed.wait(left)
        return True

    def _count_handled(self) -> None:
        with self._changed:
            self._handled += 1
            self._changed.notify_all()

    def _wrap_stop(self) -> None:
        original = self.context.stop

        def stop() -> None:
            try:
                original()
            finally:
                self.spark_stopped()

        stop.__doc__ = original.__doc__
        self.context.stop = stop  # type: ignore[method-assign]


def _forget_registered_facets() -> None:
    from headwater.lineage.extend.facet_registry import FacetRegistry

    FacetRegistry.clear()


def _run_id(text: str | None) -> UUID | None:
    if not text:
        return None
    try:
        return UUID(text)
    except ValueError:
        logger.warning("applicationRunId is not used: %r is not a UUID.", text)
        return None

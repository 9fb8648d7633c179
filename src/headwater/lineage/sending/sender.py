"""A bounded queue of events and one thread that sends them, off the job's path.

A transport that is slow, hangs or fails costs events, which are counted and logged. It costs the job at
most the memory of the queue and, at its end, `exit_millis` (G8, G10).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from openlineage.client import event_v2
from openlineage.client.client import OpenLineageClient
from openlineage.client.transport.console import ConsoleTransport
from openlineage.client.transport.file import FileTransport
from openlineage.client.transport.http import HttpTransport

from headwater.lineage.events.size_limit import limit_size
from headwater.lineage.naming.secret_mask import mask_secrets
from headwater.lineage.sending.http import HttpSender
from headwater.lineage.settings import LineageSettings

logger = logging.getLogger(__name__)

Event = dict[str, Any]

WARN_SECONDS = 60.0  # between two warnings about the transport
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0


class JsonTransport(Protocol):
    """Sends events that are dicts."""

    def emit(self, event: Event) -> object:
        """Send one event; raises what the transport raises."""
        ...


class EventSender:
    """Receives events in order from one thread and sends them in order on another.

    `OpenLineageClient` is made on that thread too: building a transport may wait for a network.
    """

    def __init__(self, make: Callable[[], OpenLineageClient], settings: LineageSettings) -> None:
        self._make = make
        self._settings = settings
        self._queue: deque[tuple[Event, int]] = deque()
        self._bytes = 0
        self._lock = threading.Condition()
        self._is_busy = False
        self._is_closed = False
        self._client: OpenLineageClient | None = None
        self._json: JsonTransport | None = None
        self._warned = -WARN_SECONDS
        self._failed_in_row = 0
        self._retry_at = 0.0
        self.sent = 0
        self.failed = 0
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="headwater-lineage-emit", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        """Append an event to the queue without waiting; a full queue drops its oldest events."""
        mask_secrets(event)
        taken = limit_size(
            event, facet_bytes=self._settings.facet_bytes, event_bytes=self._settings.event_bytes
        )
        with self._lock:
            if self._is_closed:
                self.dropped += 1
                return
            self._queue.append((event, taken))
            self._bytes += taken
            while len(self._queue) > self._settings.queue_events or self._bytes > self._settings.queue_bytes:
                _, gone = self._queue.popleft()
                self._bytes -= gone
                self.dropped += 1
            self._lock.notify_all()
        if self.dropped:
            self._warn("The queue of lineage events is full; %d events were dropped so far.", self.dropped)

    def flush(self, seconds: float) -> bool:
        """Wait until the queue is empty and the last event is sent; return whether that happened."""
        deadline = time.monotonic() + seconds
        with self._lock:
            while self._queue or self._is_busy:
                left = deadline - time.monotonic()
                if left <= 0 or not self._thread.is_alive():
                    return False
                self._lock.wait(left)
        return True

    def close(self, seconds: float) -> bool:
        """Send the queued events within `seconds`, then abandon the thread; return whether all were sent."""
        deadline = time.monotonic() + seconds
        is_done = self.flush(seconds)
        with self._lock:
            self._is_closed = True
            left = len(self._queue) + self._is_busy
            self.dropped += len(self._queue)
            self._lock.notify_all()
        # The thread closes its transport itself, since closing may hang too.
        self._thread.join(max(0.0, deadline - time.monotonic()) if is_done else 0.0)
        if not is_done:
            self._warn("%d lineage events were not sent: the transport did not take them in time.", left)
        return is_done

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._queue and not self._is_closed:
                    self._lock.wait()
                if not self._queue or self._is_closed:
                    break
                event, taken = self._queue.popleft()
                self._bytes -= taken
                self._is_busy = True
            try:
                self._send(event)
                self.sent += 1
                self._failed_in_row = 0
            except BaseException as error:  # this thread survives every error of a transport
                self.failed += 1
                self._failed_in_row += 1
                self._warn("A lineage event was not sent (%d so far): %s", self.failed, error or repr(error))
            with self._lock:
                self._is_busy = False
                self._lock.notify_all()
        try:
            if self._client is not None:
                self._client.close(max(0.0, self._settings.exit_millis / 1000))
        except BaseException as error:
            logger.debug("Closing the transport: %s", error)

    def _send(self, event: Event) -> None:
        if self._client is None:
            if time.monotonic() < self._retry_at:
                raise RuntimeError("there is no transport")
            try:
                self._client = self._make()
            except BaseException:
                # A wrong configuration stays wrong; a service may still start.
                pause = FIRST_PAUSE_SECONDS * 2 ** min(self._failed_in_row, 10)
                self._retry_at = time.monotonic() + min(LONGEST_PAUSE_SECONDS, pause)
                raise
            self._json = json_transport(self._client)
        if self._json is not None:
            self._json.emit(event)
            return
        made = as_run_event(event)
        if self._client.filter_event(made) is not None:
            self._client.transport.emit(made)

    def _warn(self, text: str, *values: object) -> None:
        now = time.monotonic()
        if now - self._warned >= WARN_SECONDS:
            self._warned = now
            logger.warning(text, *values)


def json_transport(client: OpenLineageClient) -> JsonTransport | None:
    """A sender of dicts, if the transport only writes events as JSON; None if it needs the class.

    Converting the dict to openlineage-python's classes, which convert it back, was a third of the cost of an
    event by HTTP (1.0 of 3.5 ms for ten kilobytes).
    """
    transport: Any = client.transport
    if getattr(client, "_filters", True):
        return None  # filters read the class
    if type(transport) is HttpTransport:
        return HttpSender(transport)
    if type(transport) is FileTransport and getattr(transport.config, "debug_mode", True):
        return None  # the file is then named by the job
    found: JsonTransport | None = transport if type(transport) in (FileTransport, ConsoleTransport) else None
    return found


def as_run_event(event: Event) -> event_v2.RunEvent:
    """The event as openlineage-python's class, which some transports read; facets stay dicts."""
    return event_v2.RunEvent(
        eventTime=event["eventTime"],
        producer=event["producer"],
        eventType=event_v2.RunState(event["eventType"]) if "eventType" in event else None,
        run=event_v2.Run(**event["run"]),
        job=event_v2.Job(**event["job"]),
        inputs=[event_v2.InputDataset(**each) for each in event.get("inputs", [])],
        outputs=[event_v2.OutputDataset(**each) for each in event.get("outputs", [])],
    )

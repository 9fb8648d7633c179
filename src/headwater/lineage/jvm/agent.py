"""The thread that asks the agent what has happened, and hands it over, one message at a time and in order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from headwater.lineage.jvm.messages import Dropped, Message, decode

__all__ = ["Listener"]

logger = logging.getLogger(__name__)

# After a poll that had something: the end of a query and the begin of the next come together, and each poll
# costs both sides a round trip. Whoever waits for events ends the rest.
REST_SECONDS = 0.2


class Listener:
    """Polls until it is closed. Pull, never push: nothing in the JVM ever waits for Python."""

    def __init__(
        self, agent: Any, gateway: Any, handle: Callable[[Message], None], *, first: Message
    ) -> None:
        """`first` is handled before anything that the agent says."""
        self._agent = agent
        self._gateway = gateway
        self._handle = handle
        self._first = first
        self._handled = -1  # the first one is not the agent's
        self._released: list[str] = []
        self._lock = threading.Condition()
        self._hurried = 0  # how many wait for what is there to be handled
        self._is_closing = False
        self.is_lost = False  # whether the JVM has gone away
        self._thread = threading.Thread(target=self._run, name="headwater-lineage", daemon=True)
        self._thread.start()

    def flush(self, seconds: float) -> bool:
        """Wait until everything that has happened in Spark so far is handled; whether it is."""
        deadline = time.monotonic() + seconds
        if self._agent is None:
            return self._wait(0, deadline)
        with self._hurry():
            try:
                is_settled = bool(self._agent.settle(int(seconds * 1000)))
                wanted = int(self._agent.offered())
                self._agent.wake()  # some of it may not be due
            except Exception as error:
                logger.debug("The agent does not answer: %s", error)
                return False
            return self._wait(wanted, deadline) and is_settled

    def close(self, seconds: float) -> bool:
        """Handle what the agent has, stop listening, end the thread; whether all was handled in time."""
        deadline = time.monotonic() + seconds
        if self._agent is None:
            return self._wait(0, deadline)
        with self._hurry():
            try:
                self._agent.detach(int(seconds * 500))  # half of the time for the JVM to finish
                is_done = self._wait(int(self._agent.offered()), deadline)
            except Exception as error:
                logger.debug("The agent does not answer: %s", error)
                is_done = False
            self._is_closing = True
        try:
            self._agent.wake()
        except Exception as error:
            logger.debug("The agent does not answer: %s", error)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return is_done and not self._thread.is_alive()

    def release(self, executions: list[int]) -> None:
        """The JVM need not keep these any longer; told with the next question. For the handler alone."""
        self._released += map(str, executions)

    @contextmanager
    def _hurry(self) -> Iterator[None]:
        with self._lock:
            self._hurried += 1
            self._lock.notify_all()
        try:
            yield
        finally:
            with self._lock:
                self._hurried -= 1

    def _rest(self) -> None:
        with self._lock:
            if not self._hurried and not self._is_closing:
                self._lock.wait(REST_SECONDS)

    def _wait(self, wanted: int, deadline: float) -> bool:
        with self._lock:
            while self._handled < wanted:
                left = deadline - time.monotonic()
                if left <= 0 or self.is_lost or not self._thread.is_alive():
                    return False
                self._lock.wait(left)
        return True

    def _run(self) -> None:
        if self._agent is None:
            self._take([self._first])
            return
        try:
            self._agent.offered()  # opens this thread's connection, and takes nothing
            self._agent.noDelay(self._gateway.java_gateway_server)
        except Exception as error:
            logger.debug("TCP_NODELAY was not set: %s", error)
        try:
            self._take([self._first])
            while not self._is_closing:
                self._poll()
        except Exception as error:
            # The JVM has ended, by `kill` or with the process; or py4j has lost its connection to it.
            if not self._is_closing:
                logger.debug("No more lineage: the JVM does not answer: %s", error)
        finally:
            with self._lock:
                self.is_lost = not self._is_closing
                self._lock.notify_all()

    def _poll(self) -> None:
        released, self._released = ",".join(self._released), []
        text = self._agent.poll(released) if released else self._agent.poll()
        if text != "[]":
            self._take(decode(text))
            self._rest()

    def _take(self, messages: Iterable[Message | Exception]) -> None:
        for message in messages:
            try:
                if isinstance(message, Exception):
                    logger.warning("A message of the agent was not understood: %s", message)
                else:
                    self._handle(message)
            except Exception:
                logger.exception("A message of the agent was not handled")
            if not isinstance(message, Dropped):
                with self._lock:
                    self._handled += 1
                    self._lock.notify_all()

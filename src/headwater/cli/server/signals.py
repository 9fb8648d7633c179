"""Signals of the commands that run until they are stopped, and the end of a process that cannot go on.

    SIGTERM, SIGINT      stop in order, within a time; a second SIGTERM changes nothing
    SIGINT after these   exit at once: a person presses Ctrl-C twice, a supervisor does not
    SIGHUP               read the settings again
    SIGQUIT              log what each thread does
    SIGUSR1, SIGUSR2     logged, nothing else

A handler of Python only runs in the main thread, where it may interrupt anything, also code that holds a lock
which the handler then needs. So the handlers only write to a pipe, and a thread of its own reads it.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType

logger = logging.getLogger(__name__)

WATCHED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
DIED = 0  # in the pipe, in place of a signal's number: the process cannot go on
CLOSED = 255  # in the same place: the command has ended
LAST_SECONDS = 5.0  # for the lines about a stop that hangs; then the kernel ends the process


class Signals:
    """Acts on signals in a thread of its own. `exit_code` is 1 after `die`, otherwise 0."""

    def __init__(
        self,
        stop: Callable[[], object],
        order: str,
        *,
        exit_now: Callable[[], None] | None = None,
        reload: Callable[[], object] | None = None,
        stop_seconds: float | None = None,
    ) -> None:
        """Install the handlers; call it in the main thread.

        `order` describes the orderly stop in the log. `exit_now` runs before an immediate exit; the process
        exits even if it raises. A stop that takes longer than `stop_seconds` is ended with exit code 1.
        """
        self.exit_code = 0
        self._stop = stop
        self._order = order
        self._exit_now = exit_now
        self._reload = reload
        self._stop_seconds = stop_seconds
        self._deadline: float | None = None
        self._is_stopping = False
        self._pipe, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._thread = threading.Thread(target=self._run, name="signals", daemon=True)
        self._thread.start()
        self._before = {number: signal.signal(number, self._received) for number in WATCHED}

    def close(self) -> None:
        """Put the handlers of before back, for a process that lives longer than the command."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._put(CLOSED)
        self._thread.join()
        os.close(self._pipe)
        os.close(self._write)

    def die(self, reason: str) -> None:
        """Stop because the process cannot go on, from any thread; its exit code will be 1."""
        logger.critical("%s The process stops, and its supervisor should start it again.", reason)
        self.exit_code = 1
        self._put(DIED)

    def _received(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._put(number)

    def _put(self, number: int) -> None:
        try:
            os.write(self._write, bytes((number,)))
        except BlockingIOError:
            pass  # thousands of signals wait already

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        while True:
            left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            if not poll.poll(left if left is None else 1000 * left):
                self._end_late()
            number = os.read(self._pipe, 1)[0]
            if number == CLOSED:
                return
            try:
                self._act(number)
            except Exception:  # the next signal must find this thread
                logger.exception("The signal %d could not be acted on.", number)

    def _act(self, number: int) -> None:
        if number == DIED:
            self._begin_stop("a thread that died")
        elif number == signal.SIGINT and self._is_stopping:
            self._exit(128 + number)
        elif number in (signal.SIGTERM, signal.SIGINT):
            name = signal.Signals(number).name
            if self._is_stopping:
                logger.info("%s changes nothing: the process is stopping; Ctrl-C exits at once.", name)
            else:
                self._begin_stop(name)
        elif number == signal.SIGHUP and self._reload is not None:
            self._reload()
        elif number == signal.SIGQUIT:
            _log_threads(logging.WARNING)
        else:
            logger.info("%s changes nothing in this process.", signal.Signals(number).name)

    def _begin_stop(self, why: str) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        if self._stop_seconds is not None:
            self._deadline = time.monotonic() + self._stop_seconds
            # SIGALRM has no handler: the kernel ends a process in which not even this thread runs any more.
            signal.setitimer(signal.ITIMER_REAL, self._stop_seconds + LAST_SECONDS)
        logger.info("Stopping on %s: %s; Ctrl-C exits at once.", why, self._order)
        self._stop()

    def _exit(self, code: int) -> None:
        try:
            logger.warning("Exiting at once; acknowledged events are on disk.")
            if self._exit_now is not None:
                self._exit_now()
        finally:
            os._exit(code)

    def _end_late(self) -> None:
        try:
            logger.critical(
                "The stop takes longer than %.0f s; exiting. Acknowledged events are on disk.",
                self._stop_seconds,
            )
            _log_threads(logging.CRITICAL)
        finally:
            os._exit(1)


def end_when_a_thread_dies(signals: Signals) -> None:
    """Log an exception that ends a thread, and stop the process: it would hang without that thread.

    What a dead thread would have done, others wait for without end: a restart is better than a process that
    listens and does not move (G9).
    """

    def died(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is SystemExit or args.exc_value is None:
            return
        name = args.thread.name if args.thread is not None else "unknown"
        logger.critical("The thread %s died.", name, exc_info=args.exc_value)
        signals.die(f"The thread {name} died ({args.exc_type.__name__}).")

    threading.excepthook = died


def _log_threads(level: int) -> None:
    """Log what each thread does, a line each, the innermost call first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        calls = [
            f"{entry.filename}:{entry.lineno} {entry.name}"
            for entry in reversed(traceback.extract_stack(frame))
        ]
        logger.log(level, "Thread %s: %s", names.get(ident, ident), " < ".join(calls))

"""Event loops in threads of their own, which outlets share.

An outlet waits for its receiver nearly all the time, and waiting takes no thread: hundreds of outlets share a
few loops. One that may block its loop, such as an extension that calls a library without coroutines, has a
loop of its own, so that it slows no other outlet (G7).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from headwater.delivery.outlets.base import Outlet
from headwater.log.queue.log import Log
from headwater.system.event_loop import new_loop

SHARED_LOOPS = 8  # of all outlets that share; up to so many each has one of its own
BLOCKING_CALLS = 512  # of one loop's outlets at once, such as writes to files: threads, made on demand


class LoopThread:
    """A loop in a daemon thread, from `start` until `close`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # on the loop only:
        self._on_append: list[Callable[[], None]] = []
        self._unsubscribe: Callable[[], None] | None = None
        self._is_notified = False

    def start(self) -> None:
        """Make the loop and its thread, unless they run; OSError if there are too many open files."""
        if self._loop is None:
            loop = new_loop()
            executor = ThreadPoolExecutor(BLOCKING_CALLS, thread_name_prefix=f"{self._name}-call")
            loop.set_default_executor(executor)
            self._thread = threading.Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
            self._thread.start()
            self._loop = loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()

    def run(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Run a coroutine on the loop."""
        assert self._loop is not None, "not started"
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, callback: Callable[[], None]) -> None:
        """Call a function on the loop; nothing happens if the loop is closed or was never started."""
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            pass  # the loop has just been closed, and with it all that it ran

    def on_append(self, log: Log, callback: Callable[[], None]) -> Callable[[], None]:
        """Call a function on the loop after each commit of the log; returns one that ends this.

        For the loop's own thread. All outlets of the loop share one call from the log's writer.
        """
        if not self._on_append:
            self._unsubscribe = log.on_append(self._notify)
        self._on_append.append(callback)

        def stop() -> None:
            self._on_append.remove(callback)
            if not self._on_append and self._unsubscribe is not None:
                self._unsubscribe()

        return stop

    def _notify(self) -> None:
        if not self._is_notified:
            self._is_notified = True
            self.call(self._appended)

    def _appended(self) -> None:
        self._is_notified = False  # first: a commit from here on is notified again
        for callback in self._on_append:
            callback()

    def close(self, timeout_seconds: float) -> bool:
        """Stop the loop when its work is done; returns whether the thread has ended."""
        if self._loop is None or self._thread is None:
            return True
        self.call(self._loop.stop)
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()


class LoopThreads:
    """The loops of several outlets."""

    def __init__(self, shared: int = SHARED_LOOPS) -> None:
        self._limit = shared
        self._shared: list[LoopThread] = []
        self._own: list[LoopThread] = []
        self._assigned = 0

    def assign(self, outlet: Outlet) -> LoopThread:
        """The loop for an outlet: one that it shares, or one of its own if it may block it."""
        if not outlet.shares_loop:
            own = LoopThread(f"outlet-{outlet.settings.name}")
            self._own.append(own)
            return own
        if len(self._shared) < self._limit:
            self._shared.append(LoopThread(f"outlets-{len(self._shared)}"))
            return self._shared[-1]
        self._assigned += 1
        return self._shared[self._assigned % self._limit]

    def close(self, timeout_seconds: float) -> None:
        """Stop all loops; those that hang are left."""
        for thread in (*self._shared, *self._own):
            thread.close(timeout_seconds)

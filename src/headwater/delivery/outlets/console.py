"""The `console` outlet: a line of JSON per event on standard output, to read or to pipe."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, TextIO

from headwater.delivery.keys import Key
from headwater.delivery.outlets.base import DELIVERED, Batch, Outlet, Results
from headwater.errors import OutletUnavailable
from headwater.events import Event
from headwater.settings import OutletSettings


class ConsoleOutlet(Outlet):
    """Prints events. Delivered means handed to the operating system, no more."""

    shares_loop = True

    def __init__(self, options: Any, settings: OutletSettings, *, stream: TextIO | None = None) -> None:
        super().__init__(options, settings)
        self._stream = stream or sys.stdout
        self._lock = asyncio.Lock()  # sessions share the stream

    async def send(self, batch: Batch) -> Results:
        text = "".join(piece.decode("utf-8", "replace") + "\n" for piece in batch.pieces)
        try:
            async with self._lock:
                # in a thread: the reader of the pipe may be slow
                await asyncio.to_thread(self._write, text)
        except (OSError, ValueError) as error:  # a closed stream raises ValueError
            raise OutletUnavailable(f"standard output cannot be written: {error}.") from error
        return [DELIVERED] * len(batch.events)

    def prepare(self, event: Event, key: Key) -> bytes:
        return event.body.replace(b"\n", b" ")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

"""The asyncio event loop: uvloop if it is installed."""

from __future__ import annotations

import asyncio
from types import ModuleType

# Imported here, not in the thread that needs a loop: it registers an exit handler, which Python refuses once
# the process is exiting, and a spool may start its threads until then.
try:
    import uvloop
except ImportError:
    _library: ModuleType = asyncio
else:
    _library = uvloop


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop. uvloop halves the CPU time of a small request."""
    loop: asyncio.AbstractEventLoop = _library.new_event_loop()
    return loop

"""The loop that an engine runs on where it has a thread of its own."""

from __future__ import annotations

import asyncio

__all__ = ["new_loop"]


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed: it halves what a request costs besides its bytes."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop

"""What the last cycle of the pipeline could not load, and why, for `headwater status`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headwater.log.disk import replace

__all__ = ["LastCycle"]

NAME = "last-cycle.json"


class LastCycle(msgspec.Struct, kw_only=True):
    """The end of a cycle that had something to do, or failed. `at` is seconds since the epoch."""

    at: float
    seconds: float
    files: int = 0
    done: int = 0
    errors: list[str] = []

    def save(self, events_dir: Path) -> None:
        """Keep it, wholly or not at all."""
        replace(events_dir / NAME, msgspec.json.encode(self))

    @classmethod
    def load(cls, events_dir: Path) -> LastCycle | None:
        """The last one; None if there was none, or if it cannot be read: it is only told, never acted on."""
        try:
            return msgspec.json.decode((events_dir / NAME).read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError):
            return None

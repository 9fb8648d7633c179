"""How many rejects each stage has, and how many are gone: kept beside the rejects, in the same transactions.

An event that the gateway refused was never acknowledged: its sender has the answer. All others were. So the
two kinds have limits of their own, and one never displaces the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import apsw
import msgspec

from headwater.log.queue.sqlite import typed_rows

GATEWAY = "gateway"  # the stage whose rejects were never acknowledged

DESTINATION_PREFIX = "destination:"  # of a stage whose rejects are in files

Reason = Literal["age", "bytes", "hand", "damage"]
LIMITS: tuple[Reason, ...] = ("age", "bytes", "damage")  # by which rejects go without a command


def is_acknowledged(stage: str) -> bool:
    """Whether the events of the stage's rejects were answered with 200."""
    return stage != GATEWAY


class Stored(msgspec.Struct):
    """The rejects of one stage."""

    rejects: int = 0
    bytes: int = 0


class Dropped(msgspec.Struct):
    """Rejects of one stage that are gone for one reason, and when the last of them went."""

    stage: str
    reason: Reason
    events: int
    at: float


class Settlement(NamedTuple):
    """Rejects of a stage that are none any more: they were delivered, or dropped by a limit."""

    id: int
    fate: str
    events: int


class Totals:
    """The figures in memory; `load` reads them, a few rows, whatever the number of rejects."""

    def __init__(self) -> None:
        self.stored: dict[str, Stored] = {}
        self.dropped: dict[tuple[str, str], Dropped] = {}

    def copy(self) -> Totals:
        copied = Totals()
        copied.stored = {stage: msgspec.structs.replace(each) for stage, each in self.stored.items()}
        copied.dropped = {key: msgspec.structs.replace(each) for key, each in self.dropped.items()}
        return copied

    def load(self, connection: apsw.Connection) -> None:
        rows = typed_rows(connection, "SELECT stage, rejects, bytes FROM totals", (), str, int, int)
        self.stored = {stage: Stored(count, size) for stage, count, size in rows}
        sql = "SELECT stage, reason, events, at FROM dropped"
        gone = [Dropped(*row) for row in typed_rows(connection, sql, (), str, str, int, float)]
        self.dropped = {(each.stage, each.reason): each for each in gone}

    def store(self, connection: apsw.Connection, before: Totals) -> None:
        """Write what differs from `before`, within the transaction that caused it."""
        for stage, each in self.stored.items():
            if before.stored.get(stage) != each:
                connection.execute(
                    "INSERT OR REPLACE INTO totals(stage, rejects, bytes) VALUES (?, ?, ?)",
                    (stage, each.rejects, each.bytes),
                )
        for key, gone in self.dropped.items():
            if before.dropped.get(key) != gone:
                connection.execute(
                    "INSERT OR REPLACE INTO dropped(stage, reason, events, at) VALUES (?, ?, ?, ?)",
                    (gone.stage, gone.reason, gone.events, gone.at),
                )

    def add(self, stage: str, rejects: int, size: int) -> None:
        stored = self.stored.setdefault(stage, Stored())
        stored.rejects += rejects
        stored.bytes += size

    def drop(self, stage: str, reason: Reason, events: int, at: float) -> None:
        gone = self.dropped.setdefault((stage, reason), Dropped(stage, reason, 0, at))
        gone.events += events
        gone.at = at

    def add_dropped(self, earlier: Totals, *, is_included: bool) -> None:
        """Take over what was dropped from an earlier file, unless the figures begin with some of it."""
        for key, gone in earlier.dropped.items():
            own = self.dropped.setdefault(key, Dropped(gone.stage, gone.reason, 0, gone.at))
            own.events = max(own.events, gone.events) if is_included else own.events + gone.events
            own.at = max(own.at, gone.at)

    def bytes(self, *, acknowledged: bool) -> int:
        return sum(
            each.bytes for stage, each in self.stored.items() if is_acknowledged(stage) == acknowledged
        )

    def counts(self) -> dict[str, int]:
        """Open rejects by stage."""
        return {stage: each.rejects for stage, each in sorted(self.stored.items()) if each.rejects}

    def losses(self) -> Iterable[Dropped]:
        """What was dropped without a command, of events that were acknowledged."""
        return [
            gone
            for gone in list(self.dropped.values())
            if gone.events and gone.reason in LIMITS and is_acknowledged(gone.stage)
        ]

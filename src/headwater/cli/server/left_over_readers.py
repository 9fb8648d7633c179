"""Cursors of outlets that are not configured any more: the log keeps their unread events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headwater.settings import Settings

# The value of `headwater.graph.ingest.follower.READER`; that module is imported only with the graph.
GRAPH_READER = "headwater:graph"


def left_over_readers(readers: Iterable[str], settings: Settings) -> Iterator[str]:
    """Yield a warning for each reader of the log that no outlet has the name of."""
    known = {GRAPH_READER, *(outlet.name for outlet in settings.outlets)}
    for name in sorted(set(readers) - known):
        yield (
            f"The reader {name} has a cursor in the log, but no outlet has its name: its unread events are "
            f"kept until the retention limits. Stop the server and run `headwater log forget {name}`, or "
            "configure the outlet again."
        )

"""A user's decision that two names are not one dataset, written beside the process that ingests events.

It holds against every link of every producer, also of later events, until the user takes it back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from headwater.errors import LogUnavailable
from headwater.graph.store.aliases import regroup
from headwater.graph.store.database import open_reader
from headwater.log.queue.sqlite import classify


def separate(folder: Path, kept: int, apart: int) -> None:
    """Separate the name `apart`, with the links that do not lead to `kept`, from the name `kept`."""
    with _writing(folder) as connection:
        at = time.time_ns() // 1000
        connection.execute("INSERT OR IGNORE INTO separations VALUES (?, ?, ?)", (kept, apart, at))
        regroup(connection, {kept, apart})


def reunite(folder: Path, one: int, other: int) -> bool:
    """Let links of these names count again; False if they were not separated."""
    with _writing(folder) as connection:
        connection.execute(
            "DELETE FROM separations WHERE (kept, apart) IN (VALUES (?1, ?2), (?2, ?1))", (one, other)
        )
        was_separated = connection.changes() > 0
        regroup(connection, {one, other})
        return was_separated


@contextmanager
def _writing(folder: Path) -> Iterator[apsw.Connection]:
    """A transaction beside the one writer of events; durable when it ends."""
    connection = open_reader(folder)  # of which none ever checkpoints, also not when it writes
    try:
        connection.pragma("query_only", 0)
        connection.pragma("synchronous", "FULL")
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")
    except apsw.BusyError as error:
        raise LogUnavailable("The graph is busy; nothing was changed.", hint="Try it again.") from error
    except apsw.Error as error:
        raise classify(error, folder) from error
    finally:
        connection.close()  # rolls back what is not committed

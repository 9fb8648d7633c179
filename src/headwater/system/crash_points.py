"""Named places where a crash test kills the process.

A crash test starts Headwater with `HEADWATER_CRASH_POINT=<name>[:<n>]`; the n-th time that it
reaches the place, the process sends itself SIGKILL. Without the variable a place costs one comparison.
"""

from __future__ import annotations

import os
import signal

CRASH_POINTS = (
    "writer.before_insert",
    "writer.before_commit",
    "writer.after_commit",
    "rotation.before_close",
    "rotation.after_close",
    "rotation.after_create",
    "collection.before_index",
    "collection.after_index",
    "collection.after_unlink",
    "cursor.before_commit",
    "cursor.after_commit",
    "reader.after_read",
    "reader.before_send",
    "reader.after_send",
    "rejects.after_insert",
    "load.before_commit",
    "load.after_commit",
    "incoming.before_write",
    "incoming.after_write",
    "incoming.after_sync",
    "incoming.before_rotate",
    "incoming.after_rotate",
    "archive.after_copy",
    "archive.after_unlink",
    "backup.after_file",
    "restore.after_file",
    "failed.after_write",
    "failed.after_selection",
    "failed.after_removal",
    "failed.after_rename",
    "failed.after_unwrap",
    "failed.after_count",
    "failed.after_cut",
    "pipeline.before_load",
    "pipeline.after_load",
    "pipeline.after_split",
    "pipeline.after_status",
    "pipeline.after_archive",
    "stream.after_plan",
    "stream.after_split",
    "stream.before_commit",
    "stream.after_commit",
    "stream.after_archive",
    "foreach_batch.after_cut",
    "foreach_batch.loaded",
    "graph.before_commit",
    "graph.after_commit",
)

_armed, _, _count = os.environ.get("HEADWATER_CRASH_POINT", "").partition(":")
_remaining = int(_count or 1)

if _armed and _armed not in CRASH_POINTS:
    raise ValueError(f"HEADWATER_CRASH_POINT={_armed} is not one of {', '.join(CRASH_POINTS)}")


def is_armed(name: str) -> bool:
    """Whether a test asked for this place."""
    return name == _armed


def crash_point(name: str) -> None:
    """Kill this process with SIGKILL here, if a test asked for it."""
    global _remaining
    if name != _armed:
        return
    _remaining -= 1
    if _remaining <= 0:
        os.kill(os.getpid(), signal.SIGKILL)

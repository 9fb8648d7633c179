"""The limits of a destination's rejects: the oldest go, and their number is kept beside the file (G3)."""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path

import msgspec

from headwater.formats.json_decoder import json_decoder
from headwater.log.checked_json import checked, with_checksum
from headwater.log.rejects.destination_counts import HEAD_BYTES, RejectCount
from headwater.log.rejects.totals import Dropped, Reason
from headwater.system.crash_points import crash_point
from headwater.system.durable_files import replace, replacing

logger = logging.getLogger(__name__)

LEFT = 0.85  # of the limit of bytes: the file is written again, so not for each reject
AGE_PIECES = 48  # of the limit of age: rejects are removed when they are late by one, for the same reason


class _Cut(msgspec.Struct):
    """Bytes at the front of a file that are counted as dropped, and are to be removed."""

    inode: int
    head: str
    bytes: int


class _State(msgspec.Struct):
    dropped: list[Dropped] = []
    cut: _Cut | None = None


_DECODER = json_decoder(_State)


def dropped_path(path: Path) -> Path:
    """The file with the number of dropped rejects, beside that of the rejects."""
    return path.with_suffix(".dropped")


def dropped_rejects(path: Path) -> list[Dropped]:
    """What the limits have taken from a file of rejects, by reason."""
    return _load(path).dropped


def drop_beyond(
    path: Path, count: RejectCount, stage: str, *, most_bytes: int, age_seconds: float, now: float
) -> None:
    """Remove the oldest rejects beyond the limits; each is counted once, whatever crashes.

    The caller holds the lock of the files.
    """
    finish_cut(path)
    if not count.look():
        return
    by_age = by_bytes = 0
    oldest = now - age_seconds
    if count.first_at()[1] < oldest - age_seconds / AGE_PIECES:
        by_age, _ = count.first_at(oldest)
    if count.bytes > most_bytes:
        by_bytes, _ = count.first_at(-1.0, until=count.bytes - int(most_bytes * LEFT))
    if not (cut := max(by_age, by_bytes)):
        return
    state = _load(path)
    aged = count.before(by_age)
    _add(state, stage, "age", aged)
    _add(state, stage, "bytes", count.before(cut) - aged)
    state.cut = _Cut(path.stat().st_ino, _head(path), cut)
    _save(path, state)
    crash_point("failed.after_count")
    finish_cut(path)
    count.forget_first(cut)


def finish_cut(path: Path) -> None:
    """Remove what is counted as dropped, if a crash came before that."""
    state = _load(path)
    if state.cut is None:
        return
    is_same = path.exists() and path.stat().st_ino == state.cut.inode
    if is_same and _head(path).startswith(state.cut.head):
        with path.open("rb") as source, replacing(path) as file:
            source.seek(state.cut.bytes)
            shutil.copyfileobj(source, file)
        crash_point("failed.after_cut")
    state.cut = None
    _save(path, state)


def _add(state: _State, stage: str, reason: Reason, events: int) -> None:
    if events:
        found = next((each for each in state.dropped if each.reason == reason), None)
        if found is None:
            found = Dropped(stage, reason, 0, 0.0)
            state.dropped.append(found)
        found.events += events
        found.at = time.time()


def _head(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES).hex()


def _load(path: Path) -> _State:
    try:
        return _DECODER.decode(checked(dropped_path(path).read_bytes()))
    except FileNotFoundError:
        return _State()
    except msgspec.DecodeError as error:
        logger.error("%s is damaged (%s); how many rejects were dropped is not known.", path.name, error)
        return _State()


def _save(path: Path, state: _State) -> None:
    replace(dropped_path(path), with_checksum(msgspec.json.encode(state)))

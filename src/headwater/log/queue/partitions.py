"""The partition files of one log as an ordered set: the newest is written, the others are read."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import apsw

from headwater.clock import Clock
from headwater.crash_points import crash_point
from headwater.log.queue import partition_file, recovery, sqlite
from headwater.log.queue.partition_file import PAGE_BYTES, Extent, PartitionWriter, disk_bytes, partition_path
from headwater.settings import LogSettings

__all__ = ["HOUR_SECONDS", "Shelf"]

HOUR_SECONDS = 3600.0
# The bytes of a commit beside its content: the root, a part of the last page, frame headers.
SPARE_BYTES = 3 * PAGE_BYTES


class Shelf:
    """Begins, closes, repairs and removes partitions.

    Changed by the writer's thread alone. `extents` is a tuple that is replaced, never changed, so that
    everybody else may read it at any time; only the last extent grows.
    """

    def __init__(
        self,
        folder: Path,
        extents: list[Extent],
        settings: LogSettings,
        *,
        clock: Clock,
        vfs: str | None,
    ) -> None:
        self.extents = tuple(extents)
        self._folder = folder
        self._settings = settings
        self._clock = clock
        self._vfs = vfs
        self._current: PartitionWriter | None = None
        self._opened_at = 0.0
        self._unseen_bytes = 0
        # Never written again: what came after an I/O error is not known to be on disk, and a later success
        # would not put it there. A WAL that is left over may tell of such an error in the process before.
        self._sealed = {extent.path for extent in extents if not partition_file.is_whole(extent.path)}

    # --- for everybody -------------------------------------------------------------------------------

    def at(self, position: int) -> Extent | None:
        """The partition that holds the position, or the next one that holds any."""
        extents = self.extents
        i = bisect_right(extents, position, key=lambda extent: extent.end)
        return extents[i] if i < len(extents) else None

    def is_gone(self, extent: Extent) -> bool:
        return all(each is not extent for each in self.extents)

    def is_closed(self, extent: Extent) -> bool:
        """Whether nobody will write to it again. The last one may be gone on with, even after a restart."""
        extents = self.extents
        return bool(extents) and extent is not extents[-1]

    # --- for the writer's thread ---------------------------------------------------------------------

    @property
    def closed(self) -> tuple[Extent, ...]:
        """The partitions that may be removed: all but the one that is being written."""
        return self.extents if self._current is None else self.extents[:-1]

    def is_due(self, coming_bytes: int) -> bool:
        """Whether the current partition is too full or too old for so many bytes more."""
        return self._current is not None and self._is_full(self.extents[-1], coming_bytes)

    def insert(self, first: int, count: int, received_at: float, packed: bytes) -> None:
        """Durable when it returns (G1)."""
        current = self._current or self._begin(first, len(packed))
        current.insert(first, count, received_at, packed)
        # What a commit adds at most: its pages in the WAL, and the same again when they are folded into the
        # file. While even that fits into the partition, the disk is not asked for the size.
        self._unseen_bytes += 2 * (len(packed) + SPARE_BYTES)
        crash_point("writer.after_commit")
        extent = self.extents[-1]
        extent.first_at = extent.first_at or received_at
        extent.last_at = received_at
        extent.end = first + count

    def failed(self, error: Exception) -> None:
        """An insert failed. Unless the disk was merely full, its partition is never written again."""
        if self._current is not None and not isinstance(error, apsw.FullError):
            self._let_go()

    def close_current(self) -> None:
        if self._current is not None:
            crash_point("rotation.before_close")
            current, self._current = self._current, None
            current.close()
            self.extents[-1].bytes = disk_bytes(self.extents[-1].path)
            crash_point("rotation.after_close")

    def close_if_old(self) -> None:
        """Close the current partition when its time is over, though nothing more comes."""
        if self._current is not None and self.extents[-1].end > self.extents[-1].first and self._is_old():
            self.close_current()

    def remove(self, extent: Extent) -> None:
        self.extents = tuple(each for each in self.extents if each is not extent)
        partition_file.remove(extent.path)

    def repair(self, extent: Extent, error: Exception) -> None:
        """Set a damaged partition aside and keep what can still be read of it (G9)."""
        if self.is_gone(extent):
            return
        if self._current is not None and extent is self.extents[-1]:
            self._let_go()
        kept = recovery.repair(extent.path, error, vfs=self._vfs)
        self._sealed.discard(extent.path)
        if kept is not None:
            kept.end = min(kept.end, extent.end)
        self.extents = tuple(
            each for each in (kept if each is extent else each for each in self.extents) if each is not None
        )

    # --- inside --------------------------------------------------------------------------------------

    def _begin(self, first: int, coming_bytes: int) -> PartitionWriter:
        last = self.extents[-1] if self.extents else None
        if (
            last is not None
            and last.first < last.end == first
            and last.path not in self._sealed
            and not self._is_full(last, coming_bytes)
            and (current := self._reopen(last)) is not None
        ):
            return current
        return self._create(first)

    def _create(self, first: int) -> PartitionWriter:
        path = partition_path(self._folder, first)
        # A file of this name holds no event that was ever acknowledged: a process died while creating it, or
        # its first commit failed. A new file, since the old one may be in an unknown state.
        partition_file.remove(path)
        self._current = PartitionWriter(path, vfs=self._vfs, limit_bytes=self._settings.partition_bytes)
        self._sealed.discard(path)
        self._opened_at = self._clock.monotonic()
        self._unseen_bytes = SPARE_BYTES
        kept = tuple(each for each in self.extents if each.path != path)
        self.extents = (*kept, Extent(path, first, first, 0.0, 0.0, 0))
        crash_point("rotation.after_create")
        return self._current

    def _reopen(self, extent: Extent) -> PartitionWriter | None:
        """Go on with the last partition, as after a restart, unless it turns out to be damaged."""
        try:
            current = PartitionWriter(extent.path, vfs=self._vfs, limit_bytes=self._settings.partition_bytes)
        except (apsw.Error, ValueError) as error:
            if not sqlite.is_damage(error):
                raise
            self.repair(extent, error)
            return None
        self._current = current
        self._unseen_bytes = 0
        self._opened_at = self._clock.monotonic() - self._age(extent)
        return current

    def _let_go(self) -> None:
        assert self._current is not None
        self._sealed.add(self._current.path)
        current, self._current = self._current, None
        current.abandon()
        self.extents[-1].bytes = disk_bytes(self.extents[-1].path)

    def _is_full(self, extent: Extent, coming_bytes: int) -> bool:
        if extent.end == extent.first:
            return False
        if extent.bytes + self._unseen_bytes + coming_bytes > self._settings.partition_bytes:
            extent.bytes = disk_bytes(extent.path)
            self._unseen_bytes = 0
        if extent.bytes + coming_bytes > self._settings.partition_bytes:
            return True
        if self._current is not None:
            return self._is_old()
        return self._age(extent) >= self._settings.partition_hours * HOUR_SECONDS

    def _is_old(self) -> bool:
        return self._clock.monotonic() - self._opened_at >= self._settings.partition_hours * HOUR_SECONDS

    def _age(self, extent: Extent) -> float:
        return max(0.0, self._clock.now() - extent.first_at)

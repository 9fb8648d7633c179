"""The partition files of one log as an ordered set: the newest is written, the others are read."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import apsw

from headwater.clock import Clock
from headwater.log.queue import partition_file, recovery, sqlite
from headwater.log.queue.partition_file import (
    PAGE_BYTES,
    PartitionRange,
    PartitionReader,
    PartitionWriter,
    disk_bytes,
    partition_path,
)
from headwater.settings import LogSettings
from headwater.system.crash_points import crash_point

HOUR_SECONDS = 3600.0
MAX_HOURS = 1.0  # of a partition that is written: retention removes whole partitions
# The bytes of a commit beside its content: the root, a part of the last page, frame headers.
SPARE_BYTES = 3 * PAGE_BYTES


class Partitions:
    """Begins, closes, repairs and removes partitions.

    Changed by the writer's thread alone. `ranges` is a tuple that is replaced, never changed, so that
    other threads may read it at any time; only the last partition grows.
    """

    def __init__(
        self,
        folder: Path,
        ranges: list[PartitionRange],
        settings: LogSettings,
        *,
        clock: Clock,
        vfs: str | None,
    ) -> None:
        self.ranges = tuple(ranges)
        self._folder = folder
        self._settings = settings
        self._max_age_seconds = min(MAX_HOURS, settings.retention_hours) * HOUR_SECONDS
        self._clock = clock
        self._vfs = vfs
        self._current: PartitionWriter | None = None
        self._opened_at = 0.0
        self._bytes_since_measured = 0
        # Never written again: what came after an I/O error is not known to be on disk, and a later success
        # would not put it there. A WAL that is left over may come from such an error in an earlier process.
        self._read_only = {
            partition.path for partition in ranges if not partition_file.is_whole(partition.path)
        }

    # --- for every thread -------------------------------------------------------------------------------

    def at(self, position: int) -> PartitionRange | None:
        """The partition that holds the position, or else the next one."""
        ranges = self.ranges
        i = bisect_right(ranges, position, key=lambda partition: partition.end)
        return ranges[i] if i < len(ranges) else None

    def open(self, partition: PartitionRange) -> PartitionReader:
        """A reader of the partition's file."""
        return PartitionReader(partition.path, closed=self.is_closed(partition), vfs=self._vfs)

    def is_gone(self, partition: PartitionRange) -> bool:
        return all(each is not partition for each in self.ranges)

    def is_closed(self, partition: PartitionRange) -> bool:
        """Whether it is never written again. The last partition may be continued, even after a restart."""
        ranges = self.ranges
        return bool(ranges) and partition is not ranges[-1]

    # --- for the writer's thread ---------------------------------------------------------------------

    @property
    def closed(self) -> tuple[PartitionRange, ...]:
        """The partitions that may be removed: all but the one that is being written."""
        return self.ranges if self._current is None else self.ranges[:-1]

    def is_due(self, coming_bytes: int) -> bool:
        """Whether the current partition is too old, or too full for this many more bytes."""
        return self._current is not None and self._is_full(self.ranges[-1], coming_bytes)

    def insert(self, first: int, count: int, received_at: float, packed: bytes) -> None:
        """Durable when it returns (G1)."""
        current = self._current or self._begin(first, len(packed))
        current.insert(first, count, received_at, packed)
        # What a commit adds at most: its pages in the WAL, and the same again when they are folded into the
        # file. While even that fits into the partition, the disk is not asked for the size.
        self._bytes_since_measured += 2 * (len(packed) + SPARE_BYTES)
        crash_point("writer.after_commit")
        partition = self.ranges[-1]
        partition.first_at = partition.first_at or received_at
        partition.last_at = received_at
        partition.end = first + count

    def failed(self, error: Exception) -> None:
        """Note a failed insert. Unless the disk was merely full, its partition is never written again."""
        if self._current is not None and not isinstance(error, apsw.FullError):
            self._abandon_current()

    def measure(self) -> None:
        """Bring the size of the current partition up to date."""
        if self._current is not None:
            self.ranges[-1].bytes = disk_bytes(self.ranges[-1].path)
            self._bytes_since_measured = 0

    def close_current(self) -> None:
        if self._current is not None:
            crash_point("rotation.before_close")
            current, self._current = self._current, None
            current.close()
            self.ranges[-1].bytes = disk_bytes(self.ranges[-1].path)
            crash_point("rotation.after_close")

    def close_if_old(self) -> None:
        """Close the current partition when it is too old, even if no event arrives."""
        if self._current is not None and self.ranges[-1].end > self.ranges[-1].first and self._is_old():
            self.close_current()

    def remove(self, partition: PartitionRange) -> None:
        self.ranges = tuple(each for each in self.ranges if each is not partition)
        sqlite.remove_database(partition.path)

    def repair(self, partition: PartitionRange, error: Exception) -> None:
        """Set a damaged partition aside and keep what can still be read of it (G9)."""
        if self.is_gone(partition):
            return
        if self._current is not None and partition is self.ranges[-1]:
            self._abandon_current()
        kept = recovery.repair(partition.path, error, vfs=self._vfs)
        self._read_only.discard(partition.path)
        if kept is not None:
            kept.end = min(kept.end, partition.end)
        self.ranges = tuple(
            each for each in (kept if each is partition else each for each in self.ranges) if each is not None
        )

    def restore_removed(self) -> None:
        """Notice partitions whose files were removed or replaced.

        What the writer still has open is written again; of others the events are lost, which is damage.
        """
        for partition in self.ranges:
            if self._current is not None and partition is self.ranges[-1]:
                if not self._current.is_in_place():
                    self._restore_current()
            elif not partition.path.exists():
                self.repair(partition, FileNotFoundError("it was removed"))

    # --- inside --------------------------------------------------------------------------------------

    def _begin(self, first: int, coming_bytes: int) -> PartitionWriter:
        last = self.ranges[-1] if self.ranges else None
        if (
            last is not None
            and last.first < last.end == first
            and last.path not in self._read_only
            and not self._is_full(last, coming_bytes)
            and (current := self._reopen(last)) is not None
        ):
            return current
        return self._create(first)

    def _create(self, first: int) -> PartitionWriter:
        path = partition_path(self._folder, first)
        # A file of this name holds no event that was ever acknowledged: a process died while creating it, or
        # its first commit failed. A new file, since the old one may be in an unknown state.
        sqlite.remove_database(path)
        self._current = PartitionWriter(path, vfs=self._vfs, limit_bytes=self._settings.partition_bytes)
        self._read_only.discard(path)
        self._opened_at = self._clock.monotonic()
        self._bytes_since_measured = SPARE_BYTES
        kept = tuple(each for each in self.ranges if each.path != path)
        self.ranges = (*kept, PartitionRange(path, first, first, 0.0, 0.0, 0))
        crash_point("rotation.after_create")
        return self._current

    def _reopen(self, partition: PartitionRange) -> PartitionWriter | None:
        """Continue the last partition, as after a restart, unless it is found to be damaged."""
        try:
            current = PartitionWriter(
                partition.path, vfs=self._vfs, limit_bytes=self._settings.partition_bytes
            )
        except (apsw.Error, ValueError) as error:
            if not sqlite.is_damage(error):
                raise
            self.repair(partition, error)
            return None
        self._current = current
        self._bytes_since_measured = 0
        self._opened_at = self._clock.monotonic() - self._age(partition)
        return current

    def _restore_current(self) -> None:
        assert self._current is not None
        current, partition = self._current, self.ranges[-1]
        try:
            restored = recovery.restore(partition.path, current.commits(), vfs=self._vfs)
        finally:
            self._abandon_current()
        self._read_only.discard(partition.path)
        restored.end = min(restored.end, partition.end)
        self.ranges = (*self.ranges[:-1], restored)

    def _abandon_current(self) -> None:
        assert self._current is not None
        self._read_only.add(self._current.path)
        current, self._current = self._current, None
        current.abandon()
        self.ranges[-1].bytes = disk_bytes(self.ranges[-1].path)

    def _is_full(self, partition: PartitionRange, coming_bytes: int) -> bool:
        if partition.end == partition.first:
            return False
        if partition.bytes + self._bytes_since_measured + coming_bytes > self._settings.partition_bytes:
            partition.bytes = disk_bytes(partition.path)
            self._bytes_since_measured = 0
        if partition.bytes + coming_bytes > self._settings.partition_bytes:
            return True
        if self._current is not None:
            return self._is_old()
        return self._age(partition) >= self._max_age_seconds

    def _is_old(self) -> bool:
        return self._clock.monotonic() - self._opened_at >= self._max_age_seconds

    def _age(self, partition: PartitionRange) -> float:
        return max(0.0, self._clock.now() - partition.first_at)

"""What is done to plain files that must not be lost: an argument, so that a test can fill the disk."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.log.sqlite import sync_folder

__all__ = ["Disk", "replace"]


class Disk:
    """The machine's own. Every method raises OSError, as the kernel tells it."""

    def write(self, fd: int, data: bytes) -> None:
        """All of it, at the end of the file."""
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def sync(self, fd: int) -> None:
        """Return when it would survive a power cut."""
        os.fsync(fd)

    def cut(self, fd: int, size: int) -> None:
        """Forget everything beyond `size`."""
        os.ftruncate(fd, size)


def replace(path: Path, data: bytes, disk: Disk | None = None) -> None:
    """Give the file this content, wholly or not at all: a crash leaves the old one or the new one."""
    disk = disk or Disk()
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        try:
            disk.write(fd, data)
            disk.sync(fd)
        finally:
            os.close(fd)
        draft.rename(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)

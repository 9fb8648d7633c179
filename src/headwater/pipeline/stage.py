"""Staging: files on their way to a destination, in a folder that goes when they have arrived."""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Staging", "write_rows", "write_small"]

# Dictionaries are built per column only to be thrown away for most of ours: without them writing a million
# events of 45 columns takes 6-10 CPU seconds instead of 25-30, and DuckDB loads the files as fast.
PARQUET = {"parquet.enable.dictionary": "false", "compression": "snappy"}


class Staging:
    """A folder of this process's own below the settings' one. What a process that died left is removed."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        _remove_left_overs(root)
        self.path = root / f"cycle-{uuid.uuid4().hex}"
        self.path.mkdir()
        self._fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A new folder, removed at the end of the block."""
        path = self.path / uuid.uuid4().hex
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._fd)

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_rows(rows: DataFrame, folder: Path) -> list[str]:
    """Write rows as Parquet; the files in the order of their rows."""
    target = folder / "rows"
    rows.write.options(**PARQUET).parquet(str(target))
    return sorted(str(path) for path in target.glob("part-*.parquet"))


def write_small(rows: DataFrame, folder: Path) -> Any:
    """Write a few rows as one Parquet file, `rows.parquet`, by the driver; the rows as an Arrow table.

    Spark's own writer takes a tenth of a second for a single row: a committer, and a task with a codec.
    """
    import pyarrow.parquet as pq

    table = rows.toArrow()
    pq.write_table(table, folder / "rows.parquet", use_dictionary=False, compression="snappy")
    return table


def _remove_left_overs(root: Path) -> None:
    for path in root.glob("cycle-*"):
        try:
            fd = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # just being made, or just gone
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue  # its process lives
        else:
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(fd)

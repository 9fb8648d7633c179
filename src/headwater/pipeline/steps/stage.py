"""Staging: files on their way to a destination, in a folder that goes when they have arrived.

What the driver writes is on its own disk. What executors write is there too, which is right where they share
that disk or a mount of it; or it is on an object store (`pipeline.staging_url`), which is all that a cluster
then needs to have in common.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.durable_files import try_lock
from headwater.pipeline.spark.storage import ObjectFolder, store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Shared", "Staging", "write_rows", "write_small"]

Shared = Path | ObjectFolder
"""A folder that the executors see."""

# Dictionaries are built per column only to be thrown away for most of ours: without them writing a million
# events of 45 columns takes 6-10 CPU seconds instead of 25-30, and DuckDB loads the files as fast. What
# else is left out is for readers that skip, search or distrust: sizes, checksums, the extremes of texts.
PARQUET = {
    "parquet.enable.dictionary": "false",
    "parquet.size.statistics.enabled": "false",
    "parquet.page.write-checksum.enabled": "false",
    "compression": "snappy",
}


class Staging:
    """A folder of this process's own below the settings' one. What a process that died left is removed."""

    def __init__(self, root: Path, url: str = "") -> None:
        root.mkdir(parents=True, exist_ok=True)
        store = ObjectFolder(url) if url else None
        _remove_left_overs(root, store)
        if store is not None:
            store.check()
        self.path = root / f"cycle-{uuid.uuid4().hex}"
        self.path.mkdir()
        self._fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try_lock(self._fd)
        self._objects = store / self.path.name if store is not None else None
        self._shared: set[str] = set()
        self._uploaded: dict[Path, ObjectFolder] = {}

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A new folder of the driver, removed at the end of the block."""
        path = self.path / uuid.uuid4().hex
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            if self._objects is not None and path.name in self._shared:
                (self._objects / path.name).remove()

    def shared(self, folder: Path) -> Shared:
        """The place of a folder that the executors see too; removed together with it."""
        if self._objects is None:
            return folder
        self._shared.add(folder.name)
        return self._objects / folder.name

    def uploaded(self, paths: Sequence[Path]) -> list[ObjectFolder]:
        """Copies of the driver's files on the object store; none where there is no store.

        Copied once, and kept until others are asked for: a cycle takes one group of files after the other.
        """
        if self._objects is None:
            return []
        for path in self._uploaded.keys() - set(paths):
            self._uploaded.pop(path).remove()
        for path in paths:
            if path not in self._uploaded:
                copy = self._objects / uuid.uuid4().hex
                copy.upload(path)
                self._uploaded[path] = copy
        return [self._uploaded[path] for path in paths]

    def close(self) -> None:
        if self._objects is not None:
            self._objects.remove()
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._fd)

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_rows(rows: DataFrame, folder: Path, shared: Shared | None = None) -> list[str]:
    """Have the executors write rows as Parquet; the files, on the driver's disk, in the order of the rows."""
    if isinstance(shared, ObjectFolder):
        return shared.download(store(rows, shared), folder)
    target = folder / "rows"
    rows.write.options(**PARQUET, **_without_extremes(rows)).parquet(str(target))
    return sorted(str(path) for path in target.glob("part-*.parquet"))


def _without_extremes(rows: DataFrame) -> dict[str, str]:
    """Options by which only numbers have their least and greatest value told; destinations look at those."""
    texts = (field.name for field in rows.schema if field.dataType.simpleString() == "string")
    return {f"parquet.column.statistics.enabled#{name}": "false" for name in texts}


def write_small(rows: DataFrame, folder: Path) -> Any:
    """Write a few rows as one Parquet file, `rows.parquet`, by the driver; the rows as an Arrow table.

    Spark's own writer takes a tenth of a second for a single row: a committer, and a task with a codec.
    """
    import pyarrow.parquet as pq

    table = rows.toArrow()
    pq.write_table(table, folder / "rows.parquet", use_dictionary=False, compression="snappy")
    return table


def _remove_left_overs(root: Path, store: ObjectFolder | None) -> None:
    for path in root.glob("cycle-*"):
        try:
            fd = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # just being made, or just gone
        try:
            if try_lock(fd):  # its process is dead
                if store is not None:
                    (store / path.name).remove()
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(fd)

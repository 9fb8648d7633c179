"""Staging: files on their way to a destination, in a folder that goes when they have loaded_ranges.

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
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from headwater.destinations.table import UNMAPPED
from headwater.durable_files import try_lock
from headwater.pipeline.spark.storage import ObjectFolder, write_objects

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

ExecutorFolder = Path | ObjectFolder
"""A folder that the executors see."""

# For most columns Spark builds a dictionary and discards it: without dictionaries writing a million events of
# 45 columns takes 6-10 CPU seconds instead of 25-30, and DuckDB loads the files as fast. Sizes, checksums and
# the extremes of texts are omitted because no destination reads them.
PARQUET = {
    "parquet.enable.dictionary": "false",
    "parquet.size.statistics.enabled": "false",
    "parquet.page.write-checksum.enabled": "false",
    "compression": "snappy",
}


class Staging:
    """The staging folder of this process; folders of processes that died are removed."""

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

    def executor_folder(self, folder: Path) -> ExecutorFolder:
        """The counterpart of a folder that executors can write to; removed together with it."""
        if self._objects is None:
            return folder
        self._shared.add(folder.name)
        return self._objects / folder.name

    def uploaded(self, paths: Sequence[Path]) -> list[ObjectFolder]:
        """Copies of the driver's files on the object store; none where there is no store.

        Copied once, and kept until other files are requested: a cycle loads one group of files at a time.
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


class StagedRows(NamedTuple):
    """Parquet files of rows, in the order of the rows, and the number of values in `_unmapped_data`."""

    files: list[str]
    unmapped: int


class Stager(Protocol):
    """Writes the rows of a batch as Parquet."""

    def stage(self, rows: DataFrame, folder: Path) -> dict[int, StagedRows]:
        """The staged rows of each part of the batch that has rows; a batch of one origin is part 0."""


class DriverStager:
    """Few rows: the driver writes them.

    Spark's own writer takes a tenth of a second for a single row: a committer, and a task with a codec.
    """

    def stage(self, rows: DataFrame, folder: Path) -> dict[int, StagedRows]:
        return {0: write_table(rows.toArrow(), folder / "rows.parquet")}


class SparkStager:
    """Many rows: the executors write them."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging

    def stage(self, rows: DataFrame, folder: Path) -> dict[int, StagedRows]:
        shared = self._staging.executor_folder(folder)
        if isinstance(shared, ObjectFolder):
            files = shared.download(write_objects(rows, shared), folder)
        else:
            target = folder / "rows"
            rows.write.options(**PARQUET, **_without_extremes(rows)).parquet(str(target))
            files = sorted(str(path) for path in target.glob("part-*.parquet"))
        has_unmapped = UNMAPPED in rows.columns
        return {0: StagedRows(files, sum(map(_count_in_file, files)) if has_unmapped else 0)}


def write_table(rows: pa.Table, path: Path) -> StagedRows:
    """Writes an Arrow table as one Parquet file."""
    import pyarrow.parquet as pq

    pq.write_table(rows, path, use_dictionary=False, compression="snappy")
    return StagedRows([str(path)], _count_unmapped(rows) if UNMAPPED in rows.column_names else 0)


def _without_extremes(rows: DataFrame) -> dict[str, str]:
    """Options that keep least and greatest values for numbers only; destinations read those."""
    texts = (field.name for field in rows.schema if field.dataType.simpleString() == "string")
    return {f"parquet.column.statistics.enabled#{name}": "false" for name in texts}


def _count_unmapped(rows: pa.Table) -> int:
    texts = rows.column(UNMAPPED).drop_null().to_pylist()
    return sum(len(msgspec.json.decode(text, type=dict[str, msgspec.Raw])) for text in texts)


def _count_in_file(file: str) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as parquet:
        batches = parquet.iter_batches(columns=[UNMAPPED])
        return sum(_count_unmapped(pa.Table.from_batches([batch])) for batch in batches)


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

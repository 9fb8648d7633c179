"""Staging: files on their way to a destination, in a folder that is removed when they are loaded.

What the driver writes is on its own disk. What executors write is there too, where they share that disk or a
mount of it; or it is on an object store (`pipeline.staging_url`), and then a cluster shares nothing else.

Objects are written and read by pyarrow's file systems; no Hadoop connector is needed. Each task names its
objects, and the driver uses the names that successful tasks return, not a listing. So objects of a worker
that died, or of a repeated attempt at a task, are ignored (G5).
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from headwater.destinations.table import ROW
from headwater.errors import HeadwaterError, SettingsError
from headwater.pipeline.spark.arrow_lines import arrow_texts
from headwater.system.durable_files import try_lock

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

GROUP_BYTES = 32 * 1024 * 1024
BATCH_BYTES = 4 * 1024 * 1024
READ_BYTES = 1024 * 1024
READ_ROWS = 8_192
COPY_BYTES = 4 * 1024 * 1024

Batches = Iterator[Any]


class StagingUnavailable(HeadwaterError):
    """The object store cannot be reached, or refuses us."""


@dataclass(frozen=True)
class StoredFile:
    """An object of rows, and the value of the column that they are grouped by."""

    name: str
    part: int
    key: int | None


@dataclass(frozen=True)
class ObjectFolder:
    """Objects with a common prefix; sent to executors as it is."""

    url: str = field(repr=False)
    """As pyarrow reads it; there may be secrets in it (G12)."""

    def __truediv__(self, name: str) -> ObjectFolder:
        parts = urlsplit(self.url)
        return ObjectFolder(urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}")))

    def __str__(self) -> str:
        """The URL without its secrets (G12)."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def filesystem_and_path(self) -> tuple[Any, str]:
        """The file system and the path in it."""
        from pyarrow import fs

        try:
            return fs.FileSystem.from_uri(self.url)  # type: ignore[no-any-return]
        except (ValueError, OSError) as error:
            reason = str(error).replace(self.url, str(self))
            raise SettingsError([f"`pipeline.staging_url` cannot be used ({self}): {reason}"]) from None

    def check(self) -> None:
        """StagingUnavailable unless objects can be written and removed there."""
        filesystem, path = self.filesystem_and_path()
        probe = f"{path}/probe-{uuid.uuid4().hex}"
        try:
            with filesystem.open_output_stream(probe) as stream:
                stream.write(b"?")
            filesystem.delete_file(probe)
        except OSError as error:
            raise StagingUnavailable(
                f"nothing can be staged in {self}: {error}.",
                hint="Check `pipeline.staging_url` and the credentials; then run again.",
            ) from error

    def upload(self, source: Path) -> None:
        """Copy a local file to the object of this name."""
        filesystem, path = self.filesystem_and_path()
        with source.open("rb") as file, filesystem.open_output_stream(path) as stream:
            shutil.copyfileobj(file, stream, COPY_BYTES)

    def download(self, files: Sequence[StoredFile], folder: Path) -> list[str]:
        """Copy stored files of this folder to a local one; their paths, in order."""
        filesystem, path = self.filesystem_and_path()
        paths = []
        for stored in files:
            target = folder / stored.name
            with filesystem.open_input_stream(f"{path}/{stored.name}") as stream, target.open("wb") as file:
                shutil.copyfileobj(stream, file, COPY_BYTES)
            paths.append(str(target))
        return paths

    def remove(self) -> None:
        """Removes all objects below it. An empty folder or an unreachable store is not an error."""
        from pyarrow import fs

        try:
            filesystem, path = self.filesystem_and_path()
            found = filesystem.get_file_info(path)
            if found.type == fs.FileType.File:
                filesystem.delete_file(path)
            elif found.type == fs.FileType.Directory:
                # with the empty objects that stand for folders; those would stay if files were deleted
                filesystem.delete_dir(path)
        except OSError:
            pass  # remaining objects cost space and are never read


ExecutorFolder = Path | ObjectFolder
"""A folder that the executors see."""


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
        self._fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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


def write_objects(rows: DataFrame, folder: ObjectFolder, by: str = "") -> list[StoredFile]:
    """Writes the rows as Parquet on the executors; returns the objects in the order of their rows.

    `by` names an integer column: each of its values then gets objects of its own, without the column.
    """
    written = rows.mapInArrow(_writing(folder, by), "name string, part bigint, key bigint")
    found = [StoredFile(*row) for row in written.collect()]
    return sorted(found, key=lambda file: (file.part, file.key or 0))


def read_objects(
    spark: SparkSession, folder: ObjectFolder, files: Sequence[StoredFile], schema: str
) -> DataFrame:
    """Stored rows as a DataFrame, read by the executors; an object is a partition."""
    if not files:
        return spark.createDataFrame([], schema)
    names = [file.name for file in files]
    return spark.range(0, len(names), 1, len(names)).mapInArrow(_reading(folder, names), schema)


@dataclass(frozen=True)
class ObjectSplit:
    """Bytes of an uploaded file that one task reads, and the number of the first line that begins there."""

    file: ObjectFolder
    start: int
    end: int
    first: int


def object_lines(spark: SparkSession, splits: Sequence[ObjectSplit], line: str) -> DataFrame:
    """The lines of uploaded files with their numbers; the same numbers whenever they are read again."""
    schema = f"{line} string, {ROW} bigint"
    return spark.range(0, len(splits), 1, len(splits)).mapInArrow(_splitting(splits, line), schema)


def _writing(folder: ObjectFolder, by: str) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        part = context.partitionId()
        names = _write(folder, batches, by, f"part-{part:05d}")
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(list(names.values()), pa.string()),
                pa.array([part] * len(names), pa.int64()),
                pa.array(list(names), pa.int64()),
            ],
            names=["name", "part", "key"],
        )

    return run


def _write(folder: ObjectFolder, batches: Batches, by: str, prefix: str) -> dict[int | None, str]:
    """One object, or one for each value of `by`; returns their names by value."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    filesystem, path = folder.filesystem_and_path()
    names: dict[int | None, str] = {}
    writers: dict[int | None, pq.ParquetWriter] = {}
    options = {"use_dictionary": bool(by), "compression": "snappy", "filesystem": filesystem}
    with ExitStack() as stack:
        for table in _groups(batches):
            for key in pc.unique(table.column(by)).to_pylist() if by else [None]:
                own = table.filter(pc.equal(table.column(by), key)).drop_columns([by]) if by else table
                if key not in writers:
                    # unique: another attempt at the task must not change the object that this one returns
                    names[key] = f"{prefix}-{uuid.uuid4().hex}.parquet"
                    writer = pq.ParquetWriter(f"{path}/{names[key]}", own.schema, **options)
                    writers[key] = stack.enter_context(writer)
                writers[key].write_table(own, row_group_size=own.num_rows)
    return names


def _groups(batches: Batches) -> Iterator[pa.Table]:
    """The rows in groups that fit into memory (G8)."""
    import pyarrow as pa

    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            gathered.append(batch)
            size += batch.nbytes
        if size >= GROUP_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _reading(folder: ObjectFolder, names: Sequence[str]) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        import pyarrow.parquet as pq

        filesystem, path = folder.filesystem_and_path()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with pq.ParquetFile(f"{path}/{names[number]}", filesystem=filesystem) as parquet:
                    yield from parquet.iter_batches(READ_ROWS)

    return run


def _splitting(splits: Sequence[ObjectSplit], line: str) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                split = splits[number]
                filesystem, path = split.file.filesystem_and_path()
                with filesystem.open_input_file(path) as stream:
                    yield from _lines(stream, split, line)

    return run


def _lines(stream: Any, split: ObjectSplit, line: str) -> Batches:
    """The lines that begin in a split; the last of them may end behind it."""
    import pyarrow as pa

    file = BufferedReader(stream, READ_BYTES)
    at, number = split.start, split.first
    if at:
        # the line before ours ends with the first newline at or behind the byte before the split
        file.seek(at - 1)
        at += len(file.readline()) - 1
    while at < split.end:
        lines, size = list[bytes](), 0
        while size < BATCH_BYTES and at + size < split.end and (found := file.readline()):
            lines.append(found.removesuffix(b"\n"))
            size += len(found)
        if not lines:
            return
        numbers = pa.array(range(number, number + len(lines)), pa.int64())
        yield pa.RecordBatch.from_arrays([arrow_texts(lines), numbers], names=[line, ROW])
        at += size
        number += len(lines)


def _remove_left_overs(root: Path, store: ObjectFolder | None) -> None:
    for path in root.glob("cycle-*"):
        try:
            fd = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # just being created, or just removed
        try:
            if try_lock(fd):  # its process is dead
                if store is not None:
                    (store / path.name).remove()
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(fd)

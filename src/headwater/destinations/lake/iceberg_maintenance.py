"""Maintenance that pyiceberg leaves to others: small files are joined, and unnamed ones removed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyarrow import fs
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from headwater.destinations.lake.iceberg_rows import added_files

SMALL_BYTES = 32 * 1024 * 1024
GROUP_BYTES = 512 * 1024 * 1024
"""Bytes of the files that one commit joins."""
_OURS = (".parquet", ".avro", ".metadata.json")
_FOLDERS = ("data", "metadata")


def small_files(table: Table) -> Iterator[list[FileScanTask]]:
    """Groups of small files of one partition, each for one commit; files with deleted rows count as small."""
    by_partition: dict[str, list[FileScanTask]] = {}
    current = table.metadata.default_spec_id
    for task in table.scan().plan_files():
        is_small = task.file.file_size_in_bytes < SMALL_BYTES or task.delete_files
        if is_small and task.file.spec_id == current:
            by_partition.setdefault(str(task.file.partition), []).append(task)
    for tasks in by_partition.values():
        group: list[FileScanTask] = []
        size = 0
        for task in tasks:
            group.append(task)
            size += task.file.file_size_in_bytes
            if size >= GROUP_BYTES:
                yield group
                group, size = [], 0
        if len(group) > 1:
            yield group


def rewritten_files(table: Table, tasks: Sequence[FileScanTask]) -> list[DataFile]:
    """The rows of these files in new ones, which no snapshot has yet; one file in memory at a time (G8)."""
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())

    def batches() -> Iterator[pa.RecordBatch]:
        for task in tasks:
            yield from (batch for batch in scan.to_record_batches([task]) if batch.num_rows)

    found = batches()
    first = next(found, None)
    if first is None:
        return []

    def rest() -> Iterator[pa.RecordBatch]:
        yield first
        yield from found

    return added_files(table, pa.RecordBatchReader.from_batches(first.schema, rest()))


def remove_unnamed_files(table: Table, before: dt.datetime) -> int:
    """Removes files of the table's folders that no snapshot names and that are older than a time."""
    if not isinstance(table.io, PyArrowFileIO):
        return 0  # only its file systems can list a folder
    scheme, netloc, root = PyArrowFileIO.parse_location(table.location(), table.io.properties)
    filesystem = table.io.fs_by_scheme(scheme, netloc)
    # listed first: what a commit names meanwhile is among the named then
    old = [
        file.path
        for folder in _FOLDERS
        for file in filesystem.get_file_info(
            fs.FileSelector(f"{root}/{folder}", recursive=True, allow_not_found=True)
        )
        if file.is_file and file.path.endswith(_OURS) and file.mtime is not None and file.mtime < before
    ]
    if not old:
        return 0
    named = _named_files(table.refresh())
    removed = 0
    for path in old:
        if path not in named:
            filesystem.delete_file(path)
            removed += 1
    return removed


def _named_files(table: Table) -> set[str]:
    """Paths of all files that the table's metadata names, in any snapshot."""
    metadata = table.metadata
    found = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    manifests = {}
    for snapshot in metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            manifests[manifest.manifest_path] = manifest
    for path, manifest in manifests.items():
        found.add(path)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            found.add(entry.data_file.file_path)
    return {PyArrowFileIO.parse_location(path, table.io.properties)[2] for path in found if path}

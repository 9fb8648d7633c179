"""Small files that wait together are staged in one pass over all of them: a pass costs more than such a file.

Only the staging is shared. Each file still has its own rows, numbered as if it had been read alone, its own
place in the ledger and its own transaction. So it does not matter which files were staged together, before a
crash or after it (G5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.destinations.table import ROW
from headwater.log.files.layout import IncomingFile
from headwater.pipeline.load import Loader, Origin, StagedRows, count_unmapped
from headwater.pipeline.steps.batch_schema import Scanned
from headwater.pipeline.steps.read_lines import place_of
from headwater.pipeline.steps.route import SMALL_BYTES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["FilesLoader", "groups"]

MAX_FILES = 100
"""Files that are taken together: each is held open, and is a task of each Spark job."""


def groups(files: Sequence[tuple[IncomingFile, int]]) -> Iterator[list[IncomingFile]]:
    """Files, given with their sizes, that are taken together: of one origin, and small in all.

    They are neighbours, so the order stays: what came first is stored first.
    """
    group: list[IncomingFile] = []
    total = 0
    for file, size in files:
        is_alike = bool(group) and (group[0].kind, group[0].id) == (file.kind, file.id)
        if group and not (is_alike and total + size <= SMALL_BYTES and len(group) < MAX_FILES):
            yield group
            group, total = [], 0
        group.append(file)
        total += size
    if group:
        yield group


class FilesLoader(Loader):
    """Loads files one by one, from rows that may have been staged for several at once."""

    def __init__(self, *arguments: Any, browser_key: str = "") -> None:
        super().__init__(*arguments, browser_key=browser_key)
        self._ready: dict[str, StagedRows] = {}

    def prepare(
        self, lines: DataFrame, table: str, scanned: Scanned, files: Mapping[int, Origin], folder: Path
    ) -> None:
        """Stage the rows of some files, by their numbers, for the loads that follow; not what is loaded."""
        import pyarrow.parquet as pq

        ids = {number: self.load_id(file, table) for number, file in files.items()}
        loaded = self.destination.loaded(list(ids.values()))
        if loaded.issuperset(ids.values()) or not self.wanted(table, scanned, None)[0].columns:
            return
        with self.projected(lines, table, scanned, folder) as (rows, fitted, patched):
            parts = _by_file(rows.toArrow())
        for number, id in ids.items():
            if number in parts and id not in loaded:
                path = folder / f"rows-{number}.parquet"
                pq.write_table(parts[number], path, use_dictionary=False, compression="snappy")
                unmapped = count_unmapped(parts[number]) if fitted.needs_unmapped else 0
                self._ready[id] = StagedRows(patched, [str(path)], unmapped)

    def staged(self, id: str, lines: DataFrame, table: str, scanned: Scanned, folder: Path) -> StagedRows:
        return self._ready.pop(id, None) or super().staged(id, lines, table, scanned, folder)


def _by_file(table: pa.Table) -> dict[int, pa.Table]:
    """The rows of each file, in their order, numbered as if it had been read alone."""
    import pyarrow as pa

    table = table.sort_by(ROW)
    column = table.schema.get_field_index(ROW)
    places = [place_of(row) for row in table.column(column).to_pylist()]
    table = table.set_column(column, ROW, pa.array([place for _, place in places], pa.int64()))
    first: dict[int, int] = {}
    for index, (file, _) in enumerate(places):
        first.setdefault(file, index)
    ends = [*list(first.values())[1:], len(places)]
    return {file: table.slice(at, end - at) for (file, at), end in zip(first.items(), ends, strict=True)}

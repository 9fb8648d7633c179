"""A pipeline in a folder, for tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import duckdb
import msgspec

from headwater.destinations.base import Capabilities
from headwater.destinations.duckdb import DuckDBDestination
from headwater.destinations.table import Table
from headwater.log.files.checked_lines import LineReader, LineWriter
from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import status_path, unprocessed
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from headwater.pipeline.batch.cycle import run_cycle
from headwater.pipeline.load_report import Report
from headwater.pipeline.steps.batch_schema import BatchColumn, batch_columns
from headwater.pipeline.steps.field_tree import BatchFields
from headwater.pipeline.steps.fit_table import TableFit, fit_table
from headwater.pipeline.steps.mapping import map_fields
from headwater.pipeline.steps.parse_events import TextNumbers, find_fields
from headwater.pipeline.steps.project import project
from headwater.pipeline.steps.read_lines import read_lines
from headwater.settings import DestinationSettings, MappingSettings, Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 11, 16, 10, tzinfo=UTC)
BROWSER_KEY = "js.key"


class Rig:
    """Files in, cycles over them, and a look at what is in the tables then."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.incoming = folder / "events" / "incoming"
        self.incoming.mkdir(parents=True)
        self._files = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.spark.catalog.clearCache()

    def settings(self, *destinations: Mapping[str, Any], **more: Any) -> Settings:
        """One DuckDB destination `dwh`, changed by what each mapping says; other settings by name."""
        given = [{"id": "dwh", "type": "duckdb"} | dict(each) for each in destinations or ({},)]
        for each in given:
            options = each.setdefault("options", {})
            if each["type"] == "duckdb":
                options.setdefault("path", str(self.database(each["id"])))
        raw = {
            "data_dir": str(self.folder),
            "tokens": [{"id": "web", "client_secret": BROWSER_KEY, "server_secret": "s"}],
            "destinations": given,
        } | more
        return msgspec.convert(raw, Settings)

    def database(self, id: str = "dwh") -> Path:
        return self.folder / f"{id}.duckdb"

    def file(self, events: Iterable[Any], *, token: str = "web", is_checked: bool = True) -> Path:
        """A complete file. Events are JSON values, or bytes to be written as they are.

        Without checksums it is a file of an earlier release.
        """
        at = (START + timedelta(minutes=5 * self._files)).strftime("%Y-%m-%dT%H-%M-%S.000")
        self._files += 1
        path = self.incoming / f"incoming.tok={token}-{at}.log"
        bodies = [e if isinstance(e, bytes) else json.dumps(e).encode() for e in events]
        if not is_checked:
            path.write_bytes(b"\n".join(bodies))
            return path
        writer = LineWriter()
        lines, checksums = writer.lines(bodies)
        path.write_bytes(lines)
        writer.wrote(checksums)
        status = FileStatus(status_path(path))
        status.record_written(writer.written)
        status.save()
        return path

    def cycle(self, settings: Settings | None = None) -> Report:
        return run_cycle(settings or self.settings(), self.spark)

    def jobs_of(self, work: Callable[[], object]) -> int:
        """How many jobs Spark runs for it."""
        context: Any = self.spark.sparkContext._jsc
        scheduler = context.sc().dagScheduler()
        before = scheduler.numTotalJobs()
        work()
        return int(scheduler.numTotalJobs() - before)

    def load(self, *events: Any, **destination: Any) -> Report:
        """A file with these events, and a cycle."""
        self.file(events)
        return self.cycle(self.settings(destination))

    def sql(self, query: str, id: str = "dwh") -> list[tuple[Any, ...]]:
        with duckdb.connect(str(self.database(id))) as connection:
            return connection.execute(query).fetchall()

    def rows(self, table: str = "events", id: str = "dwh") -> list[dict[str, Any]]:
        """All rows in the order in which they were stored, without what is NULL."""
        with duckdb.connect(str(self.database(id))) as connection:
            found = connection.execute(f'SELECT * FROM "{table}" ORDER BY rowid')
            names = [column[0] for column in found.description or []]
            return [
                {name: value for name, value in zip(names, row, strict=True) if value is not None}
                for row in found.fetchall()
            ]

    def types(self, table: str = "events", id: str = "dwh") -> dict[str, str]:
        return {row[0]: row[1] for row in self.sql(f'DESCRIBE "{table}"', id)}

    def tables(self, id: str = "dwh") -> set[str]:
        return {row[0] for row in self.sql("SELECT table_name FROM duckdb_tables()", id)} - {
            "_headwater_loads",
            "_headwater_tables",
        }

    def rejects(self, id: str = "dwh") -> list[EventError]:
        return list(DestinationRejects(self.folder / "events").read(id))

    def waiting(self) -> list[str]:
        return [file.name for file in unprocessed(self.folder / "events")]

    def archived(self) -> dict[str, bytes]:
        """The events of each file of the archive, by its name."""
        found = sorted((self.folder / "events" / "archive").glob("*/*.log.gz"))
        return {path.name: b"\n".join(line.event for line in LineReader(path)) for path in found}

    def status(self, path: Path) -> FileStatus:
        return FileStatus.read(path.with_name(f"{path.name}.status"))

    def lines(self, *events: Any) -> DataFrame:
        return read_lines(self.spark, self.file(events))

    def project(
        self,
        *events: Any,
        existing: Table | None = None,
        mapping: MappingSettings | None = None,
        max_columns: int = 1000,
        capabilities: Capabilities = DuckDBDestination.capabilities,
        text_numbers: TextNumbers = "canonical",
    ) -> Projected:
        """What the events become, without a destination."""
        lines = self.lines(*events)
        fields = find_fields(lines)
        used = mapping or MappingSettings()
        columns = batch_columns(map_fields(fields.root, used), capabilities)
        settings = DestinationSettings(id="dwh", type="duckdb", mappings=used, max_columns=max_columns)
        fit = fit_table(fields.root, columns, existing, settings, capabilities)
        return Projected(fields, columns, fit, project(lines, fit, text_numbers=text_numbers))


class Projected:
    """A projection and what led to it."""

    def __init__(
        self, fields: BatchFields, columns: dict[str, BatchColumn], fit: TableFit, frame: DataFrame
    ) -> None:
        self.fields = fields
        self.columns = columns
        self.fit = fit
        self.frame = frame

    @property
    def kinds(self) -> dict[str, str]:
        return {name: str(column.kind) for name, column in self.columns.items()}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """In order, without what is NULL and without the row's number."""
        found = sorted(self.frame.collect(), key=lambda row: int(row["_headwater_row"]))
        return [
            {
                name: value
                for name, value in row.asDict().items()
                if value is not None and name != "_headwater_row"
            }
            for row in found
        ]

"""The work of the tests of failing disks: loads into the destinations whose files are local."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from headwater.destinations.base import Destination, Load, load_destination
from headwater.destinations.column_types import Kind
from headwater.errors import HeadwaterError
from headwater.settings import DestinationSettings
from headwater.testing.destinations import staged_load
from headwater.testing.destinations.subject import table
from tests.support.io_faults import Record

LOADS, ROWS = 3, 4
TABLE = table("t", v=Kind.INT64)


class Loads:
    """Each load is tried twice, by a connection of its own, as the next cycle does."""

    type = ""
    place = ""

    def prepare(self, folder: Path) -> None:
        staged = folder.with_name(f"{folder.name}-staged")
        staged.mkdir()
        for number in range(LOADS):
            rows = [{"v": number * ROWS + row} for row in range(ROWS)]
            made = staged_load(staged, TABLE, rows, id=f"load-{number}")
            Path(made.files[0]).rename(staged / f"{number}.parquet")

    def work(self, folder: Path, record: Record) -> None:
        for number in range(LOADS):
            for _ in range(2):
                with contextlib.suppress(HeadwaterError):
                    self._load(folder, number)
                    record(number)
                    break

    def check(self, folder: Path, recorded: list[Any]) -> None:
        with contextlib.closing(self._destination(folder)) as destination:
            destination.connect()
            found = destination.loaded_in("t", [f"load-{number}" for number in range(LOADS)])
        missing = {f"load-{number}" for number in recorded} - found
        assert not missing, f"loaded, and not in the ledger: {missing}"
        for number in range(LOADS):
            self._load(folder, number)
        values = Counter(self.values(folder))
        assert values == Counter(range(LOADS * ROWS)), f"not each row once: {values}"

    def values(self, folder: Path) -> list[int]:
        raise NotImplementedError

    def _load(self, folder: Path, number: int) -> None:
        staged = folder.with_name(f"{folder.name}-staged") / f"{number}.parquet"
        with contextlib.closing(self._destination(folder)) as destination:
            destination.connect()
            made = destination.patch(TABLE)
            destination.load(Load(id=f"load-{number}", table=made, files=[str(staged)], rows=ROWS))

    def _destination(self, folder: Path) -> Destination:
        options = {"path": str(folder / self.place)}
        return load_destination(DestinationSettings(id="dwh", type=self.type, options=options))


class DuckDBLoads(Loads):
    """Loads into a DuckDB file."""

    type, place = "duckdb", "warehouse.duckdb"

    def values(self, folder: Path) -> list[int]:
        with duckdb.connect(str(folder / self.place), read_only=True) as connection:
            return [row[0] for row in connection.execute("SELECT v FROM t").fetchall()]


class DeltaLoads(Loads):
    """Loads into a Delta table."""

    type, place = "delta", "lake"

    def values(self, folder: Path) -> list[int]:
        stored = DeltaTable(str(folder / self.place / "t")).to_pyarrow_table()
        return [int(value) for value in stored.column("v").to_pylist()]


class IcebergLoads(Loads):
    """Loads into an Iceberg table of a local folder, whose catalog is in SQLite."""

    type, place = "iceberg", "lake"

    def values(self, folder: Path) -> list[int]:
        uri = f"sqlite:///{folder}/{self.place}/catalog.db"
        with load_catalog("headwater", type="sql", uri=uri) as catalog:
            stored = catalog.load_table("headwater.t").scan().to_arrow()
        return [int(value) for value in stored.column("v").to_pylist()]

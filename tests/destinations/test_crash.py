"""kill -9 around a load's commit: after a restart the rows are there once (G5)."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import psycopg
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from headwater.testing.destinations import staged_load
from tests.destinations.loading import TABLE, load_in_process, load_now
from tests.parts.postgres import PostgresServer

ROWS = 1_000
POINTS = ["load.before_commit", "load.after_commit"]


class Warehouse(NamedTuple):
    type: str
    options: dict[str, Any]
    values: Callable[[], list[int]]


@pytest.fixture(params=["duckdb", "postgres", "delta", "iceberg"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    if request.param == "duckdb":
        path = str(tmp_path / "test.duckdb")

        def values() -> list[int]:
            with duckdb.connect(path, read_only=True) as connection:
                return [row[0] for row in connection.execute("SELECT v FROM t ORDER BY v").fetchall()]

        return Warehouse("duckdb", {"path": path}, values)
    if request.param == "delta":
        lake = str(tmp_path / "lake")

        def stored() -> list[int]:
            rows = DeltaTable(f"{lake}/t").to_pyarrow_table().column("v").to_pylist()
            return sorted(value for value in rows if value is not None)

        return Warehouse("delta", {"path": lake}, stored)
    if request.param == "iceberg":
        folder = str(tmp_path / "lake")

        def kept() -> list[int]:
            uri = f"sqlite:///{folder}/catalog.db"
            with load_catalog("headwater", type="sql", uri=uri) as catalog:
                rows = catalog.load_table("headwater.t").scan().to_arrow().column("v").to_pylist()
            return sorted(value for value in rows if value is not None)

        return Warehouse("iceberg", {"path": folder}, kept)
    server: PostgresServer = request.getfixturevalue("postgres")
    schema = f"crash_{uuid.uuid4().hex}"

    def selected() -> list[int]:
        with psycopg.connect(server.url) as connection:
            found = connection.execute(f"SELECT v FROM {schema}.t ORDER BY v".encode()).fetchall()
            return [row[0] for row in found]

    return Warehouse("postgres", {"url": server.url, "schema": schema}, selected)


@pytest.mark.parametrize("point", POINTS)
def test_rows_are_there_once_when_the_loader_is_killed(
    warehouse: Warehouse, tmp_path: Path, point: str
) -> None:
    load = staged_load(tmp_path, TABLE, [{"v": i} for i in range(ROWS)])
    died = load_in_process(warehouse.type, warehouse.options, load.files[0], ROWS, point)
    assert died == -signal.SIGKILL
    again = load_now(warehouse.type, warehouse.options, load.files[0], ROWS)
    assert again.already is (point == "load.after_commit")
    assert again.rows == ROWS
    assert warehouse.values() == list(range(ROWS))


@pytest.mark.parametrize("point", POINTS)
def test_a_move_is_ended_and_not_repeated_when_the_loader_is_killed(tmp_path: Path, point: str) -> None:
    """ClickHouse has no transactions; its engine has one folder per process, so all happens in others."""
    pytest.importorskip("chdb", reason="the ClickHouse engine is missing: pip install chdb")
    options = {"url": f"chdb://{tmp_path / 'engine'}", "database": "crash"}
    load = staged_load(tmp_path, TABLE, [{"v": i} for i in range(ROWS)])
    assert load_in_process("clickhouse", options, load.files[0], ROWS, point) == -signal.SIGKILL
    assert load_in_process("clickhouse", options, load.files[0], ROWS) == 0
    assert load_in_process("clickhouse", options, load.files[0], ROWS) == 0
    assert counted(options) == {"rows": ROWS, "distinct": ROWS, "left": 0}


def counted(options: dict[str, Any]) -> dict[str, int]:
    import json
    import subprocess
    import sys

    code = (
        "import json, sys, clickhouse_connect\n"
        "client = clickhouse_connect.get_client(interface='chdb', path=sys.argv[1])\n"
        "rows, distinct = client.query('SELECT count(), uniqExact(v) FROM crash.t').result_rows[0]\n"
        "beside = \"SELECT count() FROM system.tables WHERE name LIKE '_headwater_r%'\"\n"
        "left = client.query(beside).result_rows[0][0]\n"
        "print(json.dumps({'rows': rows, 'distinct': distinct, 'left': left}))\n"
    )
    folder = options["url"].removeprefix("chdb://")
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found

"""Golden cases: tests/cases/lineage/<name>.py runs something with Spark, <name>.json is its expected lineage.

`run(spark, tmp)` is the case; `setup(spark, tmp)`, if there is one, happens before. Folders `people` and
`orders` (Parquet) lie in tmp, and the current database is `db`. `NEEDS` names a module without which the case
is skipped. To rewrite the expected lineage, for review:

    HEADWATER_UPDATE_CASES=1 pytest tests/lineage/test_cases.py
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from headwater.testing.lineage import Events
from tests.lineage.golden import summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = Path(__file__).parent.parent / "cases" / "lineage"
UPDATE = os.environ.get("HEADWATER_UPDATE_CASES") == "1"


def load(path: Path) -> ModuleType:
    """A case as a module that is not importable by name."""
    spec = importlib.util.spec_from_file_location(f"case_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="package")
def inputs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small tables, made once."""
    folder = tmp_path_factory.mktemp("inputs")
    people = "id long, name string, age int"
    rows = [(1, "Ada", 36), (2, "Grace", 45), (3, "Edsger", 72)]
    spark.createDataFrame(rows, people).coalesce(1).write.parquet(str(folder / "people"))
    orders = "id long, person long, amount double, day string"
    bought = [(1, 1, 9.5, "2026-01-01"), (2, 1, 1.5, "2026-01-02"), (3, 2, 4.0, "2026-01-01")]
    spark.createDataFrame(bought, orders).coalesce(1).write.parquet(str(folder / "orders"))
    return folder


@pytest.fixture(scope="module")
def database(spark: SparkSession) -> Iterator[str]:
    """One database for all cases; each case finds it empty."""
    spark.sql("CREATE DATABASE db")
    yield "db"
    spark.catalog.setCurrentDatabase("default")
    spark.sql("DROP DATABASE db CASCADE")


@pytest.fixture
def tmp(spark: SparkSession, inputs: Path, database: str, tmp_path: Path) -> Iterator[Path]:
    """The case's own folder, with links to the inputs."""
    lake = tmp_path / "lake"  # its name becomes a part of jobs' names
    for name in ("people", "orders"):
        shutil.copytree(inputs / name, lake / name, copy_function=os.link)
    spark.catalog.setCurrentDatabase(database)
    yield lake
    for query in spark.streams.active:
        query.stop()
    spark.catalog.clearCache()
    spark.catalog.setCurrentDatabase(database)
    for table in spark.catalog.listTables():
        if table.isTemporary:
            spark.catalog.dropTempView(table.name)
        else:
            spark.sql(f"DROP {'VIEW' if table.tableType == 'VIEW' else 'TABLE'} IF EXISTS {table.name}")


@pytest.mark.parametrize("path", sorted(CASES.glob("*.py")), ids=lambda path: path.stem)
def test_lineage_is_as_expected_when_a_case_runs(
    path: Path, spark: SparkSession, tmp: Path, events: Events
) -> None:
    case = load(path)
    if needed := getattr(case, "NEEDS", None):
        pytest.importorskip(needed)
    if hasattr(case, "setup"):
        case.setup(spark, tmp)
    before = len(events.all)
    case.run(spark, tmp)
    warehouse = str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:").replace("//", "/")
    found = summary(events.all[before:], {"<tmp>": tmp, "<warehouse>": warehouse})
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    expected = path.with_suffix(".json")
    if UPDATE:
        expected.write_text(text, encoding="utf-8")
    assert expected.exists(), "write it with HEADWATER_UPDATE_CASES=1, and read it"
    assert found == json.loads(expected.read_text(encoding="utf-8"))

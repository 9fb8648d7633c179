"""Golden cases on published jars: Kafka, Iceberg, Delta (tests/cases/lineage_jars), on their Spark."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.lineage.conftest import validate
from tests.parts.cache import Missing
from tests.parts.kafka_broker import KafkaBroker
from tests.parts.spark_jars import SPARK_VERSION, find_spark_jars
from tests.parts.spark_versions import SOURCE, python_of
from tests.sources import ROOT

CASES = sorted((ROOT / "tests" / "cases" / "lineage_jars").glob("*.py"))
UPDATE = os.environ.get("HEADWATER_UPDATE_CASES") == "1"
PATTERN = os.environ.get("HEADWATER_CASES", "")  # by hand: only cases whose name holds this


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lineage of each case; one process runs all of them, since its start is slow."""
    folder = tmp_path_factory.mktemp("jars")
    try:
        python, jars = python_of(SPARK_VERSION), find_spark_jars()
        broker = KafkaBroker(folder / "broker")
    except Missing as missing:
        pytest.skip(str(missing))
    cases = [str(path) for path in CASES if PATTERN in path.stem]
    with broker:
        done = subprocess.run(
            [
                str(python), "-m", "tests.lineage.case_process",
                str(folder), ",".join(map(str, jars)), broker.bootstrap, *cases,
            ],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT}", "PYSPARK_PYTHON": str(python)},
            capture_output=True,
            text=True,
            timeout=900,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.mark.long
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_lineage_is_as_expected_when_a_case_runs_on_jars(path: Path, ran: Path) -> None:
    failed = ran / f"{path.stem}.failed"
    assert not failed.exists(), failed.read_text()
    if PATTERN not in path.stem:
        pytest.skip("not chosen")
    found = json.loads((ran / f"{path.stem}.lineage").read_text())
    validate(found["events"])
    expected = path.with_suffix(".json")
    if UPDATE:
        expected.write_text(
            json.dumps(found["summary"], indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    assert expected.exists(), "write it with HEADWATER_UPDATE_CASES=1, and read it"
    assert found["summary"] == json.loads(expected.read_text(encoding="utf-8"))

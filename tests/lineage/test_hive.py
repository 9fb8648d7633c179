"""Golden cases on Hive tables (tests/cases/lineage_hive): a session with a metastore of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lineage.conftest import validate
from tests.sources import ROOT

CASES = sorted((ROOT / "tests" / "cases" / "lineage_hive").glob("*.py"))
UPDATE = os.environ.get("HEADWATER_UPDATE_CASES") == "1"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lineage of each case; one process, since a JVM has one catalog."""
    folder = tmp_path_factory.mktemp("hive")
    done = subprocess.run(
        [sys.executable, "-m", "tests.lineage.case_process", str(folder), "hive", "", *map(str, CASES)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.mark.long
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_lineage_is_as_expected_when_a_case_runs_on_hive(path: Path, ran: Path) -> None:
    failed = ran / f"{path.stem}.failed"
    assert not failed.exists(), failed.read_text()
    found = json.loads((ran / f"{path.stem}.lineage").read_text())
    validate(found["events"])
    expected = path.with_suffix(".json")
    if UPDATE:
        expected.write_text(
            json.dumps(found["summary"], indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    assert expected.exists(), "write it with HEADWATER_UPDATE_CASES=1, and read it"
    assert found["summary"] == json.loads(expected.read_text(encoding="utf-8"))

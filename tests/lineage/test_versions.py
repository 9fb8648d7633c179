"""The same short job under other releases of Spark, each in a separate environment."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.lineage.conftest import validate
from tests.parts.cache import Missing
from tests.parts.spark_versions import SOURCE, VERSIONS, python_of

JOB = Path(__file__).with_name("version_job.py")


def events_of(version: str, folder: Path) -> list[dict[str, Any]]:
    try:
        python = python_of(version)
    except Missing as missing:
        pytest.skip(str(missing))
    done = subprocess.run(
        [str(python), str(JOB), str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "PYSPARK_PYTHON": str(python), "OPENLINEAGE_CONFIG": ""},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_lineage_is_sent_when_spark_is_of_another_release(version: str, tmp_path: Path) -> None:
    events = events_of(version, tmp_path)
    validate(events)
    runs: dict[str, list[str]] = {}
    for event in events:
        runs.setdefault(event["run"]["runId"], []).append(event["eventType"])
    assert all(states[0] == "START" and len(states) == 2 for states in runs.values()), runs

    def outputs(name: str) -> list[dict[str, Any]]:
        ends = [event for event in events if event["eventType"] == "COMPLETE"]
        return [end for end in ends for output in end["outputs"] if output["name"] == str(tmp_path / name)]

    (written,) = outputs("out")
    assert written["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 10
    (saved,) = outputs("warehouse/saved")
    assert [each["name"] for each in saved["inputs"]] == [str(tmp_path / "out")]
    fields = saved["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert fields["k"]["inputFields"][0]["field"] == "k"
    (lengths,) = outputs("lengths")
    assert [each["name"] for each in lengths["inputs"]] == [str(tmp_path / "lines.txt")]
    streamed = next(end for end in outputs("streamed"))
    assert [each["name"] for each in streamed["inputs"]] == [str(tmp_path / "out")]
    failed = [event for event in events if event["eventType"] == "FAIL"]
    assert any("broken" in event["run"]["facets"]["errorMessage"]["message"] for event in failed)

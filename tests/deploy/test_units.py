"""The units of systemd, as systemd itself judges them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.settings import GatewaySettings
from tests.sources import ROOT

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
MOST_EXPOSED = 2.0  # of 10; 9.2 without hardening


def test_there_is_time_for_an_orderly_stop_and_one_process_gets_the_signal_when_a_unit_stops() -> None:
    assert sorted(unit.stem for unit in UNITS) == [
        "headwater",
        "headwater-pipeline",
        "headwater-stream",
        "headwater-up",
    ]
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8")
        assert "\nKillMode=mixed\n" in text
        assert "\nUMask=0077\n" in text
        found = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
        assert found is not None
        assert int(found[1]) > GatewaySettings().shutdown_timeout_seconds + 30


@pytest.mark.long
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_accepts_a_unit_and_finds_it_hardened_when_it_is_asked(unit: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze; install Debian's package systemd")
    copy = tmp_path / unit.name
    text = unit.read_text(encoding="utf-8").replace("/opt/headwater/bin/headwater", sys.executable)
    copy.write_text(text, encoding="utf-8")
    verified = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    command = [analyze, "security", "--offline=true", str(copy)]
    judged = subprocess.run(command, capture_output=True, text=True, check=False)
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", judged.stdout)
    assert exposure is not None, judged.stdout + judged.stderr
    assert float(exposure[1]) <= MOST_EXPOSED

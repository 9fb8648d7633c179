"""A release from before, from the history of this clone."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.sources import ROOT

BEFORE = "14a041c"


def write_with_old_release(script: Path, folder: Path) -> Path:
    """The data folder that a script wrote with the release before, and was killed; the test skips if the
    history does not go back to it.
    """
    known = subprocess.run(["git", "cat-file", "-e", f"{BEFORE}^{{commit}}"], cwd=ROOT, check=False)
    if known.returncode:
        pytest.skip(f"the history of this clone does not have {BEFORE}; run `git fetch --unshallow`")
    archived = subprocess.run(["git", "archive", BEFORE, "src"], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as sources:
        sources.extractall(folder / "old", filter="data")
    environment = os.environ | {"PYTHONPATH": str(folder / "old" / "src")}
    command = [sys.executable, str(script), str(folder / "data")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("written\n", -9), done.stderr
    return folder / "data"

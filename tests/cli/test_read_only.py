"""Commands that only look, in a folder that this user cannot write to: a read-only disk, another's files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.log.queue.log import Log
from headwater.log.rejects.store import NewReject, RejectStore

# root may write everywhere, unless it gives that up
DROPPED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner", "--inh-caps=-all"]


@pytest.fixture(params=["stopped", "running"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A data folder without the right to write, of a server that is stopped or running."""
    data = tmp_path / "headwater-data"
    log = Log.open(data / "log")
    log.append_wait([b'{"n": 1}', b'{"n": 2}'])
    log.reader("slow").finish([1])
    rejects = RejectStore(data / "rejects.db", max_bytes=1 << 20)
    rejects.add("gateway", [NewReject("no such thing", b"{}")])
    if request.param == "stopped":
        log.close()
        rejects.close()
    folders = [data, *(path for path in data.rglob("*") if path.is_dir())]
    for each in folders:
        each.chmod(0o555)
    yield tmp_path
    for each in folders:
        each.chmod(0o755)
    if request.param == "running":
        log.close()
        rejects.close()


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater", *arguments]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root cannot give up its rights: there is no setpriv (util-linux)")
        command = [*DROPPED, *command]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_figures_are_shown_when_nothing_can_be_written(folder: Path) -> None:
    before = sorted(path.name for path in folder.rglob("*"))
    status = run(folder, "status")
    assert status.returncode == 0, status.stderr
    assert "rejects: gateway 1" in status.stdout
    assert "damaged files: none" in status.stdout
    [slow] = [line.split() for line in status.stdout.splitlines() if line.startswith("slow ")]
    assert slow[1:6] == ["2", "1", "0", "0", "1"]
    rejects = run(folder, "rejects", "list")
    assert (rejects.returncode, "no such thing" in rejects.stdout) == (0, True), rejects.stderr
    verified = run(folder, "log", "verify")
    assert (verified.returncode, verified.stdout) == (0, "all events are readable and intact\n")
    assert sorted(path.name for path in folder.rglob("*")) == before

"""Commands that only look where nothing can be written: a read-only disk, another's files, a full disk."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.log.queue.log import Log
from headwater.log.rejects.store import NewReject, RejectStore
from tests.log.parts import small

# root may write everywhere, unless it gives that up
DROPPED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner", "--inh-caps=-all"]

# all commands in one process that has no file open: prints each command, its exit code and what it printed
LOOK = """
import json
from click.testing import CliRunner
from headwater.cli.main import cli
commands = ["status --json", "rejects list", "log verify", "log stat --json", "log export"]
ran = [(each, CliRunner().invoke(cli, each.split())) for each in commands]
print(json.dumps([(each, done.exit_code, done.stdout) for each, done in ran]))
"""


@contextmanager
def mounted(place: Path) -> Iterator[Path]:
    """A disk of 4 MiB in a folder."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small tmpfs needs root and the right to mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill_up(disk: Path) -> None:
    with (disk / "ballast").open("ab", buffering=0) as file:
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


def files_of(folder: Path) -> dict[str, int]:
    """All files with their sizes; the shared memory's size is that of its index."""
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith("-shm")
    } | {str(path.relative_to(folder)): -1 for path in folder.rglob("*-shm")}


def copy_as_killed(data: Path, to: Path, *, shared_memory: bool) -> None:
    """The files as kill -9 leaves them or, without the shared memory, a power cut."""
    ignored = () if shared_memory else ("*-shm",)
    shutil.copytree(data, to, ignore=shutil.ignore_patterns("lock", *ignored))


@pytest.mark.parametrize(
    ("state", "disk"),
    [
        *((state, "full") for state in ("stopped", "running", "killed", "power cut")),
        ("stopped", "with space"),
        ("power cut", "with space"),
    ],
)
def test_looking_makes_no_file_and_shows_everything(tmp_path: Path, state: str, disk: str) -> None:
    with mounted(tmp_path / "disk") as place, contextlib.ExitStack() as closed:
        data = place / "headwater-data"
        beside = place if state in ("stopped", "running") else tmp_path
        log = Log.open(beside / "headwater-data" / "log", small())
        bodies = [b'{"n": %d, "x": "%s"}' % (n, os.urandom(5000).hex().encode()) for n in range(40)]
        for body in bodies:
            log.append_wait([body])
        log.reader("slow").finish([1])
        rejects = RejectStore(beside / "headwater-data" / "rejects.db", max_bytes=1 << 20)
        rejects.add("gateway", [NewReject("no such thing", b"{}")])
        if state in ("killed", "power cut"):
            copy_as_killed(beside / "headwater-data", data, shared_memory=state == "killed")
        for opened in (log, rejects):
            closed.callback(opened.close)
        if state == "stopped":
            closed.close()
        if disk == "full":
            fill_up(place)
        before = files_of(place)

        ran = subprocess.run(
            [sys.executable, "-c", LOOK], cwd=place, capture_output=True, text=True, check=True
        )
        assert files_of(place) == before
        looked = {command: (code, output) for command, code, output in json.loads(ran.stdout)}
        assert {command: code for command, (code, _) in looked.items()} == dict.fromkeys(looked, 0), looked
        status = json.loads(looked["status --json"][1])
        [slow] = status["log"]["readers"]
        assert (slow["delivered"], slow["lag_events"], status["log"]["damaged"]) == (1, 39, [])
        assert "no such thing" in looked["rejects list"][1]
        assert looked["log verify"][1] == "all events are readable and intact\n"
        assert json.loads(looked["log stat --json"][1])["damaged"] == []
        exported = [json.loads(line)["n"] for line in looked["log export"][1].splitlines()]
        assert exported == list(range(40))


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

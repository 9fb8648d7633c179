"""Files of another user: `check` names them, and every command says what to type."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from headwater.log.queue.log import Log
from headwater.system.permissions import find_denied, permission_hint
from tests.graph.events import encoded
from tests.graph.shop import shop
from tests.support.server import Server

from .conftest import Headwater

# Root may use every file, unless the process gives up that right.
AS_ANY_USER = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
COMMANDS = """
import sys
from click.testing import CliRunner
from headwater.cli.main import cli
for command in ("check", "serve"):
    done = CliRunner().invoke(cli, ["-c", sys.argv[1], command])
    print(command, done.exit_code, done.output)
"""


@pytest.mark.skipif(
    bool(AS_ANY_USER) and shutil.which("setpriv") is None, reason="not applicable: root may use every file"
)
@pytest.mark.parametrize(
    "denied", ["", "log", "log/index.db", "rejects.db", "graph", "events", "events/incoming"]
)
def test_check_and_serve_name_the_command_when_a_file_is_another_users(tmp_path: Path, denied: str) -> None:
    data = tmp_path / "data"
    for name in ("log", "graph", "events/incoming"):
        (data / name).mkdir(parents=True)
    Log.open(data / "log").close()
    (data / "rejects.db").touch()
    if not denied:
        shutil.rmtree(data)
        data.mkdir()
    place = data / denied
    assert place.exists()
    place.chmod(0o400 if place.is_file() else 0o500)
    settings = {
        "data_dir": str(data),
        "gateway": {"port": 0},
        "graph": {"enabled": True},
        "tokens": [{"id": "a", "client_secret": "x"}],
    }
    config = tmp_path / "headwater.yml"
    config.write_text(json.dumps(settings), encoding="utf-8")
    try:
        done = subprocess.run(
            [*AS_ANY_USER, sys.executable, "-c", COMMANDS, str(config)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        place.chmod(0o700)
    check, serve = done.stdout.split("serve ", 1)
    folder = place.parent if place.is_file() else place
    command = f"Run `chmod -R u+rwX {shlex.quote(str(folder))}`."
    assert (check.split()[1], serve.split()[0]) == ("1", "1"), done.stdout + done.stderr
    assert command in check
    assert command in serve


def test_the_owner_is_named_when_a_file_is_another_users(tmp_path: Path) -> None:
    found = permission_hint(Path("/proc/1"))
    if os.geteuid() == 0:
        assert found == "Run `chmod -R u+rwX /proc/1`."
    else:
        assert "sudo chown -R" in found
        assert found.endswith("or run Headwater as the owner, root.")
    assert find_denied([tmp_path, tmp_path / "new" / "deeper"]) is None


def test_no_other_user_can_read_a_file_when_the_server_has_made_it(tmp_path: Path) -> None:
    settings = {
        "gateway": {"port": 0},
        "tokens": [{"id": "web", "server_secret": "s"}],
        "destinations": [{"id": "dwh", "type": "duckdb", "path": "dwh.duckdb", "mode": "stream"}],
        "graph": {"enabled": True},
    }
    umask = os.umask(0)  # the most generous one
    try:
        server = Server(tmp_path, settings)
    finally:
        os.umask(umask)
    with server:
        assert server.post().status_code == 200
        assert server.post({"not": "an event"}).status_code == 400
        found = httpx2.post(f"{server.url}/api/v1/s2s/event?token=s", json={"a": 1})
        assert found.status_code == 200, found.text
        data = tmp_path / "headwater-data"
        paths = [data, *data.rglob("*")]
        assert {"rejects.db", "index.db", "incoming", "graph"} <= {path.name for path in paths}
        assert [str(path) for path in paths if path.stat().st_mode & 0o077] == []


def test_check_warns_when_other_users_can_read_the_data(headwater: Headwater, tmp_path: Path) -> None:
    (tmp_path / "headwater-data").mkdir(mode=0o700)
    (tmp_path / "headwater.yml").write_text('{"gateway": {"port": 0}, "log": {"retention_bytes": 200000000}}')
    assert "ok: data_dir" in headwater("check").output
    (tmp_path / "headwater-data").chmod(0o755)
    assert "warning: data_dir: every user of this machine can look into" in headwater("check").output


WRITING = [
    ("init", "made.yml"),
    ("rejects", "list"),
    ("rejects", "export", "-o", "rejects.ndjson"),
    ("rejects", "replay", "--all"),
    ("rejects", "drop", "--all", "-y"),
    ("log", "export", "-o", "log.ndjson"),
    ("log", "trim", "-y"),
    ("lineage", "import", "events.ndjson"),
    ("tables", "heal", "none"),
    ("pipeline", "run"),
    ("backup", "copy"),
]


def test_no_other_user_can_read_a_file_when_a_command_makes_it(tmp_path: Path) -> None:
    """Under the most generous umask; each command may make files and folders that were not there."""
    code = """
import json, os, shutil, sys
from pathlib import Path
from click.testing import CliRunner
from headwater.cli.main import cli
from headwater.log.queue.log import Log
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from headwater.log.rejects.store import NewReject, RejectStore

here = Path()
given = {*here.iterdir()}
def make():
    data = here / "headwater-data"
    log = Log.open(data / "log")
    log.append_wait([b"{}"] * 3)
    log.close()
    store = RejectStore(data / "rejects.db", max_bytes=1000)
    store.add("gateway", [NewReject("bad", b"{}")])
    store.close()
    reject = EventError.of(b"{}", "bad", destination_id="d", source="f:1", at=1e9)
    DestinationRejects(data / "events").append("d", [reject])
for arguments in json.loads(sys.argv[1]):
    umask = os.umask(0o077)
    make()
    os.umask(0)
    known = {path for path in here.rglob("*")}
    for name in ("log/index.db", "rejects.db.lock", "events/failed/lock"):  # a command makes them again
        path = here / "headwater-data" / name
        path.unlink(missing_ok=True)
        known.discard(path)
    done = CliRunner().invoke(cli, ["-c", "headwater.yml", *arguments])
    assert done.exit_code == 0, (arguments, done.output)
    made = {path for path in here.rglob("*")} - known
    for path in sorted(made):
        if path.stat().st_mode & 0o077:
            print(*arguments, path, oct(path.stat().st_mode))
    for path in {*here.iterdir()} - given:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
"""
    destination = {"id": "d", "type": "duckdb", "path": "d.duckdb"}
    config = {"tokens": [{"id": "a", "client_secret": "x"}], "destinations": [destination]}
    (tmp_path / "headwater.yml").write_text(json.dumps(config))
    (tmp_path / "events.ndjson").write_bytes(b"\n".join(encoded(shop())))
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(WRITING)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""

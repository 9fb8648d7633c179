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
from headwater.permissions import find_denied, permission_hint
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


def test_no_other_user_can_read_a_file_when_the_pipeline_makes_it(tmp_path: Path) -> None:
    code = """
import os
from click.testing import CliRunner
from headwater.cli.main import cli
os.umask(0)
done = CliRunner().invoke(cli, ["-c", "headwater.yml", "pipeline", "run"])
print(done.exit_code, oct(os.umask(0)), done.output)
"""
    config = (
        '{"tokens": [{"id": "a", "client_secret": "x"}], "destinations": [{"id": "d", "type": "duckdb"}]}'
    )
    (tmp_path / "headwater.yml").write_text(config)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("0 0o77 "), done.stdout

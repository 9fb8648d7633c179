from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from headwater.testing.processes import HeadwaterProcess
from tests.support.server import EVENT
from tests.support.waiting import wait_until

Serve = Callable[..., HeadwaterProcess]
MAIN = "from headwater.cli.main import main; main()"
# With so few open files, as with `ulimit -n`.
FEW_FILES = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0}));" + MAIN
# The writer's thread dies at its first commit.
WRITER_DIES = (
    """
from headwater.log.queue.group_commit import GroupCommit
def die(self, group):
    raise SystemError("a defect")
GroupCommit._store = die
"""
    + MAIN
)
HALF = b"POST /api/v1/lineage HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start servers, and leave none."""
    started: list[HeadwaterProcess] = []

    def start(code: str = MAIN, **settings: Any) -> HeadwaterProcess:
        settings = {"gateway": {"port": 0}} | settings
        server = HeadwaterProcess(tmp_path, "serve", settings=settings, interpreter=("-c", code))
        started.append(server.start())
        return server

    yield start
    for server in started:
        server.__exit__(None, None, None)


def post(server: HeadwaterProcess, **headers: str) -> int:
    return httpx2.post(f"{server.url}/api/v1/lineage", json=EVENT, headers=headers).status_code


def post_token(server: HeadwaterProcess, secret: str) -> int:
    return httpx2.post(
        f"{server.url}/api/v1/s2s/event", json={"a": 1}, headers={"X-Auth-Token": secret}
    ).status_code


# --- the process


def test_it_goes_on_when_signals_come_that_are_not_for_stopping(serve: Serve) -> None:
    server = serve()
    assert post(server) == 200
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGHUP):
        server.send_signal(number)
    wait_until(lambda: "The settings were reloaded: nothing has changed" in server.output)
    assert "SIGUSR1 changes nothing" in server.output
    assert "SIGUSR2 changes nothing" in server.output
    assert "Thread log-writer: " in server.output
    assert post(server) == 200
    assert server.stop() == 0


def test_it_stops_in_order_when_the_supervisor_sends_sigterm_twice(serve: Serve) -> None:
    server = serve(gateway={"port": 0, "shutdown_timeout_seconds": 300, "request_timeout_seconds": 300})
    with socket.create_connection(("127.0.0.1", server.port)) as half:
        half.sendall(HALF)
        server.send_signal(signal.SIGTERM)
        wait_until(lambda: "Stopping on SIGTERM" in server.output)
        server.send_signal(signal.SIGTERM)
        wait_until(lambda: "SIGTERM changes nothing: the process is stopping" in server.output)
        assert server.is_running
    assert server.wait(60) == 0
    assert "Stopped." in server.output


def test_the_process_ends_with_an_error_when_one_of_its_threads_dies(serve: Serve) -> None:
    server = serve(WRITER_DIES, log_format="json", gateway={"port": 0, "shutdown_timeout_seconds": 1})
    with pytest.raises(httpx2.HTTPError):
        httpx2.post(f"{server.url}/api/v1/lineage", json=EVENT, timeout=60)
    assert server.wait(60) == 1
    lines = [json.loads(line) for line in server.output.splitlines()]
    died = [line for line in lines if line["level"] == "critical"]
    assert any("log-writer died" in line["text"] for line in died)
    assert any("SystemError: a defect" in line.get("error", "") for line in died)


def test_sigterm_ends_it_and_the_log_says_why_when_files_run_out(serve: Serve, tmp_path: Path) -> None:
    outlets = [
        {"name": f"o{i}", "type": "file", "path": str(tmp_path / f"{i}" / "events.jsonl")} for i in range(40)
    ]
    server = serve(FEW_FILES.format(80), outlets=outlets)
    clients = []
    try:
        host = ("127.0.0.1", server.port)
        for _ in range(80):
            clients.append(socket.create_connection(host))
        wait_until(lambda: "Connections fail or will soon: " in server.output)
    finally:
        for client in clients:
            client.close()
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0


def test_the_start_names_the_limit_when_there_are_too_few_files(serve: Serve) -> None:
    outlets = [{"name": f"o{i}", "type": "console"} for i in range(8)]
    server = serve(FEW_FILES.format(24), outlets=outlets)
    assert server.wait(60) == 1
    assert "`ulimit -n` is 24" in server.output
    assert "LimitNOFILE=65536" in server.output


# --- a stop that hangs

HANGS = """
import logging, os, signal, threading, time
from headwater.cli.server import signals
logging.basicConfig(level="INFO")
signals.LAST_SECONDS = 0.3
begun = threading.Event()
signals.Signals(begun.set, "in order", stop_seconds=0.3)
os.kill(os.getpid(), signal.SIGTERM)
begun.wait()
"""
IN_PYTHON = "threading.Lock().acquire(); waits_here = threading.Event(); waits_here.wait()"
IN_C = "import ctypes; ctypes.PyDLL(None).sleep(600)"  # with the lock of the interpreter


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=False
    )


def test_the_process_ends_and_names_what_hangs_when_a_stop_takes_too_long() -> None:
    done = run(HANGS + IN_PYTHON)
    assert done.returncode == 1
    assert "The stop takes longer than" in done.stderr
    assert "Thread MainThread: " in done.stderr


def test_the_kernel_ends_the_process_when_no_thread_of_it_can_run() -> None:
    assert run(HANGS + IN_C).returncode == -signal.SIGALRM


# --- SIGHUP


def rewrite(
    server: HeadwaterProcess, settings: dict[str, Any], expected: str, *, by_command: bool = False
) -> None:
    """Change the settings, send SIGHUP or run the command, and wait for the line that reports on it."""
    before = server.output.count(expected)
    server.config.write_text(json.dumps(settings))
    if by_command:
        done = reload(server.config)
        assert done.returncode == 0, done.stderr
        assert f"process {server.pid} reads" in done.stdout
    else:
        os.kill(server.pid, signal.SIGHUP)
    wait_until(lambda: server.output.count(expected) > before, f"another {expected!r}")


def reload(config: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater", "-c", str(config), "reload"]
    return subprocess.run(command, cwd=config.parent, capture_output=True, text=True, check=False)


def test_the_reload_is_refused_when_no_server_runs_or_its_settings_cannot_be_used(tmp_path: Path) -> None:
    config = tmp_path / "headwater.yml"
    config.write_text("{}", encoding="utf-8")
    done = reload(config)
    assert (done.returncode, done.stdout) == (1, "")
    assert "No server runs on this machine" in done.stderr
    config.write_text("gateway: {prot: 1}", encoding="utf-8")
    assert reload(config).returncode == 2


def test_keys_tokens_and_outlets_change_without_a_restart_when_sighup_comes(
    serve: Serve, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    settings: dict[str, Any] = {
        "gateway": {"port": 0, "api_keys": ["old-key"], "admin_token": "old-admin"},
        "tokens": [{"id": "shop", "server_secret": "old-secret"}],
        "outlets": [{"name": "one", "type": "file", "path": str(first)}],
    }
    server = serve(**settings)
    assert post(server, authorization="Bearer old-key") == 200
    assert post_token(server, "old-secret") == 200
    wait_until(first.exists)
    settings["gateway"] |= {"api_keys": ["new-key"], "admin_token": "new-admin"}
    settings["tokens"] = [
        {"id": "shop", "server_secret": "new-secret"},
        {"id": "added", "server_secret": "added-secret"},
    ]
    settings["outlets"] = [{"name": "two", "type": "file", "path": str(second)}]
    rewrite(server, settings, "The settings were reloaded: keys, tokens, outlets.")
    assert post(server, authorization="Bearer old-key") == 401
    assert post(server, authorization="Bearer new-key") == 200
    assert [post_token(server, secret) for secret in ("old-secret", "new-secret", "added-secret")] == [
        401,
        200,
        200,
    ]
    metrics = {
        key: httpx2.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {key}"})
        for key in ("old-admin", "new-admin")
    }
    assert [answer.status_code for answer in metrics.values()] == [401, 200]
    assert "run `headwater log forget one`" in server.output
    # A new outlet begins at the oldest event that is kept; one that is gone is sent nothing more.
    wait_until(lambda: second.exists() and len(second.read_bytes().splitlines()) == 2)
    wait_until(lambda: 'outlet="two"' in metrics_of(server, "new-admin"))
    assert 'headwater_delivery_lag_events{outlet="one"}' not in metrics_of(server, "new-admin")
    assert len(first.read_bytes().splitlines()) == 1
    settings["outlets"][0]["path"] = str(first)
    rewrite(server, settings, "The settings were reloaded: outlets.", by_command=True)
    assert post(server, authorization="Bearer new-key") == 200
    wait_until(lambda: len(first.read_bytes().splitlines()) == 2)
    assert server.stop() == 0
    assert len(second.read_bytes().splitlines()) == 2


def metrics_of(server: HeadwaterProcess, key: str) -> str:
    return httpx2.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {key}"}).text


def test_nothing_changes_when_the_settings_cannot_be_used(serve: Serve, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"gateway": {"port": 0, "api_keys": ["key"]}}
    server = serve(**settings)
    assert post(server, authorization="Bearer key") == 200
    rewrite(server, {"gateway": {"api_kez": []}}, "The settings were not reloaded")
    assert "did you mean `gateway.api_keys`?" in server.output
    wrong = {"gateway": {"api_keys": ["other"]}, "outlets": [{"name": "a", "type": "pigeon"}]}
    rewrite(server, wrong, "`pigeon`")
    assert post(server, authorization="Bearer other") == 401
    rewrite(server, settings | {"data_dir": str(tmp_path / "elsewhere")}, "`data_dir` has changed")
    tokens = [{"id": "a", "server_secret": "secret"}]
    rewrite(server, settings | {"tokens": tokens}, "the first one needs a restart")
    server.config.unlink()
    os.kill(server.pid, signal.SIGHUP)
    wait_until(lambda: server.output.count("were not reloaded") == 3)
    assert post(server, authorization="Bearer key") == 200
    assert server.stop() == 0

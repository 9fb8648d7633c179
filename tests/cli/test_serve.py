from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from headwater.log.queue import offline as inspect
from headwater.testing import OpenLineageServer
from tests.support.server import EVENT, Server

Serve = Callable[..., Server]
NOISE = {"_producer": "https://p.example", "_schemaURL": "https://s.example", "x": os.urandom(100_000).hex()}
HEAVY = (
    "jinja2",
    "pyspark",
    "py4j",
    "duckdb",
    "pyarrow",
    "pandas",
    "numpy",
    "openlineage",
    "rich",
    "granian",
    "httpx2",  # behind a proxy only
    "uvicorn",
)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start servers, and make sure that none is left."""
    servers: list[Server] = []

    def start(
        settings: dict[str, Any] | None = None, folder: str = "first", env: dict[str, str] | None = None
    ) -> Server:
        (tmp_path / folder).mkdir(exist_ok=True)
        servers.append(Server(tmp_path / folder, settings, env))
        return servers[-1]

    yield start
    for server in servers:
        if server.is_running:
            server.kill()
        server.wait(60)


def test_an_event_goes_all_the_way_and_nothing_heavy_is_loaded_when_everything_is_well(serve: Serve) -> None:
    with OpenLineageServer() as backend:
        env = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        server = serve({"outlets": [{"name": "backend", "type": "openlineage", "url": backend.url}]}, env=env)
        assert server.post().status_code == 200
        assert backend.wait_for(1)
        assert server.stop() == 0
    assert backend.events() == [EVENT]
    loaded = (server.folder / "modules.txt").read_text(encoding="utf-8").split()
    assert "headwater.gateway.gateway" in loaded
    assert [name for name in loaded if name.partition(".")[0] in HEAVY] == []
    assert re.search(r"data in \S+/first/headwater-data, outlets: backend\n", server.output)
    (reader,) = inspect.stat(server.folder / "headwater-data" / "log").readers
    assert (reader.name, reader.delivered, reader.lag_events) == ("backend", 1, 0)


def test_every_line_is_json_and_exposure_is_logged_when_the_settings_ask_for_it(serve: Serve) -> None:
    server = serve({"log_format": "json", "gateway": {"host": "0.0.0.0", "port": 0}})
    assert server.port
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.output.splitlines()]
    assert any(line["text"].startswith("headwater listens on") for line in lines)
    warnings = [line["text"] for line in lines if line["level"] == "warning"]
    assert any("`gateway.api_keys` is empty" in text for text in warnings)


def test_an_acknowledged_event_is_delivered_when_the_server_was_stopped_in_between(serve: Serve) -> None:
    with OpenLineageServer() as backend:
        pass  # its port is free again
    outlet = {"name": "backend", "type": "openlineage", "url": backend.url, "retry": {"max_seconds": 0.1}}
    server = serve({"outlets": [outlet]})
    assert server.post().status_code == 200
    assert server.stop(signal.SIGINT) == 0
    with OpenLineageServer(port=int(backend.url.rpartition(":")[2])) as again:
        server = serve({"outlets": [outlet]})
        assert again.wait_for(1)
        assert again.events() == [EVENT]
        assert server.stop() == 0
        assert "log forget" not in server.output
    server = serve({"outlets": [outlet | {"name": "renamed"}]})
    assert server.port
    assert server.stop() == 0
    assert "run `headwater log forget backend`" in server.output


def test_little_memory_is_used_when_the_server_is_idle(serve: Serve) -> None:
    # measuring coverage in it would cost memory of its own
    env = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    outlet = {"name": "a", "type": "openlineage", "url": "http://127.0.0.1:9"}
    server = serve({"outlets": [outlet]}, env=env)
    assert httpx2.get(f"{server.url}/healthz").status_code == 200
    assert psutil.Process(server.pid).memory_info().rss <= 64 * 1024 * 1024


def test_it_quits_at_once_when_it_is_signalled_twice(serve: Serve) -> None:
    server = serve({"gateway": {"port": 0, "shutdown_timeout_seconds": 300, "request_timeout_seconds": 300}})
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as half:
        half.sendall(b"POST /api/v1/lineage HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{")
        deadline = time.monotonic() + 60
        server.send_signal(signal.SIGTERM)
        while "Stopping on SIGTERM" not in server.output:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 128 + signal.SIGINT
    assert "Exiting at once" in server.output


def test_the_second_server_refuses_to_start_when_both_have_one_folder(serve: Serve, tmp_path: Path) -> None:
    first = serve()
    assert first.url
    second = serve({"gateway": {"port": 0}, "data_dir": str(tmp_path / "first" / "headwater-data")}, "second")
    assert second.wait(60) == 1
    assert f"is in use by process {first.pid}" in second.output
    assert "Traceback" not in second.output


def test_the_port_is_named_when_another_process_listens_there(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = serve({"gateway": {"port": port}})
        assert server.wait(60) == 1
    assert f"cannot listen on 127.0.0.1:{port}" in server.output
    assert "`gateway.port`" in server.output
    assert "Traceback" not in server.output


def test_the_key_is_named_when_an_outlets_option_is_wrong(serve: Serve) -> None:
    server = serve({"outlets": [{"name": "a", "type": "openlineage", "ulr": "http://x"}]})
    assert server.wait(60) == 2
    assert "did you mean `url`?" in server.output


def test_the_types_are_named_when_an_outlets_is_unknown(serve: Serve) -> None:
    server = serve({"outlets": [{"name": "a", "type": "pigeon"}]})
    assert server.wait(60) == 1
    assert "`pigeon`" in server.output
    assert "openlineage" in server.output


def test_the_folder_is_named_when_it_cannot_be_made(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    server = serve({"data_dir": str(tmp_path / "file" / "data")})
    assert server.wait(60) == 1
    assert "cannot be made" in server.output
    assert "`data_dir`" in server.output


def test_not_ready_is_answered_with_the_outlets_name_when_it_does_not_move(serve: Serve) -> None:
    server = serve({"outlets": [{"name": "dead", "type": "openlineage", "url": "http://127.0.0.1:9"}]})
    server.post()
    deadline = time.monotonic() + 60
    while (answer := httpx2.get(f"{server.url}/readyz")).status_code != 503:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "outlet dead:" in answer.text
    assert httpx2.get(f"{server.url}/healthz").status_code == 200


def test_lines_are_json_and_numbers_reach_statsd_when_so_configured(serve: Serve) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(60)
        statsd = {"port": udp.getsockname()[1], "prefix": "hw", "interval_seconds": 0.05}
        server = serve({"log_format": "json", "metrics": {"statsd": statsd}})
        server.post()
        received = b""
        while b"hw.gateway_events_accepted:1|c" not in received:
            received = udp.recv(65536)
    assert server.stop() == 0
    lines = [line for line in server.output.splitlines() if not line.startswith("headwater listens")]
    assert lines
    assert all(json.loads(line)["text"] for line in lines)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_starts_and_heals_when_the_disk_is_full(
    serve: Serve, tmp_path: Path, number: signal.Signals
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small tmpfs needs root and the right to mount")
    try:
        settings = {"data_dir": str(disk / "data"), "log": {"collect_seconds": 0.1}}
        first = serve(settings)
        assert first.post().status_code == 200
        first.stop(number)
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        second = serve(settings, "second")
        large = EVENT | {"run": EVENT["run"] | {"facets": {"noise": NOISE}}}  # type: ignore[operator]
        while (answer := second.post(large)).status_code == 200:  # what the reserve has left is used
            pass
        assert answer.status_code == 507
        ballast.unlink()
        deadline = time.monotonic() + 60
        while second.post().status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert second.stop() == 0
        assert (disk / "data" / "reserve").exists()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)

"""The test backend is a real server: what it acknowledged is there after a kill."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2

from headwater.testing import Answer, OpenLineageServer
from tests.delivery.rig import body, eventually, numbers


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(url: str) -> bool:
    try:
        return httpx2.get(url).status_code > 0
    except httpx2.HTTPError:
        return False


def test_events_are_in_the_journal_when_the_process_is_killed(tmp_path: Path) -> None:
    journal, port = tmp_path / "events.ndjson", free_port()
    url = f"http://127.0.0.1:{port}/api/v1/lineage"
    command = [sys.executable, "-m", "headwater.testing.openlineage_server", "--port", str(port)]
    with subprocess.Popen([*command, "--journal", str(journal), "--no-batch"]) as process:
        try:
            assert eventually(lambda: answers(url))
            for i in range(20):
                assert httpx2.post(url, content=body(i)).status_code == 201
            assert httpx2.post(f"{url}/batch", content=b"[]").status_code == 404
        finally:
            process.send_signal(signal.SIGKILL)
    journal.write_bytes(journal.read_bytes() + b'{"i": torn')
    with OpenLineageServer(journal=journal) as server:
        assert numbers(server.received) == list(range(20))
        httpx2.post(f"{server.url}/api/v1/lineage", content=body(20))
    assert numbers(journal.read_bytes().splitlines()) == list(range(21))


def test_the_process_ends_quietly_when_interrupted() -> None:
    port = free_port()
    command = [sys.executable, "-m", "headwater.testing.openlineage_server", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            assert eventually(lambda: answers(f"http://127.0.0.1:{port}/"))
        finally:
            process.send_signal(signal.SIGINT)
        assert process.communicate()[1] == b""


def test_answers_are_as_scripted_when_a_script_is_given() -> None:
    with OpenLineageServer() as server:
        url = f"{server.url}/api/v1/lineage"
        server.answer_next(Answer(status=418, headers={"x-a": "b"}, body=b"teapot"))
        server.answer_always(lambda request: Answer(status=299) if request.number == 2 else None)
        first, second, third = (httpx2.post(url, content=body(i)) for i in range(3))
        assert (first.status_code, first.headers["x-a"], first.text) == (418, "b", "teapot")
        assert (second.status_code, third.status_code) == (299, 201)
        assert numbers(server.received) == [1, 2]
        assert httpx2.get(url).status_code == 405
        assert not server.wait_for(3, 0.01)


def test_a_connection_is_dropped_when_it_speaks_no_http() -> None:
    with OpenLineageServer() as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        try:
            reply = client.recv(100)
        except ConnectionResetError:
            reply = b""
        assert reply == b""

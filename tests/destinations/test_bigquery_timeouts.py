"""A service that takes jobs and never finishes them, or stops answering: each call ends with an error."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("google.cloud.bigquery", reason="missing: pip install 'headwater[bigquery]'")

from headwater.destinations.bigquery import BigQueryDestination, BigQuerySettings
from headwater.errors import DestinationUnavailable


class _Service(ThreadingHTTPServer):
    """Answers as BigQuery does; in the mode `runs` no job ends, in the mode `mute` polls have no answer."""

    daemon_threads = True
    mode = "done"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.closing = threading.Event()
        self.requests: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Service

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.partition("?")[0]
        if path.endswith("/datasets"):
            self._send({"datasetReference": {"projectId": "p", "datasetId": "d"}})
        else:
            self.server.requests.append(body.decode(errors="replace"))
            self._send(self._job())

    def do_PUT(self) -> None:
        self.do_POST()  # the content of a file

    def do_GET(self) -> None:
        if self.server.mode == "mute":
            self.server.closing.wait()
        if "/queries/" in self.path:
            done = self.server.mode == "done"
            self._send({"jobComplete": done, "jobReference": self._job()["jobReference"], "totalRows": "0"})
        elif "/jobs/" in self.path:
            self._send(self._job())
        else:
            self._send({"error": {"code": 404, "message": "not found"}}, 404)

    def _job(self) -> dict[str, object]:
        return {
            "jobReference": {"projectId": "p", "jobId": "j", "location": "US"},
            "configuration": {"query": {"query": "SELECT 1"}},
            "status": {"state": "DONE" if self.server.mode == "done" else "RUNNING"},
        }

    def _send(self, content: object, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Location", f"{self.server.url}/upload/jobs")  # of a file that is sent next
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def service() -> Iterator[_Service]:
    found = _Service()
    yield found
    found.closing.set()
    found.shutdown()
    found.server_close()


@pytest.mark.parametrize("mode", ["runs", "mute"])
def test_a_job_ends_with_an_error_when_the_service_never_finishes_it(
    service: _Service, tmp_path: Path, mode: str
) -> None:
    options = BigQuerySettings(
        project="p", dataset="d", api_endpoint=service.url, timeout_seconds=1, statement_timeout_seconds=1
    )
    destination = BigQueryDestination("bq", options)
    destination.connect()
    service.mode = mode
    with pytest.raises(DestinationUnavailable):
        destination.execute("SELECT 1")
    assert json.loads(service.requests[-1])["configuration"]["jobTimeoutMs"] == "1000"
    file = tmp_path / "rows.parquet"
    file.write_bytes(b"PAR1")
    with pytest.raises(DestinationUnavailable):
        destination.load_file("t", file)
    destination.close()

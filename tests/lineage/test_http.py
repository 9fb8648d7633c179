"""What goes over the wire is what openlineage-python would have sent, and what is unusual is left to it."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pytest
import requests
from openlineage.client import OpenLineageClient
from openlineage.client.transport.http import HttpTransport

from headwater.lineage.sending.http import HttpSender
from tests.lineage.made import event, schema_facet

Seen = tuple[str, dict[str, str], Any]


class Receiver(ThreadingHTTPServer):
    """Answers with the configured responses, then 200; records path, headers and event of each request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.seen: list[Seen] = []
        self.connections: set[Any] = set()
        self.answers: list[tuple[int, dict[str, str]]] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        self.server.connections.add(self.client_address)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        del headers["content-length"]  # of another JSON of the same event
        self.server.seen.append((self.path, headers, json.loads(body)))
        status, answered = self.server.answers.pop(0) if self.server.answers else (200, {})
        self.send_response(status)
        for name, value in ({"Content-Length": "0"} | answered).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *values: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def transport(receiver: Receiver, **config: Any) -> HttpTransport:
    config = {"type": "http", "url": receiver.url, "retry": {"total": 0}} | config
    found = OpenLineageClient(config={"transport": config}).transport
    assert isinstance(found, HttpTransport)
    return found


def large() -> dict[str, Any]:
    made = event(inputs=["a"], outputs=["größe"])
    made["outputs"][0]["facets"] = {"schema": schema_facet(30)}
    return made


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"auth": {"type": "api_key", "apiKey": "secret"}},
        {"compression": "gzip", "custom_headers": {"X-Team": "data", "User-Agent": "us"}},
        {"endpoint": "lineage/here?of=me"},
    ],
    ids=["plain", "with-a-key", "compressed", "elsewhere"],
)
def test_the_request_is_the_same_when_it_is_sent_the_short_way(
    receiver: Receiver, config: dict[str, Any]
) -> None:
    made = large()
    HttpSender(transport(receiver, **config)).emit(made)
    transport(receiver, **config).emit(made)  # type: ignore[arg-type]
    ours, theirs = receiver.seen
    assert ours == theirs
    assert ours[2] == made


def test_one_connection_is_enough_when_there_are_many_events(receiver: Receiver) -> None:
    sender = HttpSender(transport(receiver))
    for number in range(20):
        sender.emit(event(name=f"job {number}"))
    assert [found["job"]["name"] for _, _, found in receiver.seen] == [
        f"job {number}" for number in range(20)
    ]
    assert len(receiver.connections) == 1


@pytest.mark.parametrize(
    "value",
    [None, [None, 1], {"deep": {"gone": None, "kept": 1}}, 2**70, {1: "one"}, object, UUID(int=7), "a:null"],
    ids=["null", "in-a-list", "deep", "large", "key", "class", "uuid", "text"],
)
def test_a_facet_is_written_as_ever_when_its_values_are_unusual(receiver: Receiver, value: object) -> None:
    made = event()
    made["run"]["facets"] = {"mine": {"value": value}}
    HttpSender(transport(receiver)).emit(made)
    transport(receiver).emit(made)  # type: ignore[arg-type]
    ours, theirs = receiver.seen
    assert ours == theirs


def test_an_error_is_raised_when_the_receiver_refuses(receiver: Receiver) -> None:
    receiver.answers = [(400, {}), (503, {})]
    sender = HttpSender(transport(receiver))
    for _ in range(2):
        with pytest.raises(requests.RequestException):
            sender.emit(event())
    sender.emit(event())
    assert len(receiver.seen) == 3


def test_it_is_tried_again_when_the_receiver_is_busy(receiver: Receiver) -> None:
    receiver.answers = [(503, {})]
    again = {"total": 2, "backoff_factor": 0.01, "allowed_methods": ["POST"], "status_forcelist": [503]}
    HttpSender(transport(receiver, retry=again)).emit(event())
    assert len(receiver.seen) == 2


def test_a_redirect_is_followed_when_the_receiver_has_moved(receiver: Receiver) -> None:
    receiver.answers = [(307, {"Location": "/moved"})] * 2
    sender = HttpSender(transport(receiver))
    sender.emit(event())
    sender.emit(event())
    assert [path for path, _, _ in receiver.seen][2:] == ["/moved", "/api/v1/lineage"]


def test_cookies_are_kept_when_the_receiver_sets_some(receiver: Receiver) -> None:
    receiver.answers = [(200, {"Set-Cookie": "node=7"})] * 2
    sender = HttpSender(transport(receiver))
    for _ in range(3):
        sender.emit(event())
    assert [headers.get("cookie") for _, headers, _ in receiver.seen] == [None, None, "node=7"]


def test_the_transport_sends_it_when_it_is_of_another_release(receiver: Receiver) -> None:
    class Other:
        url = receiver.url

        def emit(self, event: dict[str, Any]) -> None:
            made.append(event)

    made: list[dict[str, Any]] = []
    sent = event()
    HttpSender(Other()).emit(sent)  # type: ignore[arg-type]
    assert made == [sent]
    assert receiver.seen == []


def test_the_proxy_is_used_when_the_environment_names_one(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", receiver.url)
    away = OpenLineageClient(config={"transport": {"type": "http", "url": "http://elsewhere.invalid"}})
    assert isinstance(away.transport, HttpTransport)
    HttpSender(away.transport).emit(event())
    assert [path for path, _, _ in receiver.seen] == ["http://elsewhere.invalid/api/v1/lineage"]

"""Fuzzing: whatever is sent, the answer is 2xx or 4xx, it comes, and memory does not grow.

A few hundred examples by default; `HEADWATER_FUZZ_EXAMPLES=100000 pytest tests/gateway/test_fuzz.py` is the
long form.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.running import Running, post, run_event

EXAMPLES = int(os.environ.get("HEADWATER_FUZZ_EXAMPLES", "300"))
CONNECTIONS = 8
LIMITS = {
    "max_event_bytes": 20_000,
    "max_body_bytes": 60_000,
    "max_batch_events": 200,
    "max_depth": 30,
    "max_keys": 500,
}
GROWTH_BYTES = 64 * 2**20  # what caches, the log's own buffers and the allocator may take beyond a warm start

PATHS = ("/api/v1/lineage", "/api/v1/lineage/batch")
TYPES = ("application/json", "application/json; charset=utf-8", "text/plain", "", "application/x+json")
CODINGS = ("gzip", "zstd", "x-gzip", "identity", "br")


class Peers:
    """Several connections in turn; one that the gateway closed is opened anew."""

    def __init__(self, gateway: Running) -> None:
        self._gateway = gateway
        self._open: list[socket.socket | None] = [None] * CONNECTIONS
        self._turn = 0

    def send(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. Raises TimeoutError where none comes."""
        self._turn = (self._turn + 1) % CONNECTIONS
        connection = self._open[self._turn] or self._gateway.connect()
        self._open[self._turn] = connection
        with contextlib.suppress(ConnectionError):  # refused before all of it was sent: the answer is there
            connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += (part := connection.recv(65536))
            assert part, f"closed without an answer: {request[:300]!r}"
        head, _, body = answer.partition(b"\r\n\r\n")
        length = int(re.findall(rb"Content-Length: (\d+)", head)[0])
        while len(body) < length:
            body += (part := connection.recv(65536))
            assert part, "closed in the middle of an answer"
        if b"Connection: close" in head:
            connection.close()
            self._open[self._turn] = None
        return int(head[9:12]), body

    def close(self) -> None:
        for connection in self._open:
            if connection is not None:
                connection.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("fuzz"), **LIMITS) as running:  # type: ignore[arg-type]
        yield running


@pytest.fixture(scope="module")
def peers(gateway: Running) -> Iterator[Peers]:
    peers = Peers(gateway)
    yield peers
    peers.close()


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "\x00"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)
# json.dumps writes NaN and lone surrogates, which JSON does not know: all the better
TEXTS = st.builds(lambda value: json.dumps(value).encode(), VALUES)
EVENTS = st.builds(
    lambda changes: json.dumps(run_event(**changes)).encode(),
    st.dictionaries(
        st.sampled_from(["run", "job", "eventTime", "inputs", "outputs", "producer", "dataset", "more"]),
        VALUES,
        max_size=3,
    ),
)
DEEP = st.builds(
    lambda opening, depth: opening * depth,
    st.sampled_from([b"[", b'{"a":', b"[{", b'["]",']),
    st.integers(1, 9000),
)
BODIES = st.one_of(
    st.binary(max_size=200),
    TEXTS,
    EVENTS,
    DEEP,
    st.builds(lambda parts: b"[" + b",".join(parts) + b"]", st.lists(EVENTS | TEXTS, max_size=4)),
    st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=20), st.integers(1, 5000)),
    st.builds(lambda event, cut: event[:cut], EVENTS, st.integers(0, 400)),
)


def encoded(body: bytes, coding: str) -> bytes:
    if coding in ("gzip", "x-gzip"):
        return gzip.compress(body, 1)
    return zstandard.compress(body) if coding == "zstd" else body


@given(
    body=BODIES,
    path=st.sampled_from(PATHS),
    kind=st.none() | st.sampled_from(TYPES),
    coding=st.none() | st.sampled_from(CODINGS),
    is_honest=st.booleans(),
)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_answer_is_never_5xx_when_bodies_are_made_up(
    gateway: Running,
    peers: Peers,
    body: bytes,
    path: str,
    kind: str | None,
    coding: str | None,
    is_honest: bool,
) -> None:
    headers = [f"Content-Type: {kind}"] if kind is not None else []
    headers += [f"Content-Encoding: {coding}"] if coding is not None else []
    sent = encoded(body, coding or "") if is_honest else body
    status, answer = peers.send(post(sent, *headers, path=path))
    assert status in (200, 400, 413, 415)
    content = json.loads(answer)
    if status != 200:
        assert content["error"]
        assert content["message"]
        assert content["hint"]
        assert content["retryable"] is False
    assert gateway.pending_bytes == 0


def mutated(random_: random.Random, request: bytes) -> bytes:
    changed = bytearray(request)
    for _ in range(random_.randint(1, 6)):
        at = random_.randrange(len(changed))
        match random_.randrange(4):
            case 0:
                changed[at] = random_.randrange(256)
            case 1:
                del changed[at : at + random_.randint(1, 20)]
            case 2:
                changed[at:at] = random_.randbytes(random_.randint(1, 20))
            case _:
                changed[at:at] = changed[at : at + random_.randint(1, 60)]
        if not changed:
            return b"\n"
    return bytes(changed)


def test_gateway_lives_on_when_the_http_itself_is_broken(gateway: Running) -> None:
    random_ = random.Random(7)
    event = json.dumps(run_event()).encode()
    requests = [
        post(event, "Content-Type: application/json"),
        post(gzip.compress(event), "Content-Encoding: gzip", "Expect: 100-continue"),
        b"POST /api/v1/lineage HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n",
        b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
    ]
    for _ in range(max(EXAMPLES // 3, 100)):
        with gateway.connect() as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(mutated(random_, random_.choice(requests)))
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            with contextlib.suppress(ConnectionError):
                while part := connection.recv(65536):
                    answer += part
            told = [int(status) for status in re.findall(rb"^HTTP/1\.1 (\d{3}) ", answer, re.MULTILINE)]
            assert not [status for status in told if status >= 500 and status != 505], answer[:300]
    assert gateway.get("/healthz").status_code == 200
    assert gateway.pending_bytes == 0


def hostile(random_: random.Random) -> tuple[bytes, tuple[str, ...]]:
    """A body that is made to cost much."""
    match random_.randrange(8):
        case 0:
            return gzip.compress(b" " * 1_000_000, 1), ("Content-Encoding: gzip",)
        case 1:
            return zstandard.compress(b"[" * 1_000_000), ("Content-Encoding: zstd",)
        case 2:
            return b"[" + b"0," * random_.randint(1, 20_000) + b"0]", ()
        case 3:
            return b'{"a":' * random_.randint(1, 5000), ()
        case 4:
            return json.dumps({f"k{i}": {} for i in range(random_.randint(1, 2000))}).encode(), ()
        case 5:
            return random_.randbytes(random_.randint(1, 30_000)), ()
        case 6:
            return json.dumps(run_event(inputs=[7] * random_.randint(1, 3000))).encode(), ()
        case _:
            return json.dumps(run_event(n=random_.random())).encode(), ()


def test_memory_does_not_grow_when_hostile_bodies_keep_coming(tmp_path: Path) -> None:
    random_ = random.Random(11)
    process = psutil.Process()
    with Running(tmp_path, **LIMITS) as gateway:  # type: ignore[arg-type]
        peers = Peers(gateway)
        seen: set[int] = set()
        before = 0
        for number in range(EXAMPLES + 200):
            if number == 200:  # warm: parsers compiled, arenas taken
                before = process.memory_info().rss
            body, headers = hostile(random_)
            status, _ = peers.send(post(body, *headers, path=random_.choice(PATHS)))
            seen.add(status)
        peers.close()
        assert seen == {200, 400, 413}
        assert process.memory_info().rss - before < GROWTH_BYTES
        assert gateway.pending_bytes == 0

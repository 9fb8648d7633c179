"""Fuzzing: whatever is sent, the answer is 2xx or 4xx, it comes, and memory does not grow.

Here in short: a few hundred bodies by hypothesis, which shrinks what it finds, and some thousand requests by
the seeded mutator against a process of its own. `make fuzz` is the long form of the latter.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.running import Running, post, run_event
from tests.gateway.shots import shot
from tests.gateway.volley import GROWTH_BYTES, LIMITS, fire

FEW = 40
MANY = 300
CONNECTIONS = 8
SHOTS = 3000
SEED = 7

PATHS = ("/api/v1/lineage", "/api/v1/lineage/batch")
TYPES = ("application/json", "application/json; charset=utf-8", "text/plain", "", "application/x+json")
CODINGS = ("gzip", "zstd", "x-gzip", "identity", "br")


class Peers:
    """Several connections in turn; one that the gateway closed is opened again."""

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
    with Running(tmp_path_factory.mktemp("fuzz"), **LIMITS) as running:
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


REQUESTS = given(
    body=BODIES,
    path=st.sampled_from(PATHS),
    kind=st.none() | st.sampled_from(TYPES),
    coding=st.none() | st.sampled_from(CODINGS),
    is_honest=st.booleans(),
)
HEALTH = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@REQUESTS
@settings(max_examples=FEW, deadline=None, suppress_health_check=HEALTH)
def test_answer_is_never_5xx_when_bodies_are_made_up(gateway: Running, peers: Peers, **made_up: Any) -> None:
    check(gateway, peers, **made_up)


@pytest.mark.long
@REQUESTS
@settings(max_examples=MANY, deadline=None, suppress_health_check=HEALTH)
def test_answer_is_never_5xx_when_many_bodies_are_made_up(
    gateway: Running, peers: Peers, **made_up: Any
) -> None:
    check(gateway, peers, **made_up)


def check(
    gateway: Running,
    peers: Peers,
    *,
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
    received, settled = gateway.fates()
    assert received == settled


def test_nothing_breaks_hangs_or_grows_when_thousands_of_hostile_requests_come(tmp_path: Path) -> None:
    outcome = fire(tmp_path, count=SHOTS, seed=SEED, warm=SHOTS // 4)
    assert outcome.statuses.keys() >= {200, 204, 400, 401, 403, 405, 413, 415}  # it went everywhere
    assert outcome.end_bytes - outcome.warm_bytes < GROWTH_BYTES
    assert outcome.files < CONNECTIONS
    assert outcome.complaints == ""


def test_a_shot_is_the_same_when_it_is_made_again() -> None:
    assert [shot(SEED, number) for number in range(50)] == [shot(SEED, number) for number in range(50)]
    assert shot(SEED, 1) != shot(SEED + 1, 1)

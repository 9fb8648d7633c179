"""Large requests are worked off in slices: others come in between, and each connection keeps its order."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import orjson
import pytest

from headwater.gateway.openlineage_validator import BUDGET_BYTES, Budget, Validator
from headwater.gateway.time_slices import SLICE_BYTES
from tests.gateway.openlineage_corpus import BASE
from tests.gateway.running import TOKENS, Running, post, run_bytes, run_event, statuses

BATCH = "/api/v1/lineage/batch"
SERVER = "X-Auth-Token: web-server"


def deep(levels: int) -> dict[str, Any]:
    """An event whose only violation is in the innermost of nested fields."""
    field: dict[str, Any] = {}
    for _ in range(levels):
        field = {"name": "x", "fields": [field]}
    facets = {"schema": {**BASE, "fields": [field]}}
    return run_event(inputs=[{"namespace": "n", "name": "n", "facets": facets}])


def large_batch(**changes: Any) -> bytes:
    count = 5 * SLICE_BYTES // len(run_bytes(**changes))
    return b"[" + b",".join(run_bytes(n=number, **changes) for number in range(count)) + b"]"


def test_others_are_answered_first_when_a_batch_takes_many_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    begun: list[socket.socket] = []
    with Running(tmp_path) as gateway:
        check = gateway.gateway._lineage.validator.check

        def noting(event: Any, *arguments: Any) -> Any:
            if not order:
                begun.pop().sendall(quick[-1:])  # it is in the kernel before the second slice begins
            order.append(event["job"]["name"])
            return check(event, *arguments)

        monkeypatch.setattr(gateway.gateway._lineage.validator, "check", noting)
        slow = large_batch(job={"namespace": "n", "name": "slow"})
        quick = run_bytes(job={"namespace": "n", "name": "quick"})
        with gateway.connect() as one, gateway.connect() as two:
            head = f"POST {BATCH} HTTP/1.1\r\nHost: t\r\nContent-Length: {len(slow)}\r\n\r\n".encode()
            one.sendall(head + slow[:-1])
            two.sendall(post(quick)[:-1])
            begun.append(two)
            one.sendall(slow[-1:])
            assert b"200 OK" in one.recv(4096)
            assert b"200 OK" in two.recv(4096)
        assert 0 < order.index("quick") < len(order) - 1


@pytest.mark.parametrize("path", [BATCH, "/api/v1/events/bulk", "/api/v1/s2s/events"])
def test_a_connection_keeps_its_order_when_large_and_small_requests_are_pipelined(
    tmp_path: Path, path: str
) -> None:
    """G2, and each request is answered."""
    with Running(tmp_path, tokens=TOKENS) as gateway:
        single = "/api/v1/lineage" if path == BATCH else "/api/v1/s2s/event"
        requests, sent = [], 0
        for turn in range(6):
            events = []
            for _ in range(400 if turn % 2 == 0 else 1):
                events.append(run_event(n=sent, more="x" * 200))
                sent += 1
            lines = [json.dumps(event).encode() for event in events]
            if turn % 2:
                requests.append(post(lines[0], SERVER, path=single))
            elif path.endswith("bulk"):
                requests.append(post(b"\n".join(lines), SERVER, path=path))
            else:
                requests.append(post(b"[" + b",".join(lines) + b"]", SERVER, path=path))
        assert statuses(gateway.talk(b"".join(requests))) == [200] * 6
        if path == BATCH:
            stored = [orjson.loads(body)["n"] for body in gateway.bodies()]
        else:
            stored = [event["n"] for _, event in gateway.stored()]
        assert stored == list(range(sent))
        assert gateway.pending_bytes == 0
        assert gateway.fates() == (sent, sent)


def test_a_request_after_a_large_one_is_answered_500_when_its_handler_has_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Running(tmp_path) as gateway:

        def broken(*arguments: Any) -> None:
            raise RuntimeError("a fault of ours")

        batch = post(large_batch(), path=BATCH)
        monkeypatch.setattr(gateway.gateway._lineage, "_post_event", broken)
        assert statuses(gateway.talk(batch + post(run_bytes()) + get_health())) == [200, 500, 200]
        assert gateway.gateway._lineage._slices.busy == {}


def get_health() -> bytes:
    return b"GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n"


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "event",
    [
        pytest.param({"eventTime": "yesterday"}, id="small"),
        pytest.param(deep(45), id="deep"),
        pytest.param(run_event(inputs=[{"namespace": 1}] * 1_000), id="wide"),
        pytest.param(run_event(run=None, dataset={}), id="two-kinds"),
        pytest.param({**run_event(dataset={}), "run": 5}, id="odd-run"),
    ],
)
def test_the_work_of_finding_violations_is_bounded_when_a_request_has_very_many(
    event: dict[str, Any], strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    validator, budget = Validator(strict=strict), Budget()
    finder, validated = validator._finder, [0]
    compiled = type(finder)._compile

    class Counting:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def is_valid(self, value: Any) -> bool:
            validated[0] += len(orjson.dumps(value))
            return bool(self._inner.is_valid(value))

    monkeypatch.setattr(type(finder), "_compile", lambda *arguments: Counting(compiled(*arguments)))
    size, count = len(orjson.dumps(event)), 500
    for _ in range(count):
        assert not validator.check(event, budget).ok
    # Each event is checked a few times as a whole; all that is beyond that is bounded for the request.
    assert validated[0] <= 8 * size * count + BUDGET_BYTES + 2 * size
    # One event by itself gets its violations named.
    assert validator.check(event).errors[0].rule != "limit"


@pytest.mark.parametrize("left", [0, 1, 5_000, BUDGET_BYTES])
def test_the_verdict_is_the_same_whatever_is_left_of_the_budget(left: int) -> None:
    validator = Validator()
    odd = run_event(producer="not a uri")
    for _ in range(3):
        accepted = validator.check(odd, Budget(left))
        assert accepted.ok
        assert accepted.warnings
        assert not validator.check(run_event(eventTime=5), Budget(left)).ok
        assert validator.check(run_event(), Budget(left)).warnings == ()

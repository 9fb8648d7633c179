"""Any event at all: what is stored is what was sent, with what enrichment adds, on one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.clock import ManualClock
from headwater.gateway.context import Context
from headwater.gateway.senders.tokens import Sender, Token
from headwater.settings import TokenSettings
from tests.gateway.running import TOKENS, Running

TOKEN = Token(TokenSettings(id="web", client_secret="client"), ManualClock())
ADDED = {"source_ip", "_timestamp", "api_key", "src", "eventn_ctx"}
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(sorted(ADDED))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(10**30), max_value=10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
EVENTS = st.dictionaries(KEYS, VALUES, max_size=8)


@given(
    event=EVENTS.filter(lambda event: isinstance(event.get("eventn_ctx", {}), dict | None)),
    is_server=st.booleans(),
    indent=st.sampled_from([None, 0, 2]),
    ascii=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_all_other_fields_are_as_they_came_when_any_event_is_enriched(
    event: dict[str, Any], is_server: bool, indent: int | None, ascii: bool
) -> None:
    context = Context(Sender(TOKEN, is_server, "key"), "192.0.2.1", "agent", "2026-01-01T00:00:00.000000Z")
    line, _ = context.enrich(json.dumps(event, indent=indent, ensure_ascii=ascii).encode())
    assert b"\n" not in line
    assert b"\r" not in line
    stored = json.loads(line)
    assert {key: value for key, value in stored.items() if key not in ADDED} == {
        key: value for key, value in event.items() if key not in ADDED
    }
    inner = event.get("eventn_ctx") or {}
    added = {"user_agent", "event_id"}
    assert {key: value for key, value in stored.get("eventn_ctx", {}).items() if key not in added} == {
        key: value for key, value in inner.items() if key not in added
    }
    assert stored["api_key"] == "key"
    assert stored["source_ip"] not in (None, "")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("events"), tokens=TOKENS, max_depth=20) as running:
        yield running


@pytest.fixture(scope="module")
def client(gateway: Running) -> Iterator[httpx2.Client]:
    with gateway.client() as client:
        yield client


FRAGMENTS = [b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"\n", b"\0", b"\xff", b"1e999", b"-", b"null"]
PIECES = st.sampled_from([*FRAGMENTS, b'"template"', b'"events"', b'"eventn_ctx"', b'{"a":1}', b" "])
BODIES = (
    st.binary(max_size=60)
    | st.lists(PIECES, max_size=14).map(b"".join)
    | VALUES.map(lambda value: json.dumps(value).encode())
    | st.builds(lambda t, e: json.dumps({"template": t, "events": e}).encode(), VALUES, VALUES)
)


REQUESTS = given(
    body=BODIES, path=st.sampled_from(["/api/v1/event", "/api/v1/s2s/events", "/api/v1/events/bulk"])
)


@REQUESTS
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_body_is_taken_or_refused_with_a_reason_when_it_is_hostile(
    client: httpx2.Client, body: bytes, path: str
) -> None:
    check(client, body, path)


def test_each_event_is_accepted_or_refused_when_bodies_were_hostile(gateway: Running) -> None:
    received, settled = gateway.fates()
    assert received == settled > 0


@pytest.mark.long
@REQUESTS
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_body_is_taken_or_refused_with_a_reason_when_many_are_hostile(
    client: httpx2.Client, body: bytes, path: str
) -> None:
    check(client, body, path)


def check(client: httpx2.Client, body: bytes, path: str) -> None:
    secret = "web-client" if path == "/api/v1/event" else "web-server"
    answer = client.post(path, content=body, headers={"x-auth-token": secret})
    assert answer.status_code in (200, 400, 413)
    content = answer.json()
    assert content["hint"] if answer.status_code != 200 else content["status"] in ("ok", "partial")


def test_every_stored_line_is_an_object_when_hostile_bodies_were_sent(gateway: Running) -> None:
    gateway.post(b'{"last": 1}', "/api/v1/event?token=web-client")
    stored = gateway.stored()
    assert stored[-1][1]["last"] == 1
    assert all(isinstance(event, dict) and event["api_key"] for _, event in stored)

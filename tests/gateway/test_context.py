from __future__ import annotations

import json
import uuid
from typing import Any, cast

import pytest

from headwater.clock import ManualClock
from headwater.gateway.context import Context, apply_template, request_context
from headwater.gateway.senders.tokens import Sender, Token
from headwater.http.request import Request
from headwater.http.response import Problem
from headwater.settings import TokenSettings
from headwater.system.network import ClientAddresses

TOKEN = Token(TokenSettings(id="web", client_secret="client", server_secret="server"), ManualClock())
STAMP = "2026-11-16T10:00:00.000000Z"
BROWSER = Context(Sender(TOKEN, False, "client"), "203.0.113.9", "Mozilla/5.0", STAMP)
SERVER = Context(Sender(TOKEN, True, "web"), "203.0.113.9", "curl/8", STAMP)


def enriched(context: Context, event: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(context.enrich(json.dumps(event).encode())[0])
    return found


def test_a_browsers_event_gets_the_gateways_fields_when_it_has_nothing() -> None:
    event = enriched(BROWSER, {"a": 1})
    id = event["eventn_ctx"].pop("event_id")
    assert str(uuid.UUID(id)) == id
    assert event == {
        "a": 1,
        "source_ip": "203.0.113.9",
        "_timestamp": STAMP,
        "api_key": "client",
        "eventn_ctx": {"user_agent": "Mozilla/5.0"},
    }


def test_a_servers_event_gets_the_gateways_fields_when_it_has_nothing() -> None:
    event = enriched(SERVER, {"a": 1})
    assert str(uuid.UUID(event["eventn_ctx"]["event_id"])) == event["eventn_ctx"]["event_id"]
    del event["eventn_ctx"]["event_id"]
    assert event == {
        "a": 1,
        "source_ip": "203.0.113.9",
        "_timestamp": STAMP,
        "api_key": "web",
        "src": "api",
        "eventn_ctx": {},
    }


def test_a_server_is_believed_and_a_browser_is_not_when_they_bring_their_own() -> None:
    own = {"source_ip": "198.51.100.1", "_timestamp": "2020-01-01T00:00:00Z", "src": "shop", "api_key": "x"}
    assert enriched(SERVER, own).items() >= (own | {"api_key": "web"}).items()
    found = enriched(BROWSER, own)
    assert (found["source_ip"], found["_timestamp"], found["src"]) == ("203.0.113.9", STAMP, "shop")


@pytest.mark.parametrize("context", [BROWSER, SERVER], ids=["browser", "server"])
@pytest.mark.parametrize(
    ("event", "id"),
    [
        pytest.param({"eventn_ctx": {"event_id": "e1", "x": 1}}, "e1", id="context"),
        pytest.param({"event_id": "e2"}, "e2", id="top"),
        pytest.param({"event_id": "e2", "eventn_ctx": {"event_id": ""}}, "e2", id="empty"),
        pytest.param({"event_id": "e2", "eventn_ctx": None}, "e2", id="null"),
    ],
)
def test_the_events_own_id_is_kept_when_it_has_one(context: Context, event: dict[str, Any], id: str) -> None:
    assert enriched(context, event)["eventn_ctx"]["event_id"] == id


@pytest.mark.parametrize("event", [{"event_id": 5}, {"event_id": ""}, {"eventn_ctx": {"event_id": None}}])
def test_an_id_is_made_when_the_events_own_is_none(event: dict[str, Any]) -> None:
    assert uuid.UUID(enriched(BROWSER, event)["eventn_ctx"]["event_id"])


def test_no_second_id_is_made_when_the_event_is_flat_already() -> None:
    assert "eventn_ctx" not in enriched(SERVER, {"eventn_ctx_event_id": "e3"})


def test_the_rest_stays_byte_for_byte_when_an_event_is_enriched() -> None:
    body = b'{"big": 123456789012345678901234567890, "f": 1.50e+2, "t": "\\u00e9", "o": {"k" : [1 , 2]}}'
    line, _ = BROWSER.enrich(body)
    for part in (b"123456789012345678901234567890", b"1.50e+2", b'"\\u00e9"', b'{"k" : [1 , 2]}'):
        assert part in line


def test_the_event_is_one_line_when_it_came_on_several() -> None:
    line, _ = BROWSER.enrich(b'{"a":\r\n {"b": [1,\n 2.50], "c": "x\\n"}}')
    assert b"\n" not in line
    assert b"\r" not in line
    assert json.loads(line)["a"] == {"b": [1, 2.5], "c": "x\n"}
    assert b"2.50" in line


@pytest.mark.parametrize(
    "body", [b"[1]", b"5", b'"x"', b"null", b'{"eventn_ctx": "x"}', b'{"eventn_ctx": [1]}']
)
def test_an_event_is_refused_when_it_or_its_context_is_no_object(body: bytes) -> None:
    with pytest.raises(Problem) as raised:
        BROWSER.enrich(body)
    assert (raised.value.status, raised.value.code) == (400, "not_an_object")


def test_an_event_gets_what_it_lacks_when_there_is_a_template() -> None:
    template = b'{"a": 1, "b": {"c": 2, "d": {"e": 3}}, "f": {"g": 1}, "h": [1]}'
    event = b'{"a": 9, "b": {"d": {"x": 4}}, "f": 5, "h": [2]}'
    assert json.loads(apply_template(template, event)) == {
        "a": 9,
        "b": {"c": 2, "d": {"e": 3, "x": 4}},
        "f": 5,
        "h": [2],
    }
    assert json.loads(BROWSER.enrich(event, template)[0])["b"]["c"] == 2


@pytest.mark.parametrize(
    ("peer", "forwarded", "found"),
    [
        ("203.0.113.9", None, "203.0.113.9"),
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),  # any client can send the header
        ("127.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.1.2.3", "6.6.6.6, 198.51.100.1, 10.0.0.7", "198.51.100.1"),
        ("127.0.0.1", "198.51.100.1:5678", "198.51.100.1"),
        ("::1", "[2001:db8::1]:443", "2001:db8::1"),
        ("::1", "2001:db8::2", "2001:db8::2"),
        ("::ffff:203.0.113.9", None, "203.0.113.9"),
        ("::ffff:127.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("127.0.0.1", "unknown", "127.0.0.1"),
        ("127.0.0.1", "198.51.100.1, garbage", "127.0.0.1"),
        ("10.0.0.1", "10.0.0.2", "10.0.0.2"),
        ("", None, ""),
    ],
)
def test_the_address_is_the_farthest_that_can_be_believed_when_there_are_proxies(
    peer: str, forwarded: str | None, found: str
) -> None:
    addresses = ClientAddresses(["127.0.0.0/8", "::1/128", "10.0.0.0/8"])
    assert addresses.find(peer, forwarded or "") == found


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("context", [BROWSER, SERVER], ids=["browser", "server"])
def test_the_trace_of_the_request_is_kept_when_the_event_has_none(context: Context) -> None:
    traced = context._replace(traceparent=TRACE)
    assert enriched(traced, {"a": 1})["eventn_ctx"]["traceparent"] == TRACE
    own = {"eventn_ctx": {"traceparent": "own"}}
    assert enriched(traced, own)["eventn_ctx"]["traceparent"] == "own"
    assert "traceparent" not in enriched(traced, {"eventn_ctx_traceparent": "own"})["eventn_ctx"]
    assert "traceparent" not in enriched(context, {"a": 1})["eventn_ctx"]


@pytest.mark.parametrize(
    ("header", "is_kept"),
    [
        (TRACE, True),
        (TRACE.replace("00-", "cc-", 1), True),
        (TRACE.upper(), False),
        (TRACE.replace("00-", "ff-", 1), False),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", False),
        (f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01", False),
        (TRACE + "-more", False),
        (f"{TRACE}, {TRACE}", False),
        (TRACE + "\n", False),
        ("", False),
    ],
)
def test_a_trace_is_kept_when_it_has_the_form_of_the_w3c(header: str, is_kept: bool) -> None:
    request = Request(cast(Any, None))
    request.headers = {"traceparent": header}
    found = request_context(request, BROWSER.sender, "192.0.2.1", 0.0).traceparent
    assert found == (header if is_kept else "")

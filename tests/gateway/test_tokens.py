from __future__ import annotations

import base64
from typing import Any, cast

import pytest

from headwater.clock import ManualClock
from headwater.gateway.senders.tokens import MAX_PARAMETERS, RateLimit, Token, Tokens
from headwater.http.request import Request
from headwater.settings import TokenSettings
from tests.gateway.running import TOKENS


def a_request(target: str = "/", **headers: str) -> Request:
    request = Request(cast(Any, None))
    request.target = target.encode()
    request.headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return request


BASIC = "Basic " + base64.b64encode(b"web-client:").decode()


@pytest.mark.parametrize(
    "http_request",
    [
        pytest.param(a_request("/?token=web-client"), id="query"),
        pytest.param(a_request("/?x=1&token=web%2Dclient"), id="encoded"),
        pytest.param(a_request(x_auth_token="web-client"), id="header"),
        pytest.param(a_request("/?p_8fj=web-client"), id="disguised"),
        pytest.param(a_request(authorization="Bearer web-client"), id="bearer"),
        pytest.param(a_request(authorization=BASIC), id="basic"),
    ],
)
def test_a_token_is_found_when_its_secret_is_shown_anywhere(http_request: Request) -> None:
    sender = Tokens(TOKENS, ManualClock()).sender(http_request)
    assert sender is not None
    assert (sender.token.id, sender.is_server, sender.api_key) == ("web", False, "web-client")


def test_the_header_of_old_clients_is_read_when_it_has_an_underscore() -> None:
    request = a_request()
    request.headers["api_key"] = "web-client"
    assert Tokens(TOKENS, ManualClock()).sender(request) is not None


def test_a_servers_secret_is_not_what_goes_into_events_when_it_is_shown() -> None:
    sender = Tokens(TOKENS, ManualClock()).sender(a_request(x_auth_token="web-server"))
    assert sender is not None
    assert (sender.is_server, sender.api_key) == (True, "web")


@pytest.mark.parametrize(
    "http_request",
    [
        pytest.param(a_request(), id="nothing"),
        pytest.param(a_request("/?token="), id="empty"),
        pytest.param(a_request("/?token=web"), id="id"),
        pytest.param(a_request(x_auth_token="unknown"), id="unknown"),
        pytest.param(a_request(authorization="Basic %%%"), id="broken"),
        pytest.param(a_request(authorization="Basic \xff"), id="not-ascii"),
        pytest.param(a_request(authorization="Digest web-client"), id="scheme"),
        pytest.param(a_request("/?token=%FF%00"), id="odd"),
    ],
)
def test_no_sender_is_found_when_the_secret_is_unknown(http_request: Request) -> None:
    assert Tokens(TOKENS, ManualClock()).sender(http_request) is None


def test_only_the_first_parameters_are_read_when_a_query_has_very_many() -> None:
    tokens = Tokens(TOKENS, ManualClock())
    few, many = "a=1&" * (MAX_PARAMETERS - 1), "a=1&" * 16_000
    assert tokens.sender(a_request(f"/?{few}token=web-client")) is not None
    assert tokens.sender(a_request(f"/?{many}token=web-client")) is None
    assert tokens.sender(a_request(f"/?{many}", x_auth_token="web-client")) is not None


def test_an_empty_secret_finds_no_sender_when_a_token_has_only_one() -> None:
    tokens = Tokens([TokenSettings(id="a", server_secret="s", client_secret="")], ManualClock())
    assert tokens.sender(a_request("/?token=")) is None


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        ((), "https://anywhere.example", True),
        (("*",), "https://anywhere.example", True),
        (("https://shop.example",), "https://shop.example", True),
        (("https://Shop.example/",), "https://shop.example", True),
        (("https://shop.example",), "http://shop.example", False),
        (("https://shop.example",), "https://shop.example.evil.net", False),
        (("*.example.org",), "https://a.b.example.org:8443", True),
        (("*.example.org",), "https://example.org", True),
        (("*.example.org",), "https://badexample.org", False),
        (("*.example.org",), "null", False),
        (("*.example.org",), "http://[", False),
        (("shop.example",), "http://shop.example", True),
        (("shop.example",), "http://shop.example:81", True),
        (("shop.example:80",), "http://shop.example:81", False),
        (("a.example", "b.example"), "https://b.example", True),
    ],
)
def test_a_page_may_send_when_its_origin_is_listed(
    origins: tuple[str, ...], origin: str, allowed: bool
) -> None:
    token = Token(TokenSettings(id="a", client_secret="s", origins=origins), ManualClock())
    assert token.allows(origin) is allowed


def test_the_bucket_fills_when_time_passes() -> None:
    clock = ManualClock()
    bucket = RateLimit(10, clock)
    bucket.spend(10)
    assert bucket.seconds_to_wait() == 1
    clock.advance(0.5)
    assert bucket.seconds_to_wait() == 0
    bucket.spend(35)  # more than is left: delayed, not refused
    assert bucket.seconds_to_wait() == 3
    clock.advance(3.1)
    assert bucket.seconds_to_wait() == 0
    clock.advance(1000)
    assert bucket.seconds_to_wait() == 0
    bucket.spend(10)
    assert bucket.seconds_to_wait() == 1  # a second's worth at most, however long nothing came


def test_no_request_waits_when_there_is_no_limit() -> None:
    bucket = RateLimit(0, ManualClock())
    bucket.spend(10**9)
    assert bucket.seconds_to_wait() == 0

"""Who may see the page, and change something by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import httpx2
import pytest

from headwater.clock import ManualClock
from headwater.http.request import Request
from headwater.page.access import Guard, own_path
from headwater.page.templating import assets
from headwater.page.urls import PATHS
from headwater.settings import GatewaySettings
from tests.page.served import Shop, running_shop

TOKEN = "a-long-admin-tökén"
READ = sorted(set(PATHS) - {"replay", "drop", "login", "logout"})
WRITE = ("replay", "drop", "logout")
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Asks for a token, and listens on all addresses."""
    with running_shop(tmp_path_factory.mktemp("guarded"), admin_token=TOKEN, host="0.0.0.0") as shop:
        shop.url = shop.url.replace("0.0.0.0", "127.0.0.1")
        shop.host = shop.host.replace("0.0.0.0", "127.0.0.1")
        yield shop


@contextmanager
def signed_in(shop: Shop, token: str = TOKEN) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=shop.url, timeout=60) as client:
        client.post("/login", data={"token": token, "next": "/"}, headers={"Origin": shop.url})
        yield client


@pytest.mark.parametrize("name", READ)
def test_nothing_is_shown_when_the_token_is_missing(guarded: Shop, name: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "headwater=99999999999.0000"}):
        answer = httpx2.get(guarded.address(PATHS[name]), headers=headers, timeout=60)
        assert answer.status_code in (303, 401)
        if answer.status_code == 303:
            assert answer.headers["location"].startswith("/login")
            assert answer.content == b""
        else:
            assert answer.json()["error"] == "unauthorized"


@pytest.mark.parametrize("name", WRITE)
def test_nothing_is_changed_when_the_token_is_missing(guarded: Shop, name: str) -> None:
    answer = httpx2.post(
        guarded.address(PATHS[name]), data={"stage": "gateway"}, headers={"Origin": guarded.url}, timeout=60
    )
    assert answer.status_code == 401


def test_the_page_is_shown_when_the_token_was_given_in_the_form(guarded: Shop) -> None:
    assert httpx2.get(guarded.address("/login"), timeout=60).status_code == 200
    with signed_in(guarded) as client:
        (cookie,) = client.cookies.jar
        assert TOKEN not in (cookie.value or "")
        assert client.get("/").status_code == 200
        assert client.get("/runs").status_code == 200
        client.post("/logout", headers={"Origin": guarded.url})
        assert client.get("/").status_code == 303
    bearer = {b"Authorization": f"Bearer {TOKEN}".encode()}
    assert httpx2.get(guarded.address("/"), headers=bearer, timeout=60).status_code == 200


def test_the_cookie_is_for_us_alone_when_it_is_set(guarded: Shop) -> None:
    answer = httpx2.post(
        guarded.address("/login"), data={"token": TOKEN}, headers={"Origin": guarded.url}, timeout=60
    )
    assert answer.status_code == 303
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(answer.headers["set-cookie"].split("; "))


def test_nobody_is_let_in_when_the_token_or_the_cookie_is_wrong(guarded: Shop) -> None:
    with signed_in(guarded, "guess") as client:
        assert not list(client.cookies.jar)
    with signed_in(guarded) as client:
        (cookie,) = client.cookies.jar
    until, _, proof = (cookie.value or "").partition(".")
    for forged in (f"{int(until) + 1}.{proof}", f"1.{proof}", f"{until}.", "", f"{until}.ü"):
        headers = {b"Cookie": f"headwater={forged}".encode()}
        assert httpx2.get(guarded.address("/runs"), headers=headers, timeout=60).status_code == 303


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", None])
@pytest.mark.parametrize("name", [*WRITE, "login"])
def test_nothing_is_changed_when_another_site_sends_the_form(
    guarded: Shop, name: str, origin: str | None
) -> None:
    headers = {"Origin": origin} if origin else {}
    with signed_in(guarded) as client:
        answer = client.post(PATHS[name], data={"stage": "gateway", "token": TOKEN}, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (403, "foreign_origin")
        cross = {"Origin": guarded.url, "Sec-Fetch-Site": "cross-site"}
        assert client.post(PATHS[name], headers=cross).status_code == 403


def test_only_this_machines_names_are_served_when_there_is_no_token(shop: Shop) -> None:
    for path in (PATHS[name] for name in READ):
        answer = httpx2.get(shop.address(path), headers={"Host": "rebound.example"}, timeout=60)
        assert answer.status_code == 403, path
    answer = httpx2.post(
        shop.address("/rejects/drop"),
        data={"stage": "gateway"},
        headers={"Host": "rebound.example", "Origin": "http://rebound.example"},
        timeout=60,
    )
    assert answer.status_code == 403


def test_nobody_is_served_when_all_addresses_are_open_and_there_is_no_token() -> None:
    guard = Guard(GatewaySettings(host="0.0.0.0"))
    request = Request(cast(Any, None))  # nothing of its connection is asked for
    request.headers = {"host": "127.0.0.1", "origin": "http://127.0.0.1"}
    for gate in (guard.page, guard.data, guard.change):
        refusal = gate(request)
        assert refusal is not None
        assert refusal.status == 403


def test_the_cookie_is_void_when_its_time_is_over() -> None:
    clock = ManualClock()
    guard = Guard(GatewaySettings(admin_token=TOKEN), clock=clock)
    request = Request(cast(Any, None))
    request.headers = {"cookie": guard.cookie().partition(";")[0]}
    assert guard.data(request) is None
    clock.advance(8 * 86_400)
    assert guard.data(request) is not None
    other = Guard(GatewaySettings(admin_token="another"))
    assert other.data(request) is not None


def test_the_browser_is_told_its_limits_when_anything_is_answered(shop: Shop) -> None:
    addresses = ["/", "/runs", "/login", "/rejects", "/dataset?namespace=no&name=no", *assets()]
    for path in (*addresses, "/search.json?q=a"):
        headers = httpx2.get(f"{shop.url}{path}", timeout=60).headers
        assert headers["content-security-policy"].startswith(POLICY), path
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/runs?x=1", "/runs?x=1"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("/a\r\nSet-Cookie: a=b", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)
def test_no_other_site_is_led_to_when_a_form_names_the_way_back(text: str, path: str) -> None:
    assert own_path(text) == path

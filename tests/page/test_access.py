"""Who may see the page and use its forms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from headwater.clock import ManualClock
from headwater.http.request import Request
from headwater.page.access import PageAccess, own_path
from headwater.page.templates import assets
from headwater.page.urls import PATHS
from headwater.settings import GatewaySettings
from tests.graph.events import dataset, run_event, symlinks
from tests.page.client import ORIGIN, PageClient, page_client

TOKEN = "a-long-admin-tökén"
READ = sorted(set(PATHS) - {"replay", "drop", "unlink", "relink", "sign_in", "sign_out"})
WRITE = ("replay", "drop", "unlink", "relink", "sign_out")
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageClient]:
    """Requires a token, and listens on all addresses."""
    with page_client(tmp_path_factory.mktemp("guarded"), admin_token=TOKEN, host="0.0.0.0") as client:
        yield client


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageClient]:
    """Has no token, and listens on a loopback address."""
    with page_client(tmp_path_factory.mktemp("local")) as client:
        yield client


def signed_in(client: PageClient, token: str = TOKEN) -> dict[str, str]:
    """The headers of a browser that sent the sign-in form; empty if it was refused."""
    answer = client.post("/login", {"token": token, "next": "/"}, origin=ORIGIN)
    cookie = answer.headers.get("set-cookie", "").partition(";")[0]
    return {"cookie": cookie} if cookie else {}


@pytest.mark.parametrize("name", READ)
def test_nothing_is_shown_when_the_token_is_missing(guarded: PageClient, name: str) -> None:
    for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "headwater=99999999999.0000"}):
        answer = guarded.get(PATHS[name], **headers)
        assert answer.status_code in (303, 401)
        if answer.status_code == 303:
            assert answer.headers["location"].startswith("/login")
            assert answer.content == b""
        else:
            assert answer.json()["error"] == "unauthorized"


@pytest.mark.parametrize("name", WRITE)
def test_nothing_is_changed_when_the_token_is_missing(guarded: PageClient, name: str) -> None:
    assert guarded.post(PATHS[name], {"stage": "gateway"}, origin=ORIGIN).status_code == 401


def test_the_page_is_shown_when_the_token_was_given_in_the_form(guarded: PageClient) -> None:
    assert guarded.get("/login").status_code == 200
    headers = signed_in(guarded)
    assert TOKEN not in headers["cookie"]
    assert guarded.get("/", **headers).status_code == 200
    assert guarded.get("/runs", **headers).status_code == 200
    signed_out = guarded.post("/logout", {}, origin=ORIGIN, **headers)
    assert signed_out.headers["set-cookie"].startswith("headwater=; ")
    assert guarded.get("/runs", **headers).status_code == 303  # also from a copy of the cookie
    assert guarded.get("/runs", **signed_in(guarded)).status_code == 200
    bearer = f"Bearer {TOKEN}".encode().decode("latin-1")
    assert guarded.get("/", authorization=bearer).status_code == 200


def test_the_cookie_is_limited_to_this_site_when_it_is_set(guarded: PageClient) -> None:
    answer = guarded.post("/login", {"token": TOKEN}, origin=ORIGIN)
    assert answer.status_code == 303
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(answer.headers["set-cookie"].split("; "))


def test_access_is_refused_when_the_token_or_the_cookie_is_wrong(guarded: PageClient) -> None:
    assert signed_in(guarded, "guess") == {}
    until, number, signature = signed_in(guarded)["cookie"].removeprefix("headwater=").split(".")
    rest = f"{number}.{signature}"
    for forged in (f"{int(until) + 1}.{rest}", f"1.{rest}", f"{until}.", "", f"{until}.{number}.ü"):
        assert guarded.get("/runs", cookie=f"headwater={forged}").status_code == 303


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", None])
@pytest.mark.parametrize("name", [*WRITE, "sign_in"])
def test_nothing_is_changed_when_another_site_sends_the_form(
    guarded: PageClient, name: str, origin: str | None
) -> None:
    headers = signed_in(guarded)
    form = {"stage": "gateway", "token": TOKEN}
    answer = guarded.post(PATHS[name], form, **headers, **({"origin": origin} if origin else {}))
    assert (answer.status_code, answer.json()["error"]) == (403, "foreign_origin")
    cross = {"origin": ORIGIN, "sec_fetch_site": "cross-site"}
    assert guarded.post(PATHS[name], {}, **headers, **cross).status_code == 403


def test_only_this_machines_names_are_served_when_there_is_no_token(local: PageClient) -> None:
    for path in (PATHS[name] for name in READ):
        assert local.get(path, host="rebound.example").status_code == 403, path
    rebound = {"host": "rebound.example", "origin": "http://rebound.example"}
    assert local.post("/rejects/drop", {"stage": "gateway"}, **rebound).status_code == 403


def test_no_client_is_served_when_all_addresses_are_open_and_there_is_no_token() -> None:
    access = PageAccess(GatewaySettings(host="0.0.0.0"))
    request = Request(cast(Any, None))  # its connection is not used
    request.headers = {"host": "127.0.0.1", "origin": "http://127.0.0.1"}
    for gate in (access.page, access.data, access.change):
        refusal = gate(request)
        assert refusal is not None
        assert refusal.status == 403


def test_the_cookie_is_void_when_its_time_is_over() -> None:
    clock = ManualClock()
    access = PageAccess(GatewaySettings(admin_token=TOKEN), clock=clock)
    request = Request(cast(Any, None))
    request.headers = {"cookie": access.cookie().partition(";")[0]}
    assert access.data(request) is None
    clock.advance(8 * 86_400)
    assert access.data(request) is not None
    other = PageAccess(GatewaySettings(admin_token="another"))
    assert other.data(request) is not None


def test_a_security_policy_is_sent_when_anything_is_answered(local: PageClient) -> None:
    addresses = ["/", "/runs", "/login", "/rejects", "/dataset?namespace=no&name=no", *assets()]
    for path in (*addresses, "/search.json?q=a"):
        headers = local.get(path).headers
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
def test_a_redirect_stays_on_this_site_when_a_form_names_the_next_page(text: str, path: str) -> None:
    assert own_path(text) == path


def test_names_are_unlinked_and_linked_again_when_the_forms_of_the_page_are_sent(tmp_path: Path) -> None:
    item = dataset("path", symlinks=symlinks(("db", "table")))
    with page_client(tmp_path, [run_event(inputs=[item])]) as client:
        page = client.get("/dataset?namespace=db&name=table").text
        assert "linked with path by namespace jobs" in page
        ends = {"one_namespace": "db", "one_name": "path", "other_namespace": "db", "other_name": "table"}
        assert client.post("/dataset/unlink", ends, origin="https://evil.example").status_code == 403
        answer = client.post("/dataset/unlink", ends, origin=ORIGIN)
        assert answer.headers["location"] == "/dataset?namespace=db&name=path&done=unlink"
        page = client.get(answer.headers["location"]).text
        assert "The names are separated" in page
        assert "Unlinked:" in page
        assert "linked with" not in page.partition("Unlinked:")[0]
        assert client.get("/dataset?namespace=db&name=table").text.count("<h1>table</h1>") == 1
        answer = client.post("/dataset/link", ends, origin=ORIGIN)
        assert answer.headers["location"].endswith("done=relink")
        assert "linked with path" in client.get("/dataset?namespace=db&name=table").text
        unknown = ends | {"other_name": "nothing"}
        assert client.post("/dataset/unlink", unknown, origin=ORIGIN).status_code == 404

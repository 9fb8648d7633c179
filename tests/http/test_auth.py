"""Access: who may send."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.gateway.operator_routes import HIDDEN
from headwater.http.auth import AdminToken, BearerKeys, OperatorAccess
from headwater.http.request import Request
from headwater.settings import GatewaySettings
from tests.gateway.running import Running


def test_every_request_is_allowed_when_there_are_no_keys() -> None:
    access = BearerKeys(())
    assert access.is_empty
    assert access.allow(None)


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("Bearer one", True),
        ("bearer  two ", True),
        ("Bearer three", False),
        ("Bearer One", False),
        ("Bearer ", False),
        ("one", False),
        ("Basic one", False),
        ("", False),
        (None, False),
    ],
)
def test_only_known_keys_are_allowed_when_there_are_some(header: str | None, allowed: bool) -> None:
    assert BearerKeys(("one", "two")).allow(header) is allowed


def test_keys_are_not_kept_when_they_are_known() -> None:
    access = BearerKeys(("a-secret-key",))
    assert "a-secret-key" not in repr(vars(access))
    assert access.refusal.status == 401


def operator_request(host: str | None = None, key: str = "") -> Request:
    request = Request(cast(Any, SimpleNamespace(peer="127.0.0.1")))
    request.headers = {} if host is None else {"host": host}
    if key:
        request.headers["authorization"] = f"Bearer {key}"
    return request


@pytest.mark.parametrize(
    ("bound", "host", "status"),
    [
        ("127.0.0.1", "localhost:8750", 200),
        ("127.0.0.1", "127.0.0.1:8750", 200),
        ("127.0.0.1", "[::1]:8750", 200),
        ("127.0.0.1", "evil.example", 403),
        ("127.0.0.1", "evil.internal", 403),  # nothing else of the network reaches a loopback address
        ("127.0.0.1", "10.1.2.3", 403),
        ("0.0.0.0", "10.1.2.3:8750", 200),  # as Kubernetes and Prometheus name a pod
        ("0.0.0.0", "[2001:db8::1]:8750", 200),
        ("0.0.0.0", "headwater:8750", 200),
        ("0.0.0.0", "headwater.monitoring.svc:8750", 200),
        ("0.0.0.0", "headwater.monitoring.svc.cluster.local", 200),
        ("0.0.0.0", "Box.LAN.", 200),
        ("0.0.0.0", "evil.example", 403),
        ("0.0.0.0", "10.1.2.3.evil.example:80", 403),
        ("0.0.0.0", "local.evil.example", 403),
        ("gateway.example.org", "gateway.example.org:8750", 200),
        ("gateway.example.org", "evil.example.org", 403),
    ],
)
def test_metrics_are_served_when_the_name_is_not_one_of_a_foreign_site(
    bound: str, host: str, status: int
) -> None:
    refusal = OperatorAccess(GatewaySettings(host=bound)).authorize(operator_request(host))
    assert (200 if refusal is None else refusal.status) == status


@pytest.mark.parametrize("settings", [{"api_keys": ("one",)}, {"admin_token": "one"}])
def test_metrics_need_a_key_when_there_is_one(settings: dict[str, Any]) -> None:
    access = OperatorAccess(GatewaySettings(**settings))
    assert access.authorize(operator_request("evil.example", "one")) is None
    for key in ("", "two"):
        refusal = access.authorize(operator_request("localhost", key))
        assert refusal is not None
        assert refusal.status == 401


def test_readiness_is_answered_without_its_reasons_when_the_name_is_foreign(tmp_path: Path) -> None:
    reason = "outlet a: https://user@backend.example cannot be reached"
    with Running(tmp_path, health=lambda: [reason]) as gateway:
        own, foreign = gateway.get("/readyz"), gateway.get("/readyz", {"host": "evil.example"})
        assert (own.status_code, own.json()) == (503, {"ready": False, "reasons": [reason]})
        assert foreign.status_code == 503
        assert "backend" not in foreign.text
        assert foreign.json()["reasons"] == [HIDDEN]
        assert gateway.get("/metrics", {"host": "evil.example"}).status_code == 403
        assert gateway.get("/metrics", {"x-forwarded-for": "192.0.2.1"}).status_code == 403
        assert gateway.get("/healthz", {"host": "evil.example"}).status_code == 200
    with Running(tmp_path / "all", host="0.0.0.0", api_keys=("one",), health=lambda: [reason]) as gateway:
        assert gateway.get("/readyz", {"host": "10.1.2.3"}).json() == {"ready": False, "reasons": [HIDDEN]}
        key = {"host": "10.1.2.3", "authorization": "Bearer one"}
        assert gateway.get("/readyz", key).json()["reasons"] == [reason]
    with Running(tmp_path / "ready", host="0.0.0.0", api_keys=("one",)) as gateway:
        assert gateway.get("/readyz", {"host": "evil.example"}).json() == {"ready": True, "reasons": []}


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_request_is_not_from_this_machine_when_it_came_by_the_version_of_proxies(version: str) -> None:
    # as nginx forwards with `proxy_pass http://127.0.0.1:8750` and nothing else
    request = operator_request("127.0.0.1:8750")
    request.version = version
    for access in (AdminToken(GatewaySettings()), OperatorAccess(GatewaySettings())):
        refusal = access.authorize(request)
        assert (refusal is None) == (version == "1.1")

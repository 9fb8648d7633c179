"""Routes are found with little work, whatever the path is."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headwater.http.request import Request
from headwater.http.response import Response
from headwater.http.routing import router
from headwater.http.routing.router import Router


def test_few_segments_are_decoded_when_a_path_has_thousands(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = Router()
    routes.add("GET", "/jobs/{name}", lambda request: None)
    decoded: list[str] = []

    def counted(text: str) -> str:
        decoded.append(text)
        return text

    monkeypatch.setattr(router, "unquote", counted)
    request = Request(cast(Any, None))
    request.method = "GET"
    request.target = b"/%41" * 16_000
    found = routes.find(request)
    assert isinstance(found, Response)
    assert found.status == 404
    assert decoded == []
    request.target = b"/jobs/a%2Fb"
    assert not isinstance(routes.find(request), Response)
    assert decoded == ["", "jobs", "a%2Fb"]

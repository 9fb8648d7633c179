"""Keys, the admin token and server secrets stay in memory, wherever a request shows them (G12)."""

from __future__ import annotations

import base64
import gzip
import logging
from pathlib import Path

import httpx2
import pytest

from tests.gateway.running import run_bytes
from tests.page.test_served import Served

API_KEY, ADMIN, SERVER = "key-5aX9producer", "admin-7Qz3token", "server"
EVENT = b'{"event_type": "pageview", "price": 12.5}'


def shown(secret: str) -> list[tuple[dict[str, str], str]]:
    """The headers and the query of a request that shows a secret in each place where one may stand."""
    basic = base64.b64encode(f"{secret}:".encode()).decode()
    return [
        ({"authorization": f"Bearer {secret}"}, ""),
        ({"authorization": f"Basic {basic}"}, ""),
        ({"authorization": secret}, ""),
        ({"x-auth-token": secret}, ""),
        ({"api_key": secret}, ""),
        ({"cookie": f"headwater={secret}"}, ""),
        ({}, f"?token={secret}"),
        ({}, f"?p_token={secret}"),
    ]


@pytest.mark.parametrize("secret", [API_KEY, ADMIN, SERVER])
def test_no_secret_is_in_a_file_a_line_or_an_answer_when_requests_show_them_anywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    caplog.set_level(logging.DEBUG, "headwater")
    monkeypatch.setattr("headwater.http.wrong_key_delay.MAX_SECONDS", 0.0)  # the test need not wait
    # of the server secret only a part that nothing else contains
    mark = "s3cr3t-of-" + secret
    secrets = {API_KEY: mark if secret == API_KEY else API_KEY, ADMIN: mark if secret == ADMIN else ADMIN}
    served = Served(
        tmp_path,
        server_secret=mark if secret == SERVER else "server",
        api_keys=(secrets[API_KEY],),
        admin_token=secrets[ADMIN],
    )
    answers = []
    try:
        with httpx2.Client(base_url=served.url, timeout=60) as client:
            for method, path in sorted(served.routes()):
                if path.startswith("/live"):
                    continue  # a live view sends without end
                for headers, query in shown(mark):
                    body = run_bytes() if "lineage" in path else EVENT
                    own = {"content-type": "application/json", **headers}
                    sent = body if method == "POST" else None
                    answers.append(client.request(method, path + query, headers=own, content=sent))
        statuses = {answer.status_code for answer in answers}
        assert 200 in statuses
        assert {401, 403} & statuses
    finally:
        served.close()
    for answer in answers:
        is_page = "location" in answer.headers or "html" in answer.headers.get("content-type", "")
        if is_page and answer.url.query:
            continue  # a link back to the address that the same client has asked for
        said = answer.content + repr(answer.headers.multi_items()).encode()
        assert mark.encode() not in said, answer.url
    assert mark not in caplog.text
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.name.startswith("incoming") for file in files) or secret != SERVER
    for file in files:
        content = file.read_bytes()
        assert mark.encode() not in (gzip.decompress(content) if file.suffix == ".gz" else content), file

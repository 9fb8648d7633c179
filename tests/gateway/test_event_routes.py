from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import zstandard

from headwater.clock import ManualClock
from headwater.log.files.layout import unprocessed
from headwater.settings import TokenSettings
from tests.gateway.running import TOKENS, Running
from tests.log.event_parts import FullDisk, events_in

EVENT = {"event_type": "pageview", "price": 12.5}
BODY = json.dumps(EVENT).encode()
BROWSER = "/api/v1/event?token=web-client"
SERVER = {"x-auth-token": "web-server"}


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/api/v1/event?token=web-client", {}),
        ("/api/v1/events", {"x-auth-token": "web-client"}),
        ("/api/v1/s2s/event", SERVER),
        ("/api/v1/s2s/events", {"authorization": "Bearer web-server"}),
    ],
)
def test_an_event_is_on_disk_when_it_is_answered(tmp_path: Path, path: str, headers: dict[str, str]) -> None:
    with Running(tmp_path, tokens=TOKENS) as gateway:
        answer = gateway.post(BODY, path, {"user-agent": "Tester/1.0"} | headers)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        on_disk = (gateway.events_dir / "incoming" / "incoming.tok=web.log").read_bytes()
        assert on_disk.count(b"\n") == 1
        ((token, event),) = gateway.stored()
        assert token == "web"
        assert event.items() >= EVENT.items()
        assert event["source_ip"] == "127.0.0.1"
        is_server = "s2s" in path
        assert event["api_key"] == ("web" if is_server else "web-client")
        assert event.get("src") == ("api" if is_server else None)
        assert event["eventn_ctx"].get("user_agent") == (None if is_server else "Tester/1.0")
        assert b"web-server" not in on_disk
        assert gateway.count("gateway_events_accepted") == 1
        assert gateway.count("incoming_events_appended", "web") == 1


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'[{"n":1},{"n":2}]', id="array"),
        pytest.param(b' \n [{"n":1},{"n":2}]', id="spaces"),
        pytest.param(b'{"template":{},"events":[{"n":1},{"n":2}]}', id="envelope"),
    ],
)
def test_all_events_are_taken_in_order_when_there_are_several(tmp_path: Path, body: bytes) -> None:
    with Running(tmp_path, tokens=TOKENS) as gateway:
        answer = gateway.post(body, BROWSER)
        assert answer.json() == {"status": "ok", "accepted": 2, "refused": 0, "problems": []}
        assert [event["n"] for _, event in gateway.stored()] == [1, 2]


def test_the_template_is_in_every_event_when_there_is_one(tmp_path: Path) -> None:
    body = {"template": {"a": {"b": 1}, "n": 0}, "events": [{"a": {"c": 2}}, {"n": 5}]}
    with Running(tmp_path, tokens=TOKENS) as gateway:
        gateway.post(json.dumps(body).encode(), BROWSER)
        first, second = (event for _, event in gateway.stored())
    assert (first["a"], first["n"]) == ({"b": 1, "c": 2}, 0)
    assert (second["a"], second["n"]) == ({"b": 1}, 5)


@pytest.mark.parametrize(
    "body", [{"template": {}, "events": 5}, {"template": {}, "events": [], "more": 1}, {"events": []}]
)
def test_it_is_an_event_when_it_only_resembles_an_envelope(tmp_path: Path, body: dict[str, Any]) -> None:
    with Running(tmp_path, tokens=TOKENS) as gateway:
        assert gateway.post(json.dumps(body).encode(), BROWSER).json() == {"status": "ok"}
        ((_, event),) = gateway.stored()
    assert event.items() >= body.items()


def test_the_others_are_taken_when_one_of_several_is_bad(tmp_path: Path) -> None:
    body = b'[{"n":1}, 5, {"n":2,"eventn_ctx":"x"}, {"n":3}, {"n":{"a":{"b":{"c":1}}}}]'
    with Running(tmp_path, tokens=TOKENS, max_depth=3) as gateway:
        answer = gateway.post(body, BROWSER).json()
        assert (answer["status"], answer["accepted"], answer["refused"]) == ("partial", 2, 3)
        assert [(each["index"], each["error"]) for each in answer["problems"]] == [
            (1, "not_an_object"),
            (2, "not_an_object"),
            (4, "too_deep"),
        ]
        assert [event["n"] for _, event in gateway.stored()] == [1, 3]
        assert gateway.count("gateway_events_received") == 5
        assert gateway.count("gateway_events_refused", "not_an_object") == 2


def test_an_array_is_answered_when_it_is_empty_or_all_bad(tmp_path: Path) -> None:
    with Running(tmp_path, tokens=TOKENS) as gateway:
        assert gateway.post(b"[]", BROWSER).json()["accepted"] == 0
        assert gateway.post(b"[1,2]", BROWSER).json()["refused"] == 2
        assert gateway.stored() == []


@pytest.mark.parametrize(
    ("path", "headers", "hint"),
    [
        ("/api/v1/event", {}, "?token="),
        ("/api/v1/event?token=unknown", {}, "?token="),
        ("/api/v1/event", SERVER, "/s2s/"),
        ("/api/v1/s2s/event", {}, "X-Auth-Token"),
        ("/api/v1/s2s/event", {"x-auth-token": "web-client"}, "server_secret"),
        ("/api/v1/events/bulk", {"x-auth-token": "web-client"}, "server_secret"),
    ],
)
def test_a_request_is_refused_when_its_token_is_not_for_it(
    tmp_path: Path, path: str, headers: dict[str, str], hint: str
) -> None:
    with Running(tmp_path, tokens=TOKENS) as gateway:
        answer = gateway.post(BODY, path, headers)
        assert answer.status_code == 401
        assert hint in answer.json()["hint"]
        assert gateway.stored() == []


def test_the_gateways_own_keys_are_not_asked_for_when_a_token_is_shown(tmp_path: Path) -> None:
    with Running(tmp_path, tokens=TOKENS, api_keys=("other",)) as gateway:
        assert gateway.post(BODY, BROWSER).status_code == 200
        assert gateway.post(BODY, "/api/v1/lineage").status_code == 401


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        pytest.param(b"", {}, 400, "bad_json", id="empty"),
        pytest.param(b"{", {}, 400, "bad_json", id="broken"),
        pytest.param(b"5", {}, 400, "not_an_object", id="number"),
        pytest.param(b'{"a":"\xff"}', {}, 400, "bad_utf8", id="utf8"),
        pytest.param(b'{"a":"' + b"x" * 2000 + b'"}', {}, 413, "event_too_large", id="large"),
        pytest.param(b"[" * 2000, {}, 400, "too_deep", id="deep"),
        pytest.param(b"<a/>", {"content-type": "text/xml"}, 415, "unsupported_media_type", id="type"),
        pytest.param(b"{}", {"content-encoding": "br"}, 415, "unsupported_encoding", id="coding"),
        pytest.param(b"{}", {"content-encoding": "gzip"}, 400, "bad_encoding", id="gzip"),
        pytest.param(b'[{"a":1},{"a":1},{"a":1},{"a":1}]', {}, 413, "too_many_events", id="many"),
        pytest.param(
            b'{"template":{"a":"' + b"x" * 900 + b'"},"events":[{},{},{}]}',
            {},
            413,
            "body_too_large",
            id="tpl",
        ),
        pytest.param(b'{"template":[],"events":[{"a":1}]}', {}, 200, "", id="odd-template"),
    ],
)
@pytest.mark.parametrize("origin", [None, "https://page.example"], ids=["none", "page"])
def test_the_reason_is_returned_when_a_body_is_refused(
    tmp_path: Path, body: bytes, headers: dict[str, str], status: int, code: str, origin: str | None
) -> None:
    limits: dict[str, Any] = {"max_event_bytes": 1000, "max_body_bytes": 2500, "max_batch_events": 3}
    with Running(tmp_path, tokens=TOKENS, **limits) as gateway:
        answer = gateway.post(body, BROWSER, headers | ({"origin": origin} if origin else {}))
        assert answer.status_code == status
        assert answer.json().get("error", "") == code
        assert answer.headers.get("access-control-allow-origin") == origin
        assert gateway.stored() == []


def test_a_beacon_is_taken_when_it_calls_its_json_plain_text(tmp_path: Path) -> None:
    with Running(tmp_path, tokens=TOKENS) as gateway:
        answer = gateway.post(BODY, BROWSER, {"content-type": "text/plain;charset=UTF-8"})
        assert answer.status_code == 200
        assert len(gateway.stored()) == 1


LINES = b'{"n":1}\r\n\nnot json\n  \n{"n":2}\n[3]\n{"n":4}'


@pytest.mark.parametrize("coding", ["", "gzip", "zstd"])
@pytest.mark.parametrize("kind", ["application/x-ndjson", "text/plain", "application/json"])
def test_every_line_is_stored_or_listed_when_they_come_in_bulk(
    tmp_path: Path, coding: str, kind: str
) -> None:
    body = {"": LINES, "gzip": gzip.compress(LINES), "zstd": zstandard.compress(LINES)}[coding]
    headers = SERVER | {"content-type": kind} | ({"content-encoding": coding} if coding else {})
    with Running(tmp_path, tokens=TOKENS) as gateway:
        answer = gateway.post(body, "/api/v1/events/bulk", headers).json()
        assert (answer["status"], answer["accepted"], answer["refused"]) == ("partial", 3, 2)
        assert [(each["line"], each["error"]) for each in answer["problems"]] == [
            (3, "bad_json"),
            (6, "not_an_object"),
        ]
        assert [event["n"] for _, event in gateway.stored()] == [1, 2, 4]


def test_the_count_is_limited_when_lines_come_in_bulk(tmp_path: Path) -> None:
    with Running(tmp_path, tokens=TOKENS, max_batch_events=3) as gateway:
        assert gateway.post(b"{}\n" * 3, "/api/v1/events/bulk", SERVER).json()["accepted"] == 3
        assert gateway.post(b"{}\n" * 4, "/api/v1/events/bulk", SERVER).status_code == 413
        assert gateway.post(b"x\n" * 3, "/api/v1/events/bulk", SERVER).json()["refused"] == 3
        headers = SERVER | {"content-type": "multipart/form-data; boundary=x"}
        assert gateway.post(b"{}", "/api/v1/events/bulk", headers).status_code == 415


@pytest.mark.parametrize(
    ("path", "origin", "allowed"),
    [
        ("/api/v1/event?token=app-client", "https://shop.example", True),
        ("/api/v1/event?token=app-client", "https://a.example.org", True),
        ("/api/v1/event?token=app-client", "https://evil.example", False),
        ("/api/v1/events?token=web-client", "https://evil.example", True),
        ("/api/v1/event", "https://evil.example", True),  # the other token has no list
        ("/api/v1/event", None, False),
    ],
)
def test_a_preflight_is_answered_by_origins_when_a_browser_asks(
    tmp_path: Path, path: str, origin: str | None, allowed: bool
) -> None:
    headers = {"origin": origin, "access-control-request-method": "POST"} if origin else {}
    with Running(tmp_path, tokens=TOKENS) as gateway, gateway.client() as client:
        answer = client.options(path, headers=headers)
    assert answer.status_code == 204
    assert answer.headers.get("access-control-allow-origin") == (origin if allowed else None)
    assert ("access-control-allow-methods" in answer.headers) is allowed


def test_a_page_is_refused_when_its_origin_is_not_the_tokens(tmp_path: Path) -> None:
    path = "/api/v1/event?token=app-client"
    with Running(tmp_path, tokens=TOKENS) as gateway:
        refused = gateway.post(BODY, path, {"origin": "https://evil.example"})
        assert (refused.status_code, refused.json()["error"]) == (403, "origin_not_allowed")
        taken = gateway.post(BODY, path, {"origin": "https://shop.example"})
        assert taken.status_code == 200
        assert taken.headers["access-control-allow-origin"] == "https://shop.example"
        assert taken.headers["vary"] == "Origin"
        assert gateway.post(BODY, path).status_code == 200  # not from a page
        assert [token for token, _ in gateway.stored()] == ["app", "app"]


def test_a_token_waits_when_it_sends_too_much_and_no_other_does(tmp_path: Path) -> None:
    clock = ManualClock()
    tokens = [
        TokenSettings(id="slow", client_secret="slow", server_secret="slow-s", rate_limit_per_second=2),
        TokenSettings(id="fast", client_secret="fast"),
    ]
    with Running(tmp_path, tokens=tokens, clock=clock) as gateway:
        assert gateway.post(
            b'[{"n":1},{"n":2},{"n":3},{"n":4},{"n":5}]', "/api/v1/event?token=slow"
        ).is_success
        refused = gateway.post(BODY, "/api/v1/event?token=slow")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        assert refused.json()["retryable"] is True
        assert gateway.post(BODY, "/api/v1/s2s/event", {"x-auth-token": "slow-s"}).status_code == 429
        assert gateway.post(BODY, "/api/v1/event?token=fast").is_success
        clock.advance(2)
        assert gateway.post(BODY, "/api/v1/event?token=slow").is_success
        assert gateway.count("gateway_events_refused", "rate_limited") == 2


def test_nothing_is_acknowledged_when_the_disk_is_full_and_it_heals(tmp_path: Path) -> None:
    disk = FullDisk(room=10)
    with Running(tmp_path, tokens=TOKENS, disk=disk) as gateway:
        for origin in ({"origin": "https://page.example"}, {}):
            full = gateway.post(BODY, BROWSER, origin)
            assert (full.status_code, full.json()["retryable"]) == (507, True)
            assert full.headers["retry-after"] == "10"
            assert full.headers.get("access-control-allow-origin") == origin.get("origin")
        disk.room = 2**20
        assert gateway.post(BODY, BROWSER).status_code == 200
        assert len(gateway.stored()) == 1
        disk.breaks_sync = True
        assert gateway.post(BODY, BROWSER).status_code == 503


def test_every_answered_event_is_in_a_file_once_when_many_send_at_once(tmp_path: Path) -> None:
    sent: list[int] = []
    with Running(tmp_path, tokens=TOKENS) as gateway:

        def send(start: int) -> None:
            with gateway.client() as client:
                for number in range(start, start + 50):
                    if client.post(BROWSER, json={"n": number}).is_success:
                        sent.append(number)

        threads = [threading.Thread(target=send, args=(1000 * i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stored = [event["n"] for _, event in gateway.stored()]
        assert len(sent) == 400
        assert sorted(stored) == sorted(sent)
        for start in range(0, 8000, 1000):  # each sender's own order
            own = [number for number in stored if start <= number < start + 1000]
            assert own == sorted(own)


def test_files_are_complete_when_the_gateway_has_stopped(tmp_path: Path) -> None:
    with Running(tmp_path, tokens=TOKENS) as gateway:
        gateway.post(BODY, BROWSER)
        assert unprocessed(gateway.events_dir) == []
    (file,) = unprocessed(tmp_path / "events")
    (event,) = events_in(file.path)
    assert json.loads(event).items() >= EVENT.items()


def test_memory_of_what_is_added_to_events_is_bounded_when_a_small_body_has_very_many(tmp_path: Path) -> None:
    """A browser chooses the user agent, and every event of its request gets a copy."""
    agent = "x" * 60_000
    headers = {"X-Auth-Token": "web-client", "User-Agent": agent}
    limit = 2 * 1024 * 1024
    with Running(tmp_path, tokens=TOKENS, max_pending_bytes=limit, max_body_bytes=limit) as gateway:

        def send(count: int) -> tuple[int, Any]:
            answer = gateway.post(b"[" + b",".join([b"{}"] * count) + b"]", "/api/v1/event", headers=headers)
            return answer.status_code, answer.json()

        assert send(2_000)[1]["error"] == "busy"
        assert gateway.fates() == (1, 1)
        assert send(100)[0] == 200
        stored = [event for _, event in gateway.stored()]
        assert len(stored) == 100
        assert {event["eventn_ctx"]["user_agent"] for event in stored} == {"x" * 1024}
        assert gateway.pending_bytes == 0

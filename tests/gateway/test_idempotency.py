"""A request that is repeated after a lost answer is stored once, and gets the first one's answer."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.clock import ManualClock
from headwater.gateway.idempotency import BrowserEvents, FirstRequest, Window
from tests.gateway.running import TOKENS, Running, run_bytes, wait_until
from tests.log.event_parts import FullDisk

LINEAGE = "/api/v1/lineage"
BATCH = "/api/v1/lineage/batch"
BROWSER = "/api/v1/event?token=web-client"
SERVER = "/api/v1/s2s/event?token=web-server"
BULK = "/api/v1/events/bulk?token=web-server"


def event(id: str, **more: Any) -> bytes:
    return json.dumps({"eventn_ctx": {"event_id": id}} | more).encode()


def stored_ids(gateway: Running) -> list[str]:
    return [event["eventn_ctx"]["event_id"] for _, event in gateway.stored()]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (LINEAGE, run_bytes()),
        (LINEAGE, run_bytes(producer="not a uri")),
        (BATCH, b"[" + run_bytes() + b",{}]"),
        (SERVER, b'{"n":1}'),
        (BULK, b'{"n":1}\n5\n{"n":2}'),
        (BROWSER, b'{"n":1}'),
        (BROWSER, event("a")),
    ],
)
def test_events_are_stored_once_when_a_request_is_repeated_with_its_key(
    tmp_path: Path, path: str, body: bytes
) -> None:
    headers = {"idempotency-key": "6d9f2c9e-4f5b-4f0e-9d0c-0f4a4d1c7a11"}
    with Running(tmp_path, tokens=TOKENS) as gateway:
        first, again = gateway.post(body, path, headers), gateway.post(body, path, headers)
        assert first.status_code == again.status_code == 200
        assert first.content == again.content
        once = len(gateway.events()) + len(gateway.stored())
        assert gateway.post(body, path, {"idempotency-key": "another"}).status_code == 200
        assert len(gateway.events()) + len(gateway.stored()) == 2 * once
        received, settled = gateway.fates()
        assert received == settled


def test_a_key_is_refused_when_it_was_sent_with_another_body_or_is_none(tmp_path: Path) -> None:
    with Running(tmp_path, tokens=TOKENS) as gateway:
        key = {"idempotency-key": "k"}
        assert gateway.post(run_bytes(), headers=key).status_code == 200
        for path, status in ((LINEAGE, 422), (SERVER, 200), (BULK, 200), (SERVER, 200), (BROWSER, 200)):
            body = run_bytes() if path == LINEAGE else b"{}"
            assert gateway.post(body, path, key).status_code == status
        assert gateway.post(b'{"other": 1}', BROWSER, key).json()["error"] == "idempotency_key_reused"
        for bad in ("", "x" * 256, "a\tb"):
            answer = gateway.post(run_bytes(), headers={"idempotency-key": bad})
            assert (answer.status_code, answer.json()["error"]) == (400, "bad_idempotency_key")
        assert len(gateway.events()) == 1
        assert len(gateway.stored()) == 3
        received, settled = gateway.fates()
        assert received == settled


def test_a_refused_request_is_tried_again_when_it_is_repeated(tmp_path: Path) -> None:
    key = {"idempotency-key": "k"}
    disk = FullDisk()
    with Running(tmp_path, tokens=TOKENS, disk=disk) as gateway:
        disk.room = 0
        assert gateway.post(b"{}", SERVER, key).status_code == 507
        assert gateway.post(event("a"), BROWSER).status_code == 507
        disk.room = 2**40
        assert gateway.post(b"{}", SERVER, key).status_code == 200
        assert gateway.post(event("a"), BROWSER).status_code == 200
        assert len(gateway.stored()) == 2


def test_a_browsers_event_is_stored_once_when_it_comes_again_with_its_id(tmp_path: Path) -> None:
    with Running(tmp_path, tokens=TOKENS) as gateway:
        batch = b"[" + event("a") + b"," + event("b") + b"," + event("c") + b"]"
        for _ in range(2):
            assert gateway.post(event("a"), BROWSER).json() == {"status": "ok"}
            answer = gateway.post(batch, BROWSER).json()
            assert (answer["accepted"], answer["refused"]) == (3, 0)
        assert sorted(stored_ids(gateway)) == ["a", "b", "c"]
        assert gateway.count("gateway_events_repeated") == 1 + 1 + 3
        received, settled = gateway.fates()
        assert received == settled


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(event("a", n=1), event("a", n=2), id="same-id-other-content"),
        pytest.param(b'{"n":1}', b'{"n":1}', id="no-id"),
        pytest.param(b'{"event_id":"a"}', b'{"event_id":"a"}', id="an-id-of-something-else"),
        pytest.param(b'{"x":{"event_id":"a"}}', b'{"x":{"event_id":"a"}}', id="a-nested-id"),
        pytest.param(event(""), event(""), id="empty-id"),
        pytest.param(
            b"[" + event("a") + b"," + event("a") + b"]", b"[" + event("b") + b"]", id="twice-in-one-request"
        ),
    ],
)
def test_both_events_are_stored_when_they_are_not_the_same(
    tmp_path: Path, first: bytes, second: bytes
) -> None:
    with Running(tmp_path, tokens=TOKENS) as gateway:
        for body in (first, second):
            assert gateway.post(body, BROWSER).status_code == 200
        assert len(gateway.stored()) == (3 if first.startswith(b"[") else 2)


def test_each_event_is_stored_when_a_server_sends_it_or_it_is_switched_off(tmp_path: Path) -> None:
    with Running(tmp_path / "server", tokens=TOKENS) as gateway:
        for _ in range(2):
            gateway.post(event("a"), SERVER)
        assert len(gateway.stored()) == 2
    with Running(tmp_path / "off", tokens=TOKENS, idempotency_seconds=0) as gateway:
        for _ in range(2):
            gateway.post(event("a"), BROWSER)
            gateway.post(b"{}", SERVER, {"idempotency-key": "k"})
        assert len(gateway.stored()) == 4


class HeldDisk(FullDisk):
    """A disk whose syncs wait until they may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = threading.Event()

    def sync(self, fd: int) -> None:
        self.may_go.wait(20)
        super().sync(fd)


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("fails", [False, True])
def test_no_repetition_is_answered_before_the_first_is_on_disk(
    tmp_path: Path, key: str | None, fails: bool
) -> None:
    """G1 for the second request too."""
    disk = HeldDisk()
    headers = {} if key is None else {"idempotency-key": key}
    answers: list[httpx2.Response] = []
    with Running(tmp_path, tokens=TOKENS, disk=disk) as gateway:

        def send() -> None:
            answers.append(gateway.post(event("a"), BROWSER, headers))

        def in_hand() -> bool:
            return gateway.pending_bytes >= 3 * len(event("a"))

        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_until(in_hand)
        assert answers == []
        disk.breaks_sync = fails
        disk.may_go.set()
        for thread in threads:
            thread.join()
        assert {answer.status_code for answer in answers} == ({503} if fails else {200})
        if fails:
            disk.breaks_sync = False
            assert gateway.post(event("a"), BROWSER, headers).status_code == 200
        assert stored_ids(gateway).count("a") == 1
        assert gateway.pending_bytes == 0


def test_every_id_is_stored_once_when_many_send_overlapping_batches_at_once(tmp_path: Path) -> None:
    """Whatever the order, each event that was answered 200 is there, and there once."""
    with Running(tmp_path, tokens=TOKENS) as gateway:

        def send(seed: int) -> None:
            with gateway.client() as client:
                for turn in range(20):
                    ids = [f"{(seed + turn * step) % 40}" for step in (1, 3, 7)]
                    batch = b"[" + b",".join(event(id) for id in dict.fromkeys(ids)) + b"]"
                    assert client.post(BROWSER, content=batch).json()["status"] == "ok"

        threads = [threading.Thread(target=send, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ids = stored_ids(gateway)
        assert len(ids) == len(set(ids))
        received, settled = gateway.fates()
        assert received == settled


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "get", "wait"]), st.integers(0, 12), st.floats(0, 30)), max_size=60
    )
)
@settings(max_examples=100, deadline=None)
def test_a_window_keeps_what_is_young_and_never_more_than_its_limit(
    steps: list[tuple[str, int, float]],
) -> None:
    clock = ManualClock()
    window: Window[str] = Window(10.0, clock, max_entries=5)
    put_at: dict[int, float] = {}
    order: list[int] = []
    for what, number, seconds in steps:
        key = b"%d" % number
        if what == "wait":
            clock.advance(seconds)
        elif what == "put":
            window.get(key)
            window.put(key, str(number))
            put_at[number] = clock.monotonic()
            order.append(number)
        else:
            found = window.get(key)
            assert found in (None, str(number))
            if number in put_at:
                age = clock.monotonic() - put_at[number]
                later = order[::-1].index(number)
                assert found is not None or age > 10.0 or later >= 5
                assert found is None or age <= 20.0
        assert len(window) <= 10


def test_memory_is_bounded_when_events_never_end() -> None:
    events = BrowserEvents(600.0, ManualClock())
    for number in range(100_000):
        assert events.claim(FirstRequest(), "web", b"%d" % number) is None
    assert len(events._window) <= 65_536

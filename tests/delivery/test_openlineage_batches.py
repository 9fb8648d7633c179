"""What `batch: auto` makes of each answer of the batch endpoint, at a real server, through a real worker."""

from __future__ import annotations

from collections.abc import Callable
from math import log2

import pytest

from headwater.testing import Answer, OpenLineageServer, Request
from tests.delivery.rig import Rig, eventually

EVENTS = 40

TROUBLED = [
    *(Answer(status=status) for status in (401, 402, 403, 407, 408, 425, 429, 500, 502, 503, 504)),
    *(Answer(status=status, headers={"location": "http://elsewhere/"}) for status in (301, 302, 307)),
    Answer(status=429, headers={"retry-after": "0"}),
    Answer(body=b"OK"),
    Answer(body=b"null"),
    Answer(body=b"{}"),
    Answer(body=b"[]"),
    Answer(body=b'{"status": "ok"}'),
    Answer(body=b'{"status": "partial_success", "failed_events": [{"index": 1000}]}'),
    Answer(body=b'{"status": "partial_success", "failed_events": 7}'),
    Answer(body=b"<html>Please log in", headers={"content-type": "text/html"}),
    Answer(status=201, body=b"\xff\xfe"),
    Answer(headers={"content-encoding": "gzip"}, body=b"not gzip"),
    Answer(cut="before"),
    Answer(cut="middle", body=b"x" * 100),
    Answer(raw=b"220 mail.example ESMTP\r\n"),
    Answer(delay_seconds=60),
]
ABSENT = [Answer(status=status) for status in (404, 405, 501)]
REFUSING = [Answer(status=status) for status in (400, 409, 410, 413, 415, 422)]


def only_batches(answer: Answer) -> Callable[[Request], Answer | None]:
    answer.keep = False
    return lambda request: answer if request.path.endswith("/batch") else None


def name(answer: Answer) -> str:
    shown = answer.raw or answer.body or answer.headers or answer.cut or answer.delay_seconds or ""
    return f"{answer.status} {shown!r}"[:60]


@pytest.mark.parametrize(
    ("answer", "most_batches"),
    [
        # a connection that was cut before the answer may have been a stale one: that request is repeated
        *(pytest.param(answer, 3 if answer.cut else 2, id=name(answer)) for answer in TROUBLED),
        *(pytest.param(answer, 1, id=name(answer)) for answer in ABSENT),
        *(pytest.param(answer, 2 + int(log2(EVENTS)), id=name(answer)) for answer in REFUSING),
    ],
)
def test_all_events_are_delivered_singly_when_only_the_batch_endpoint_fails(
    rig: Rig, backend: OpenLineageServer, answer: Answer, most_batches: int
) -> None:
    batches = 0
    fail = only_batches(answer)

    def count(request: Request) -> Answer | None:
        nonlocal batches
        batches += request.path.endswith("/batch")
        return fail(request)

    backend.answer_always(count)
    rig.append(*range(EVENTS))
    rig.drain(url=backend.url, timeout_seconds=0.1 if answer.delay_seconds else 30)
    assert eventually(rig.settled, 20)
    assert [event["i"] for event in backend.events()] == list(range(EVENTS))
    assert rig.balance()["delivered"] == EVENTS
    assert 1 <= batches <= most_batches


def test_all_events_are_delivered_singly_when_a_batch_answer_asks_to_retry_all_of_them(
    rig: Rig, backend: OpenLineageServer
) -> None:
    def busy(request: Request) -> Answer | None:
        if not request.path.endswith("/batch"):
            return None
        failed = ",".join(f'{{"index": {i}, "retriable": true}}' for i in range(request.body.count(b'"i"')))
        body = f'{{"status": "partial_success", "failed_events": [{failed}]}}'.encode()
        return Answer(body=body, keep=False)

    backend.answer_always(busy)
    rig.append(*range(EVENTS))
    rig.drain(url=backend.url)
    assert eventually(rig.settled, 20)
    assert [event["i"] for event in backend.events()] == list(range(EVENTS))


@pytest.mark.parametrize("status", [401, 500, 503])
def test_batches_are_sent_again_when_an_outage_is_over(
    rig: Rig, backend: OpenLineageServer, status: int
) -> None:
    rig.append(*range(10))
    rig.drain(url=backend.url, max_batch_events=10)
    assert eventually(rig.settled)
    backend.answer_always(Answer(status=status))
    rig.append(*range(10, 100))
    assert eventually(lambda: rig.counter("delivery_retries", "one") >= 3)
    backend.answer_always(None)
    assert eventually(rig.settled)
    assert [event["i"] for event in backend.events()] == list(range(100))
    assert (backend.singles, backend.batches) == (1, 10)


@pytest.mark.parametrize("status", [401, 500])
def test_single_requests_are_made_when_batches_fail_after_some_succeeded(
    rig: Rig, backend: OpenLineageServer, status: int
) -> None:
    rig.append(*range(10))
    rig.drain(url=backend.url)
    assert eventually(rig.settled)
    backend.answer_always(only_batches(Answer(status=status)))
    rig.append(*range(10, 50))
    assert eventually(rig.settled)
    assert [event["i"] for event in backend.events()] == list(range(50))


def test_a_batch_is_repeated_as_it_is_when_a_working_backend_asks_for_a_slower_pace(
    rig: Rig, backend: OpenLineageServer
) -> None:
    rig.append(*range(10))
    rig.drain(url=backend.url)
    assert eventually(rig.settled)
    backend.answer_next(Answer(status=429), Answer(status=429))
    rig.append(*range(10, 50))
    assert eventually(rig.settled)
    assert (backend.singles, backend.batches) == (0, 2)


@pytest.mark.parametrize("bad", [0, 1, 17, EVENTS - 1])
def test_only_the_bad_event_is_refused_when_the_backend_judges_a_batch_as_a_whole(rig: Rig, bad: int) -> None:
    refuse = lambda event: "bad" if event["i"] == bad else None  # noqa: E731
    with OpenLineageServer(refuse=refuse, judges_events=False) as backend:
        rig.append(*range(EVENTS))
        rig.drain(url=backend.url)
        assert eventually(rig.settled)
        rig.append(*range(EVENTS, 2 * EVENTS))
        assert eventually(rig.settled)
        assert [event["i"] for event in backend.events()] == [i for i in range(2 * EVENTS) if i != bad]
        assert rig.balance()["rejected"] == 1
        assert backend.singles <= 3

"""What `batch: auto` makes of each answer of the batch endpoint, at a real server, through a real worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import log2

import orjson
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


GOOD = [
    Answer(status=204),
    Answer(status=200),
    Answer(status=201, body=b"  "),
    Answer(body=b'{"status": "success", "summary": {"received": 40, "successful": 40, "failed": 0}}'),
    Answer(body=b'{"status": "partial_success", "failed_events": []}'),
]


@pytest.mark.parametrize("answer", [pytest.param(answer, id=name(answer)) for answer in GOOD])
def test_each_event_is_sent_once_in_batches_alone_when_the_answer_is_one_of_the_good_ones(
    rig: Rig, backend: OpenLineageServer, answer: Answer
) -> None:
    answer.keep = True
    backend.answer_always(lambda request: answer if request.path.endswith("/batch") else None)
    rig.append(*range(EVENTS))
    rig.drain(url=backend.url, max_batch_events=10)
    assert eventually(rig.settled)
    assert [event["i"] for event in backend.events()] == list(range(EVENTS))
    assert (backend.batches, backend.singles) == (4, 0)


def test_each_event_has_its_own_fate_when_batches_succeed_in_part(
    rig: Rig, backend: OpenLineageServer
) -> None:
    busy = {5, 23}

    def judge(request: Request) -> Answer | None:
        if not request.path.endswith("/batch"):
            return None
        sent = [event["i"] for event in orjson.loads(request.body)]
        failed = []
        for index, i in enumerate(sent):
            if i % 10 == 7:
                failed.append({"index": index, "reason": "no job", "retriable": False})
            elif i in busy:
                busy.discard(i)
                failed.append({"index": index, "reason": "busy", "retriable": True})
        not_taken = {each["index"] for each in failed}
        backend.received += [orjson.dumps({"i": i}) for at, i in enumerate(sent) if at not in not_taken]
        reply = {"status": "partial_success" if failed else "success", "failed_events": failed}
        return Answer(body=orjson.dumps(reply), keep=False)

    backend.answer_always(judge)
    rig.append(*range(EVENTS))
    rig.drain(url=backend.url, max_batch_events=10)
    assert eventually(rig.settled)
    arrived = [event["i"] for event in backend.events()]
    assert sorted(arrived) == [i for i in range(EVENTS) if i % 10 != 7]
    assert rig.balance() == {"delivered": 36, "rejected": 4, "dropped": 0, "lag": 0}
    assert {orjson.loads(reject.body)["i"] for reject in rig.rejects.list()} == {7, 17, 27, 37}


KEPT = [
    Answer(status=500),
    Answer(status=502, body=b"<html>Bad gateway"),
    Answer(body=b"OK"),
    Answer(body=b'{"status": "ok"}'),
    Answer(cut="before"),
    Answer(cut="middle", body=b'{"status": "success"}'),
    Answer(delay_seconds=60),
]


@pytest.mark.parametrize("answer", [pytest.param(answer, id=name(answer)) for answer in KEPT])
def test_only_what_was_in_doubt_is_sent_again_when_the_backend_took_what_it_answers_badly(
    rig: Rig, answer: Answer
) -> None:
    """The events of a batch whose answer was no success may have arrived; no others are repeated."""
    sent: list[list[int]] = []

    class Taking(OpenLineageServer):
        async def handle(self, request: Request, scripted: Answer | None) -> Answer:
            if not request.path.endswith("/batch"):
                return await super().handle(request, scripted)
            events = [event["i"] for event in orjson.loads(request.body)]
            sent.append(events)
            self.received += [orjson.dumps({"i": i}) for i in events]
            await asyncio.sleep(answer.delay_seconds)
            return answer

    with Taking() as backend:
        rig.append(*range(EVENTS))
        rig.drain(url=backend.url, timeout_seconds=0.2 if answer.delay_seconds else 30)
        assert eventually(rig.settled, 20)
        arrived = [event["i"] for event in backend.events()]
        assert list(dict.fromkeys(arrived)) == list(range(EVENTS))
        assert rig.balance()["delivered"] == EVENTS
        # a request on a connection that was closed in that moment is repeated by the client itself
        assert len(sent) <= (3 if answer.cut else 2)
        assert len(arrived) == EVENTS + sum(map(len, sent))
        rig.append(*range(EVENTS, 2 * EVENTS))
        assert eventually(rig.settled, 20)
        assert [event["i"] for event in backend.events()][len(arrived) :] == [*range(EVENTS, 2 * EVENTS)]

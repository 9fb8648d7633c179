"""The outlet worker in front of a real backend, a real log and real rejects: order, faults, restarts."""

from __future__ import annotations

import time
from email.utils import formatdate
from pathlib import Path

import pytest

from headwater.errors import ExtensionError, SettingsError
from headwater.log.rejects.store import RejectStore
from headwater.settings import RetrySettings
from headwater.testing import Answer, OpenLineageServer, Request
from tests.delivery.rig import Rig, body, eventually, numbers


def test_events_arrive_in_order_when_the_backend_takes_batches(rig: Rig, backend: OpenLineageServer) -> None:
    rig.append(*range(100))
    drain = rig.drain(url=backend.url)
    rig.append(*range(100, 200))
    assert backend.wait_for(200)
    assert numbers(backend.received) == list(range(200))
    assert eventually(rig.settled)
    assert rig.balance()["delivered"] == 200
    assert eventually(lambda: rig.counter("delivery_events_delivered", "one") == 200)
    assert drain.trouble() is None
    assert backend.batches > 0


def test_events_arrive_in_order_when_the_backend_has_no_batch_endpoint(
    rig: Rig, backend: OpenLineageServer
) -> None:
    backend.has_batch = False
    rig.append(*range(50))
    rig.drain(url=backend.url)
    assert backend.wait_for(50)
    assert numbers(backend.received) == list(range(50))
    assert backend.requests == 51  # one look for the batch endpoint, then singly


def test_events_arrive_when_the_backend_is_dead_at_start(rig: Rig) -> None:
    backend = OpenLineageServer()
    backend.start()
    backend.stop()
    rig.append(*range(10))
    drain = rig.drain(url=backend.url)
    assert eventually(lambda: drain.trouble() is not None)
    assert "gave no usable answer" in (drain.trouble() or "")
    assert rig.gauge("delivery_failing", "one") == 1
    with backend:
        assert backend.wait_for(10)
        assert numbers(backend.received) == list(range(10))
        assert eventually(lambda: drain.trouble() is None)
        assert rig.gauge("delivery_failing", "one") == 0
        assert rig.counter("delivery_retries", "one") > 0


def test_nothing_is_missing_when_the_backend_dies_midway(rig: Rig, backend: OpenLineageServer) -> None:
    rig.append(*range(300))
    rig.drain(url=backend.url, max_batch_events=10)
    assert backend.wait_for(50)
    backend.stop()
    rig.append(*range(300, 400))
    time.sleep(0.1)
    backend.start()
    assert eventually(rig.settled)
    seen = numbers(backend.received)
    assert sorted(set(seen)) == list(range(400))
    assert len(seen) <= 410  # the batch under way when it died may have come twice
    first_times = list(dict.fromkeys(seen))
    assert first_times == list(range(400))


def test_a_request_is_given_up_and_repeated_when_the_backend_is_slow(
    rig: Rig, backend: OpenLineageServer
) -> None:
    backend.answer_next(Answer(delay_seconds=30, keep=False))
    rig.append(1)
    drain = rig.drain(url=backend.url, timeout_seconds=0.2)
    assert eventually(lambda: "no answer within 0.2 seconds" in (drain.trouble() or ""))
    assert backend.wait_for(1)
    assert numbers(backend.received) == [1]


@pytest.mark.parametrize("status", [301, 401, 403, 404, 408, 425, 429, 500, 502, 503, 507])
def test_an_event_is_sent_again_when_the_answer_says_nothing_against_it(
    rig: Rig, backend: OpenLineageServer, status: int
) -> None:
    backend.answer_next(*[Answer(status=status, body=b"sorry")] * 3)
    rig.append(1, 2)
    rig.drain(url=backend.url, batch="always")
    assert backend.wait_for(2)
    assert numbers(backend.received) == [1, 2]
    assert rig.rejects.counts() == {}


@pytest.mark.parametrize("status", [400, 409, 413, 422])
def test_an_event_becomes_a_reject_when_it_is_refused(
    rig: Rig, backend: OpenLineageServer, status: int
) -> None:
    backend.answer_next(Answer(status=status, body=b'{"error": "not today"}'))
    rig.append(1)
    rig.drain(url=backend.url)
    assert eventually(rig.settled)
    rig.append(2)
    assert backend.wait_for(1)
    assert numbers(backend.received) == [2]
    (reject,) = rig.rejects.list()
    assert (reject.stage, reject.position, reject.body) == ("outlet:one", 1, body(1))
    assert str(status) in reject.reason
    assert "not today" in reject.reason
    assert eventually(rig.settled)
    assert rig.balance() == {"delivered": 1, "rejected": 1, "dropped": 0, "lag": 0}
    assert eventually(lambda: rig.counter("delivery_events_rejected", "one") == 1)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(raw=b"\x00\x01 this is not HTTP\r\n\r\n"), id="not-http"),
        pytest.param(Answer(cut="before", keep=False), id="closed-unanswered"),
        pytest.param(Answer(body=b"x" * 100, cut="middle", keep=False), id="closed-mid-answer"),
        pytest.param(Answer(body=b"{not json", keep=False), id="unreadable-json"),
        pytest.param(Answer(body=b'{"status": "perhaps"}', keep=False), id="unknown-status"),
        pytest.param(
            Answer(body=b'{"status": "partial_success", "failed_events": [{"index": 99}]}', keep=False),
            id="index-out-of-range",
        ),
        pytest.param(
            Answer(headers={"content-encoding": "gzip"}, body=b"no gzip", keep=False), id="broken-encoding"
        ),
    ],
)
def test_events_are_sent_again_when_the_answer_is_garbage(
    rig: Rig, backend: OpenLineageServer, answer: Answer
) -> None:
    backend.answer_next(answer, answer)
    rig.append(1, 2, 3)
    rig.drain(url=backend.url, batch="always")
    assert backend.wait_for(3)
    assert numbers(backend.received) == [1, 2, 3]
    assert backend.requests == 3


def test_an_event_is_sent_again_when_a_web_page_answers(rig: Rig, backend: OpenLineageServer) -> None:
    page = Answer(headers={"content-type": "text/html"}, body=b"<html>please log in</html>", keep=False)
    backend.answer_next(page)
    rig.append(1)
    drain = rig.drain(url=backend.url, retry=RetrySettings(initial_seconds=0.3, max_seconds=0.3))
    assert eventually(lambda: "please log in" in (drain.trouble() or ""))
    assert backend.wait_for(1)


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_the_pause_is_the_receivers_when_it_states_one(
    rig: Rig, backend: OpenLineageServer, form: str
) -> None:
    value = "600" if form == "seconds" else formatdate(time.time() + 600, usegmt=True)
    backend.answer_next(Answer(status=429, headers={"retry-after": value}))
    rig.append(1, k="a")
    drain = rig.drain(url=backend.url, batch="never", group_by=("/k",))
    assert eventually(drain.trouble)
    # pauses of our own are short: another session's go by, one after the other, while this one waits
    for _ in range(5):
        backend.answer_next(Answer(status=503))
    rig.append(2, k="b")
    assert backend.wait_for(1)
    assert numbers(backend.received) == [2]
    assert backend.requests == 1 + 5 + 1


@pytest.mark.parametrize("judges_events", [True, False])
@pytest.mark.parametrize("has_batch", [True, False])
def test_only_the_bad_events_are_rejected_when_a_batch_holds_some(
    rig: Rig, backend: OpenLineageServer, judges_events: bool, has_batch: bool
) -> None:
    bad = {0, 17, 18, 63}
    backend.refuse = lambda event: "a bad number" if event["i"] in bad else None
    backend.judges_events = judges_events
    backend.has_batch = has_batch
    rig.append(*range(64))
    rig.drain(url=backend.url)
    assert eventually(rig.settled)
    assert numbers(backend.received) == [i for i in range(64) if i not in bad]
    assert {numbers([reject.body])[0] for reject in rig.rejects.list()} == bad
    assert all("a bad number" in reject.reason for reject in rig.rejects.list())
    assert rig.balance() == {"delivered": 60, "rejected": 4, "dropped": 0, "lag": 0}


@pytest.mark.parametrize("has_batch", [True, False])
def test_a_bad_event_holds_up_its_successors_when_set_to_block(
    rig: Rig, backend: OpenLineageServer, has_batch: bool
) -> None:
    backend.refuse = lambda event: "bad" if event["i"] == 5 else None
    backend.judges_events = False
    backend.has_batch = has_batch
    rig.append(*range(10))
    drain = rig.drain(url=backend.url, on_refused="block")
    assert backend.wait_for(5)
    assert eventually(lambda: "bad" in (drain.trouble() or ""))
    assert numbers(backend.received) == [0, 1, 2, 3, 4]
    backend.refuse = lambda event: None
    assert backend.wait_for(10)
    assert numbers(backend.received) == list(range(10))
    assert rig.rejects.counts() == {}


def test_a_healthy_outlet_goes_on_when_another_is_dead(
    rig: Rig, backend: OpenLineageServer, tmp_path: Path
) -> None:
    dead = OpenLineageServer()
    dead.start()
    dead.stop()
    rig.append(*range(100))
    failing = rig.drain("dead", url=dead.url)
    healthy = rig.drain("healthy", url=backend.url)
    file = tmp_path / "out" / "events.ndjson"
    rig.drain("disk", "file", path=str(file))
    assert backend.wait_for(100)
    assert eventually(lambda: rig.settled("healthy") and rig.settled("disk"))
    assert numbers(file.read_bytes().splitlines()) == list(range(100))
    assert healthy.trouble() is None
    assert eventually(lambda: failing.trouble() is not None)
    assert rig.balance("dead")["lag"] == 100


def test_outlets_keep_positions_of_their_own_when_restarted(rig: Rig, backend: OpenLineageServer) -> None:
    with OpenLineageServer() as other:
        other.answer_always(Answer(status=503))
        rig.append(*range(20))
        rig.drain("fast", url=backend.url)
        rig.drain("slow", url=other.url)
        assert eventually(lambda: rig.settled("fast"))
        rig.restart()
        other.answer_always(None)
        rig.append(*range(20, 30))
        rig.drain("fast", url=backend.url)
        rig.drain("slow", url=other.url)
        assert eventually(lambda: rig.settled("fast") and rig.settled("slow"))
        assert numbers(backend.received) == list(range(30))
        assert numbers(other.received) == list(range(30))


def test_nothing_is_missing_when_group_by_changes_while_events_wait(
    rig: Rig, backend: OpenLineageServer
) -> None:
    for run, group_by in enumerate([("/key",), (), ("/other",)]):
        for i in range(40 * run, 40 * run + 40):
            rig.append(i, key=i % 3, other=i % 7)
        rig.drain(url=backend.url, group_by=group_by, max_batch_events=3)
        assert backend.wait_for(40 * run + 10)
        rig.restart()  # in the middle of what waits
    rig.drain(url=backend.url)
    assert eventually(rig.settled)
    assert sorted(set(numbers(backend.received))) == list(range(120))
    assert rig.balance()["delivered"] == 120


def test_a_new_outlet_gets_only_new_events_when_it_starts_at_the_latest(
    rig: Rig, backend: OpenLineageServer
) -> None:
    rig.append(1, 2, 3)
    rig.drain(url=backend.url, start="latest")
    rig.append(4, 5)
    assert backend.wait_for(2)
    assert numbers(backend.received) == [4, 5]


def test_nothing_is_sent_twice_when_closed_in_peace(rig: Rig, backend: OpenLineageServer) -> None:
    rig.append(*range(500))
    for _ in range(5):
        seen = len(backend.received)
        rig.drain(url=backend.url, max_batch_events=7)
        assert backend.wait_for(min(500, seen + 60))
        rig.restart()
    rig.drain(url=backend.url)
    assert eventually(rig.settled)
    assert numbers(backend.received) == list(range(500))


def test_a_request_under_way_is_repeated_when_closing_cannot_wait_for_it(
    rig: Rig, backend: OpenLineageServer
) -> None:
    backend.answer_next(Answer(delay_seconds=20, keep=False))
    rig.append(1, 2)
    drain = rig.drain(url=backend.url)
    assert eventually(lambda: backend.requests == 1)
    drain.close(0.1)
    rig.workers.clear()
    assert rig.balance()["lag"] == 2
    rig.drain(url=backend.url)
    assert backend.wait_for(2)
    assert numbers(backend.received) == [1, 2]


def test_a_reject_is_delivered_when_replayed_after_the_fix(rig: Rig, backend: OpenLineageServer) -> None:
    backend.refuse = lambda event: "bad" if event["i"] in (3, 4) else None
    rig.append(*range(10))
    rig.drain(url=backend.url)
    assert eventually(rig.settled)
    assert rig.balance()["rejected"] == 2
    backend.refuse = lambda event: "still bad" if event["i"] == 4 else None
    assert rig.rejects.request_replay(None, "outlet:one") == 2
    assert backend.wait_for(9)
    assert eventually(lambda: rig.balance() == {"delivered": 9, "rejected": 1, "dropped": 0, "lag": 0})
    assert numbers(backend.received)[-1] == 3
    (left,) = rig.rejects.list()
    assert left.tries == 1
    assert "still bad" in left.reason


def test_a_replayed_reject_holds_up_nothing_when_refused_again_under_block(
    rig: Rig, backend: OpenLineageServer
) -> None:
    backend.refuse = lambda event: "bad" if event["i"] == 1 else None
    rig.append(1)
    rig.drain(url=backend.url)
    assert eventually(lambda: rig.balance()["rejected"] == 1)
    rig.restart()
    rig.rejects.request_replay(None)
    rig.drain(url=backend.url, on_refused="block")
    assert eventually(lambda: rig.rejects.list()[0].tries == 1)
    rig.append(2)
    assert backend.wait_for(1)
    assert numbers(backend.received) == [2]


def test_memory_stays_bounded_when_the_backlog_is_large(rig: Rig, backend: OpenLineageServer) -> None:
    text = "x" * 900
    for start in range(0, 100_000, 5_000):
        rig.log.append_wait([body(i, text=text) for i in range(start, start + 5_000)])
    largest = 0
    drain = rig.drain(url=backend.url, session_budget_bytes=2 << 20, max_batch_bytes=1 << 20)
    while not rig.settled():
        largest = max(largest, drain.held_bytes)
        time.sleep(0.002)
    assert len(backend.received) == 100_000
    assert numbers(backend.received) == list(range(100_000))
    assert 0 < largest <= 2 << 20


def test_a_large_event_is_sent_alone_when_it_exceeds_the_budget(rig: Rig, backend: OpenLineageServer) -> None:
    rig.append(1, 2)
    rig.append(3, text="y" * 200_000)
    rig.append(4)
    rig.drain(url=backend.url, session_budget_bytes=1_000, max_batch_bytes=500)
    assert backend.wait_for(4)
    assert numbers(backend.received) == [1, 2, 3, 4]


def test_lag_is_published_when_the_outlet_is_behind(rig: Rig, backend: OpenLineageServer) -> None:
    backend.answer_always(Answer(status=500))
    rig.append(1, 2, 3)
    rig.drain(url=backend.url)
    assert eventually(lambda: rig.gauge("delivery_lag_events", "one") == 3)
    assert eventually(lambda: rig.gauge("delivery_lag_seconds", "one") > 0)
    backend.answer_always(None)
    assert eventually(lambda: rig.gauge("delivery_lag_events", "one") == 0)
    assert eventually(lambda: rig.gauge("delivery_lag_seconds", "one") == 0)


def test_requests_follow_each_other_when_there_is_one_session(rig: Rig, backend: OpenLineageServer) -> None:
    under_way: list[int] = []

    def watch(request: Request) -> Answer | None:
        under_way.append(request.connection)
        return None

    backend.answer_always(watch)
    rig.append(*range(200))
    rig.drain(url=backend.url, max_batch_events=5)
    assert backend.wait_for(200)
    assert len(set(under_way)) == 1  # one connection, kept alive


def test_the_settings_are_refused_when_an_outlet_cannot_be_made(rig: Rig) -> None:
    with pytest.raises(ExtensionError, match="no outlet of the type `pigeon`"):
        rig.drain(type="pigeon")
    with pytest.raises(SettingsError, match="url"):
        rig.drain(url="ftp://example.org")
    with pytest.raises(SettingsError, match=r"urll.*did you mean `url`"):
        rig.drain(urll="http://example.org")
    with pytest.raises(SettingsError, match="not a JSON pointer"):
        rig.drain(url="http://example.org", group_by=("run",))


def test_closing_twice_or_unstarted_does_no_harm_when_done_by_accident(
    rig: Rig, backend: OpenLineageServer
) -> None:
    drain = rig.drain(url=backend.url)
    drain.close(1.0)
    drain.close(1.0)
    assert drain.trouble() is None


def test_the_numbers_add_up_when_rejects_exceed_their_limit(rig: Rig, backend: OpenLineageServer) -> None:
    rig.rejects.close()
    rig.rejects = RejectStore(rig.folder / "rejects.db", max_bytes=1, retention_bytes=5_000)
    backend.answer_next(*[Answer(status=422)] * 60)
    rig.append(*range(60))
    rig.drain(url=backend.url, on_refused="reject", batch="never", max_batch_events=1)
    assert eventually(rig.settled)
    kept = rig.rejects.counts()["outlet:one"]
    assert 0 < kept < 60
    assert eventually(lambda: rig.balance()["dropped"] == 60 - kept)
    assert rig.balance() == {"delivered": 0, "rejected": kept, "dropped": 60 - kept, "lag": 0}
    rig.rejects.request_replay(None)
    assert eventually(lambda: rig.balance()["rejected"] == 0)
    assert rig.balance() == {"delivered": kept, "rejected": 0, "dropped": 60 - kept, "lag": 0}
    assert numbers(backend.received) == list(range(60 - kept, 60))

"""The promises of delivery at a receiver that misbehaves in every way that HTTP and TCP allow."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.settings import LogSettings, RetrySettings
from headwater.testing import Answer
from tests.delivery.hostile_receiver import JSON, REFUSALS, SUCCESS, HostileReceiver, Misdeed
from tests.delivery.rig import Rig, eventually

EXAMPLES, FULL_EXAMPLES = 10, 1_000
AT_ONCE = RetrySettings(initial_seconds=0.001, max_seconds=0.002)
SUCCESS_BODIES = (b"", b"OK", b"null", b"[]", b'{"status":"perhaps"}', *SUCCESS.values())
WISHES = ("0", "1e9", "-1", "soon", "Fri, 15 Jan 2027 08:00:30", "Thu, 01 Jan 1970 00:00:00 GMT", "\x80")

RAW = st.sampled_from(
    [
        b"",
        b"\r\n\r\n",
        b"HTTP/1.1 ",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
        b"HTTP/1.1 503 No\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nab",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 5_000 + b"\r\n",
        b"HTTP/1.1 503 " + b"x" * 70_000 + b"\r\ncontent-length: 0\r\n\r\n",
        b"220 mail.example ESMTP\r\n",
        bytes(range(256)),
    ]
)

# A receiver that answers 2xx has taken the events, and one that refuses them has not.
MISDEEDS = st.one_of(
    st.just(Misdeed(None)),
    st.builds(lambda raw: Misdeed(Answer(raw=raw), takes=True), RAW),
    st.builds(lambda n: Misdeed(None, reset_after=n), st.integers(0, 200)),
    st.builds(lambda n: Misdeed(None, takes=False, reset_after=n), st.integers(0, 60)),
    st.builds(lambda body: Misdeed(Answer(body=body, headers=JSON)), st.sampled_from(SUCCESS_BODIES)),
    st.builds(
        lambda status, wish, takes: Misdeed(
            Answer(status=status, headers={"retry-after": wish}), takes=takes
        ),
        st.sampled_from([300, 301, 304, 401, 403, 404, 405, 408, 425, 429, 500, 501, 502, 503, 504, 599]),
        st.sampled_from(WISHES),
        st.booleans(),
    ),
    st.builds(lambda status: Misdeed(Answer(status=status), takes=False), st.sampled_from(REFUSALS)),
    st.builds(
        lambda cut, takes: Misdeed(Answer(cut=cut, body=b"x" * 50), takes=takes),
        st.sampled_from(["before", "middle"]),
        st.booleans(),
    ),
    st.builds(lambda takes: Misdeed(Answer(delay_seconds=1.0), takes=takes), st.booleans()),
)

OUTLETS: dict[str, dict[str, Any]] = {
    "http": {"type": "http"},
    "http, compressed": {"type": "http", "compression": "gzip"},
    "openlineage, auto": {"type": "openlineage"},
    "openlineage, always": {"type": "openlineage", "batch": "always"},
    "openlineage, never": {"type": "openlineage", "batch": "never"},
    "dataset": {"type": "dataset", "api_key": "token"},
}

plans = st.fixed_dictionaries(
    {
        "outlet": st.sampled_from(list(OUTLETS)),
        "misdeeds": st.lists(MISDEEDS, max_size=15),
        "resets": st.lists(st.integers(0, 400), max_size=6),
        "events": st.integers(1, 40),
        "keys": st.integers(1, 4),
        "grouped": st.booleans(),
        "max_batch_events": st.integers(1, 20),
        "restart": st.booleans(),
    }
)


def run(plan: dict[str, Any]) -> None:
    options = dict(OUTLETS[plan["outlet"]])
    group_by = ("/k",) if plan["grouped"] else ()
    is_awaited = not any(misdeed.answer and misdeed.answer.delay_seconds for misdeed in plan["misdeeds"])
    sent = {i: i % plan["keys"] if plan["grouped"] else 0 for i in range(plan["events"])}
    with (
        tempfile.TemporaryDirectory() as folder,
        Rig(Path(folder), LogSettings()) as rig,
        HostileReceiver(plan["misdeeds"]) as receiver,
    ):
        receiver.reset_next(*plan["resets"])

        def drain() -> None:
            rig.drain(
                url=receiver.url,
                group_by=group_by,
                max_batch_events=plan["max_batch_events"],
                retry=RetrySettings(initial_seconds=0.001, max_seconds=0.002, max_retry_after_seconds=0.01),
                timeout_seconds=30.0 if is_awaited else 0.15,
                recovery_seconds=0.0,
                **options,
            )

        rig.log.append_wait([orjson.dumps({"i": i, "k": i % plan["keys"]}) for i in sent])
        drain()
        if plan["restart"]:
            eventually(lambda: receiver.seen)
            for worker in rig.workers:
                worker.close(10.0)  # in peace: what was acknowledged is recorded
            rig.restart()
            drain()
        assert eventually(rig.settled, 60)
        rejected = [orjson.loads(reject.body)["i"] for reject in rig.rejects.list(limit=1000)]
        receiver.check(sent, rejected, rig.balance(), is_awaited=is_awaited)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=plans)
def test_every_promise_holds_when_the_receiver_misbehaves(plan: dict[str, Any]) -> None:
    run(plan)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_promise_holds_when_the_receiver_misbehaves_for_long(full: bool) -> None:
    @settings(
        max_examples=FULL_EXAMPLES if full else 100,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(plan=plans)
    def search(plan: dict[str, Any]) -> None:
        run(plan)

    search()


@pytest.mark.parametrize(
    ("outlet", "takes"), [("http", False), ("openlineage, never", True), ("dataset", True)]
)
def test_every_promise_holds_when_the_connection_is_reset_at_each_byte_of_an_answer(
    rig: Rig, outlet: str, takes: bool
) -> None:
    body = SUCCESS["/api/addEvents"] if outlet == "dataset" else b""
    whole = len(Answer(body=body, headers=JSON).encode())
    plan = [Misdeed(None, takes=takes, reset_after=n) for n in range(whole)]
    with HostileReceiver(plan) as receiver:
        rig.append(*range(3))
        rig.drain(url=receiver.url, retry=AT_ONCE, **OUTLETS[outlet])
        assert eventually(rig.settled, 60)
        receiver.check(dict.fromkeys(range(3), 0), [], rig.balance())
    assert not receiver.plan


def test_every_promise_holds_when_the_connection_is_reset_at_each_byte_of_a_request(rig: Rig) -> None:
    with HostileReceiver() as receiver:
        receiver.reset_next(*range(300))
        rig.append(*range(3))
        rig.drain(url=receiver.url, retry=AT_ONCE, type="http")
        assert eventually(rig.settled, 60)
        receiver.check(dict.fromkeys(range(3), 0), [], rig.balance())
    assert rig.counter("delivery_retries", "one") >= 150  # each of them before the request was whole

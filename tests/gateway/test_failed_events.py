"""Failed events: the built-in handlers, other people's handlers, and handlers that misbehave."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import ExtensionError
from headwater.gateway.failed_events import MAX_EVENTS, load_handler
from headwater.log.rejects.store import RejectStore
from tests.gateway.running import Running, run_bytes, wait_until


@pytest.fixture
def extension(tmp_path: Path) -> Iterator[None]:
    """A third-party distribution on the path, with its handlers."""
    package = tmp_path / "extension"
    (package / "thirdparty-1.0.dist-info").mkdir(parents=True)
    (package / "thirdparty-1.0.dist-info" / "METADATA").write_text("Name: thirdparty\nVersion: 1.0\n")
    (package / "thirdparty-1.0.dist-info" / "entry_points.txt").write_text(
        "[headwater.failed_handlers]\n"
        "keeping = thirdparty_handlers:Keeping\n"
        "raising = thirdparty_handlers:Raising\n"
        "slow = thirdparty_handlers:Slow\n"
        "unmakeable = thirdparty_handlers:Unmakeable\n"
        "incomplete = thirdparty_handlers:Incomplete\n"
        "absent = thirdparty_handlers:Absent\n"
    )
    (package / "thirdparty_handlers.py").write_text(
        textwrap.dedent(
            """
            import threading

            class Keeping:
                kept, closed = [], []
                def __init__(self, rejects): pass
                def handle(self, events): self.kept.extend(events)
                def close(self): self.closed.append(True)

            class Raising(Keeping):
                def handle(self, events): raise RuntimeError("cannot take them")
                def close(self): raise RuntimeError("cannot even close")

            class Slow(Keeping):
                kept, may_go = [], threading.Event()
                def handle(self, events):
                    self.may_go.wait(20)
                    super().handle(events)

            class Unmakeable(Keeping):
                def __init__(self, rejects): raise ValueError("no licence")

            class Incomplete:
                def __init__(self, rejects): pass
            """
        )
    )
    sys.path.insert(0, str(package))
    yield
    sys.path.remove(str(package))
    sys.modules.pop("thirdparty_handlers", None)


def test_event_is_in_the_rejects_when_nothing_else_is_set(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway:
        assert gateway.post(b'{"a": 1}').status_code == 400
        assert [reject.body for reject in gateway.open_rejects()] == [b'{"a": 1}']
        assert gateway.open_rejects()[0].reason.startswith("Not compliant with OpenLineage")
        assert gateway.open_rejects()[0].received_at > 0


def test_a_body_is_kept_whole_up_to_the_limit_and_is_marked_when_it_is_cut(tmp_path: Path) -> None:
    with Running(tmp_path, max_failed_bytes=100) as gateway:
        for body in (b"x" * 100, b"x" * 101, b"[" * 1000):
            assert gateway.post(body, "/api/v1/lineage/batch").status_code == 400
        whole, cut, deep = gateway.open_rejects()
        assert (whole.body, whole.details) == (b"x" * 100, [])
        assert (cut.body, [each["rule"] for each in cut.details]) == (b"x" * 100, ["cut"])
        assert "first 100 of its 101 bytes" in cut.details[0]["reason"]
        assert (len(deep.body), deep.details[0]["rule"]) == (100, "cut")


def test_a_cut_body_is_not_replayed_when_its_beginning_is_an_event(tmp_path: Path) -> None:
    event = run_bytes(producer="not a uri")
    with Running(tmp_path, strict=True, max_failed_bytes=len(event)) as gateway:
        assert gateway.post(event + b" ").status_code == 400
    with Running(tmp_path) as gateway:  # not strict any more: the bytes that are kept would pass
        gateway.rejects.request_replay(None, "gateway")
        wait_until(lambda: not gateway.rejects.requested("gateway"))
        (reject,) = gateway.open_rejects()
        assert "cannot be replayed" in reject.reason
        assert f"first {len(event)} of its {len(event) + 1} bytes" in reject.reason
        assert gateway.events() == []


def test_a_replay_keeps_the_limits_when_the_reject_is_deep_or_has_many_keys(tmp_path: Path) -> None:
    deep = run_bytes(more=[[[[[[]]]]]])
    many = run_bytes(more={str(number): 1 for number in range(200)})
    limits: dict[str, Any] = {"max_depth": 5, "max_keys": 100, "max_event_bytes": 2**24}
    with Running(tmp_path, **limits) as gateway:
        for body in (deep, many):
            assert gateway.post(body).status_code == 400
        gateway.rejects.request_replay(None, "gateway")
        wait_until(lambda: not gateway.rejects.requested("gateway"))
        assert gateway.events() == []
        assert ["max_depth" in each.reason for each in gateway.open_rejects()] == [True, False]
    with Running(tmp_path) as gateway:  # the fix: higher limits
        gateway.rejects.request_replay(None, "gateway")
        wait_until(lambda: not gateway.rejects.requested("gateway"))
        assert gateway.bodies() == [deep, many]
        assert gateway.open_rejects() == []


def test_a_batch_is_replayed_whole_or_not_at_all_when_it_was_refused_as_a_whole(tmp_path: Path) -> None:
    good, bad = run_bytes(), b'{"eventTime": "yesterday"}'
    with Running(tmp_path, max_batch_events=1) as gateway:
        for events in ([good, good], [good, bad]):
            assert gateway.post(b"[" + b",".join(events) + b"]", "/api/v1/lineage/batch").status_code == 413
    with Running(tmp_path) as gateway:
        gateway.rejects.request_replay(None, "gateway")
        wait_until(lambda: not gateway.rejects.requested("gateway"))
        assert gateway.bodies() == [good, good]
        (reject,) = gateway.open_rejects()
        assert reject.reason.startswith("Event 1 of the batch: Not compliant")


def test_event_is_a_line_of_the_log_when_the_handler_is_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Running(tmp_path, failed_events="log") as gateway:
        assert gateway.post(b'{"secret":\n"\xc3\xa4' + b"x" * 9000 + b'"}').status_code == 400
        assert gateway.open_rejects() == []
    lines = [record.getMessage() for record in caplog.records if "was refused" in record.getMessage()]
    assert len(lines) == 1
    assert "\n" not in lines[0]  # an event cannot forge a log line
    assert len(lines[0]) < 5000


def test_both_have_it_when_the_handler_is_both(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Running(tmp_path, failed_events="both") as gateway:
        assert gateway.post(b"{}").status_code == 400
        assert len(gateway.open_rejects()) == 1
    assert "An event was refused" in caplog.text


@pytest.mark.usefixtures("extension")
def test_handler_of_thirdparty_else_is_used_when_it_is_set(tmp_path: Path) -> None:
    with Running(tmp_path, failed_events="keeping") as gateway:
        assert gateway.post(b"{}").status_code == 400
        assert gateway.post(b"[7, 8]", "/api/v1/lineage/batch").status_code == 200
        assert gateway.open_rejects() == []
    import thirdparty_handlers  # type: ignore[import-not-found]

    assert [event.body for event in thirdparty_handlers.Keeping.kept] == [b"{}", b"7", b"8"]
    assert thirdparty_handlers.Keeping.closed == [True]


@pytest.mark.usefixtures("extension")
def test_answer_stays_400_when_the_handler_raises(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Running(tmp_path, failed_events="raising") as gateway:
        for _ in range(5):
            assert gateway.post(b"{}").status_code == 400
        assert gateway.count("gateway_failed_handler_errors") == 5
        assert gateway.post(run_bytes()).status_code == 200
    logged = [record for record in caplog.records if "handler failed on" in record.getMessage()]
    assert len(logged) == 1  # once a minute


@pytest.mark.usefixtures("extension")
@pytest.mark.parametrize(
    ("name", "logged"),
    [
        pytest.param("unmakeable", "no licence", id="raises"),
        pytest.param(
            "incomplete",
            "breaks the contract of headwater.gateway.failed_events.FailedEventHandler",
            id="incomplete",
        ),
        pytest.param("absent", "Absent", id="absent"),
        pytest.param("unheard-of", "both, .*log, .*rejects", id="unknown"),
    ],
)
def test_gateway_does_not_start_when_the_handler_cannot_be_had(
    tmp_path: Path, name: str, logged: str
) -> None:
    rejects = RejectStore(tmp_path / "rejects.db", max_bytes=1000)
    try:
        with pytest.raises(ExtensionError, match=logged):
            load_handler(name, rejects)
    finally:
        rejects.close()


@pytest.mark.usefixtures("extension")
def test_senders_get_503_when_the_handler_is_far_behind(tmp_path: Path) -> None:
    with Running(tmp_path, failed_events="slow") as gateway:
        from thirdparty_handlers import Slow

        bad = b"[" + b",".join([b"{}"] * (MAX_EVENTS // 2)) + b"]"
        head = (
            f"POST /api/v1/lineage/batch HTTP/1.1\r\nHost: t\r\nContent-Length: {len(bad)}\r\n\r\n".encode()
        )
        with gateway.connect() as one, gateway.connect() as two:
            one.sendall(head + bad)
            two.sendall(head + bad)
            wait_until(lambda: gateway.get("/readyz").status_code == 503)
            for path, body in (("/api/v1/lineage", b"{}"), ("/api/v1/lineage/batch", b"[{}]")):
                answer = gateway.post(body, path)
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert gateway.post(run_bytes()).status_code == 200  # G7: other senders do not wait
            Slow.may_go.set()
            assert b"200 OK" in one.recv(100)
            assert b"200 OK" in two.recv(100)
        assert gateway.get("/readyz").status_code == 200
        assert gateway.post(b"{}").status_code == 400
        assert len(Slow.kept) == MAX_EVENTS + 1


@pytest.mark.usefixtures("extension")
def test_stopping_goes_on_when_the_handler_hangs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Running(tmp_path, failed_events="slow", shutdown_timeout_seconds=0.1) as gateway:
        from thirdparty_handlers import Slow

        with gateway.connect() as connection:
            connection.sendall(b"POST /api/v1/lineage HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n{}")
            wait_until(lambda: gateway.count("gateway_events_received") == 1)
            gateway.stop()
        assert "did not end" in caplog.text
        Slow.may_go.set()
        wait_until(lambda: len(Slow.kept) == 1)

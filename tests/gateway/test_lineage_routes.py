"""The application: every route, what it answers, and what is in the log afterwards."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import apsw
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.gateway.running import FaultyVFS, Running, run_bytes, run_event, wait_until

LINEAGE = "/api/v1/lineage"
BATCH = "/api/v1/lineage/batch"


def test_event_is_in_the_log_when_it_was_answered_200(tmp_path: Path) -> None:
    body = run_bytes()
    with Running(tmp_path) as gateway:
        answer = gateway.post(body)
        assert (answer.status_code, answer.json()) == (200, {"status": "success"})
        assert gateway.bodies() == [body]
        assert gateway.count("gateway_events_received") == 1
        assert gateway.count("gateway_events_accepted") == 1
        assert gateway.count("gateway_requests", LINEAGE, "200") == 1


def test_warnings_are_listed_when_an_event_is_odd_but_accepted(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway:
        answer = gateway.post(run_bytes(producer="not a uri"))
        assert answer.status_code == 200
        assert answer.json()["warnings"][0]["path"] == "/producer"
        assert gateway.count("gateway_events_warned") == 1
        assert len(gateway.events()) == 1
    with Running(tmp_path / "strict", strict=True) as gateway:
        assert gateway.post(run_bytes(producer="not a uri")).status_code == 400


def test_violations_are_named_when_an_event_is_not_compliant(tmp_path: Path) -> None:
    body = run_bytes(run={"runId": "no uuid"})
    with Running(tmp_path) as gateway:
        answer = gateway.post(body)
        assert answer.status_code == 400
        assert answer.json()["error"] == "not_compliant"
        assert answer.json()["retryable"] is False
        assert answer.json()["violations"][0]["path"] == "/run/runId"
        assert answer.json()["violations"][0]["rule"] == "format:uuid"
        assert gateway.events() == []
        reject = gateway.open_rejects()[0]
        assert reject.body == body
        assert reject.details == answer.json()["violations"]
        assert gateway.count("gateway_events_refused", "not_compliant") == 1


def test_batch_is_stored_in_order_when_all_of_it_is_compliant(tmp_path: Path) -> None:
    bodies = [run_bytes(), b'{ "odd" : "white space",' + run_bytes()[1:], run_bytes()]
    with Running(tmp_path) as gateway:
        answer = gateway.post(b"[ " + b" ,\n".join(bodies) + b"]", BATCH)
        assert answer.status_code == 200
        assert answer.json() == {
            "status": "success",
            "summary": {"received": 3, "successful": 3, "failed": 0, "retriable": 0, "non_retriable": 0},
            "failed_events": [],
        }
        assert gateway.bodies() == bodies


def test_the_others_are_stored_when_some_of_a_batch_are_bad(tmp_path: Path) -> None:
    good, bad = run_bytes(), b'{"eventTime": "yesterday"}'
    with Running(tmp_path) as gateway:
        answer = gateway.post(b"[" + b",".join([bad, good, b"7", good, b'{"a":"\xff"}']) + b"]", BATCH)
        assert answer.status_code == 200
        content = answer.json()
        assert content["status"] == "partial_success"
        assert content["summary"] == {
            "received": 5,
            "successful": 2,
            "failed": 3,
            "retriable": 0,
            "non_retriable": 3,
        }
        assert [event["index"] for event in content["failed_events"]] == [0, 2, 4]
        assert all(event["reason"] and event["retriable"] is False for event in content["failed_events"])
        assert gateway.bodies() == [good, good]
        assert [reject.body for reject in gateway.open_rejects()] == [bad, b"7", b'{"a":"\xff"}']
        all_bad = gateway.post(b"[{}]", BATCH)
        assert (all_bad.status_code, all_bad.json()["status"]) == (200, "partial_success")
        assert gateway.post(b"[]", BATCH).json()["status"] == "success"


def test_400_is_answered_when_a_batch_is_no_array(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway:
        answer = gateway.post(run_bytes(), BATCH)
        assert (answer.status_code, answer.json()["error"]) == (400, "not_an_array")
        assert gateway.post(b"[" + run_bytes() + b"]").json()["error"] == "not_compliant"


def test_405_names_the_methods_when_the_method_is_wrong(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway, gateway.client() as client:
        answer = client.get(LINEAGE)
        assert (answer.status_code, answer.headers["allow"]) == (405, "OPTIONS, POST")
        answer = client.delete("/healthz")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
        answer = client.options(BATCH)
        assert (answer.status_code, answer.headers["allow"]) == (204, "OPTIONS, POST")
        answer = client.get("/nowhere")
        assert (answer.status_code, answer.json()["error"]) == (404, "not_found")
        assert LINEAGE in answer.json()["hint"]


def test_keys_are_asked_for_when_there_are_any(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Running(tmp_path, api_keys=("first", "sécond")) as gateway:
        for header in (None, "Bearer wrong", "Bearer", "Basic first", "Bearer firs", "first"):
            headers: dict[str, str] = {} if header is None else {"authorization": header}
            answer = gateway.post(run_bytes(), headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert gateway.get("/metrics").status_code == 401
        for path in ("/healthz", "/readyz", "/openapi.json"):
            assert gateway.get(path).status_code == 200
        with gateway.client() as client:
            for key in (b"Bearer first", "bearer sécond".encode(), "Bearer sécond".encode("latin-1")):
                answer = client.post(LINEAGE, content=run_bytes(), headers=[(b"authorization", key)])
                assert answer.status_code == 200
        assert gateway.get("/metrics", {"authorization": "Bearer first"}).status_code == 200
        assert len(gateway.events()) == 3
        assert gateway.open_rejects() == []
    assert "first" not in caplog.text
    assert "wrong" not in caplog.text


def test_reasons_are_listed_when_a_part_makes_no_progress(tmp_path: Path) -> None:
    reasons: list[str] = []

    def health() -> list[str]:
        if reasons == ["break"]:
            raise RuntimeError("the question itself failed")
        return reasons

    with Running(tmp_path, health=health) as gateway:
        assert gateway.get("/readyz").json() == {"ready": True, "reasons": []}
        reasons.append("outlet marquez: connection refused")
        answer = gateway.get("/readyz")
        assert (answer.status_code, answer.json()) == (503, {"ready": False, "reasons": reasons})
        assert gateway.get("/healthz").status_code == 200
        assert gateway.post(run_bytes()).status_code == 200
        reasons[:] = ["break"]
        assert gateway.get("/readyz").status_code == 503


def test_metrics_are_openmetrics_when_they_are_served(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway:
        gateway.post(run_bytes())
        gateway.post(b"{}")
        answer = gateway.get("/metrics")
        assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        samples = {
            (sample.name, sample.labels.get("status", "")): sample.value
            for family in text_string_to_metric_families(answer.text)  # type: ignore[no-untyped-call]
            for sample in family.samples
        }
        assert samples["headwater_gateway_requests_total", "200"] == 1
        assert samples["headwater_gateway_requests_total", "400"] == 1
        assert 0 < samples["headwater_gateway_pending_bytes", ""] < 2048  # the request for them
        assert samples["headwater_gateway_connections", ""] == 1


@pytest.mark.parametrize(
    ("trouble", "status", "code"),
    [
        pytest.param(apsw.FullError, 507, "disk_full", id="full"),
        pytest.param(apsw.IOError, 503, "log_unavailable", id="io-error"),
    ],
)
def test_nothing_is_acknowledged_until_the_disk_heals_when_it_fails(
    tmp_path: Path, trouble: type[apsw.Error], status: int, code: str
) -> None:
    disk = FaultyVFS(f"gateway-{code}")
    first, second, third = run_bytes(), run_bytes(), run_bytes()
    with Running(tmp_path, vfs=f"gateway-{code}") as gateway:
        assert gateway.post(first).status_code == 200
        disk.trouble = trouble
        for path, body in ((LINEAGE, second), (BATCH, b"[" + second + b"]")):
            answer = gateway.post(body, path)
            assert (answer.status_code, answer.json()["error"]) == (status, code)
            assert answer.json()["retryable"] is True
            assert int(answer.headers["retry-after"]) > 0
        assert gateway.get("/readyz").status_code == 503
        assert gateway.get("/healthz").status_code == 200
        disk.trouble = None
        assert gateway.post(third).status_code == 200
        assert gateway.get("/readyz").status_code == 200
        assert gateway.bodies() == [first, third]
        assert gateway.pending_bytes == 0


def test_503_is_answered_when_the_log_is_closed(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway:
        gateway.log.close()
        answer = gateway.post(run_bytes())
        assert (answer.status_code, answer.json()["error"]) == (503, "log_unavailable")
        assert answer.headers["retry-after"] == "1"


def test_reject_is_appended_when_its_replay_is_asked_for_and_it_passes_now(tmp_path: Path) -> None:
    odd, bad, broken = run_bytes(producer="not a uri"), b"{}", b"{"
    with Running(tmp_path, strict=True) as gateway:
        for body in (odd, bad, broken):
            assert gateway.post(body).status_code == 400
        assert gateway.events() == []
    with Running(tmp_path) as gateway:  # the fix: not strict any more
        assert gateway.rejects.request_replay(None, "gateway") == 3
        wait_until(lambda: len(gateway.events()) == 1)
        wait_until(lambda: not gateway.rejects.requested("gateway"))
        assert gateway.bodies() == [odd]
        assert [(reject.body, reject.tries) for reject in gateway.open_rejects()] == [(bad, 1), (broken, 1)]


def test_events_of_many_connections_are_all_stored_when_sent_at_once(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway:
        connections = [gateway.connect() for _ in range(20)]
        bodies = [run_bytes(n=number) for number in range(200)]
        for number, body in enumerate(bodies):
            head = f"POST {LINEAGE} HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\n\r\n"
            connections[number % 20].sendall(head.encode() + body)
        answers = dict.fromkeys(connections, b"")
        for connection in connections:
            while answers[connection].count(b"success") < 10:
                answers[connection] += connection.recv(65536)
            connection.close()
        stored = [json.loads(body)["n"] for body in gateway.bodies()]
        assert sorted(stored) == list(range(200))
        for start in range(20):  # each connection's own order is kept (G2)
            own = [number for number in stored if number % 20 == start]
            assert own == sorted(own)


def test_event_kinds_are_all_taken_when_compliant(tmp_path: Path) -> None:
    run = run_event()
    job = {key: value for key, value in run.items() if key not in ("run", "eventType")}
    dataset = {key: value for key, value in job.items() if key != "job"} | {
        "dataset": {"namespace": "s3://bucket", "name": "table"}
    }
    with Running(tmp_path) as gateway:
        for event in (run, job, dataset):
            assert gateway.post(json.dumps(event).encode()).status_code == 200
        assert [json.loads(body) for body in gateway.bodies()] == [run, job, dataset]

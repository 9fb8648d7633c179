"""Intake: bodies as they come, well formed or hostile."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard

from tests.gateway.running import PRODUCER, Running, run_bytes, run_event

GZIP = {"content-encoding": "gzip"}
ZSTD = {"content-encoding": "zstd"}


@pytest.mark.parametrize(
    ("coding", "encode"),
    [
        pytest.param("identity", bytes, id="identity"),
        pytest.param("gzip", gzip.compress, id="gzip"),
        pytest.param("GZip", gzip.compress, id="gzip-in-capitals"),
        pytest.param("x-gzip", gzip.compress, id="x-gzip"),
        pytest.param(
            "gzip", lambda body: gzip.compress(body[:50]) + gzip.compress(body[50:]), id="gzip-members"
        ),
        pytest.param("zstd", zstandard.compress, id="zstd"),
        pytest.param(
            "zstd",
            lambda body: zstandard.compress(body[:50]) + zstandard.compress(body[50:]),
            id="zstd-frames",
        ),
        pytest.param(
            "zstd",
            zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress,
            id="zstd-of-unknown-size",
        ),
    ],
)
def test_bytes_are_kept_as_they_were_when_compressed(tmp_path: Path, coding: str, encode: Any) -> None:
    body = b" \n" + run_bytes(job={"namespace": "ä €", "name": "\\u0041"}) + b"\t"
    with Running(tmp_path) as gateway:
        assert gateway.post(encode(body), headers={"content-encoding": coding}).status_code == 200
        assert gateway.bodies() == [body]


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON; charset=UTF-8",
        'application/json;charset="utf-8"',
        "application/vnd.openlineage+json",
    ],
)
def test_event_is_taken_when_the_content_type_is_json(tmp_path: Path, content_type: str) -> None:
    with Running(tmp_path) as gateway:
        assert gateway.post(run_bytes(), headers={"content-type": content_type}).status_code == 200


def test_event_is_taken_when_there_is_no_content_type(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway, gateway.client() as client:
        assert client.post("/api/v1/lineage", content=run_bytes()).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=utf-16"},
        {"content-type": ""},
        {"content-encoding": "br"},
        {"content-encoding": "gzip, gzip"},
    ],
    ids=str,
)
def test_415_is_answered_when_type_or_coding_is_unknown(tmp_path: Path, headers: dict[str, str]) -> None:
    with Running(tmp_path) as gateway:
        answer = gateway.post(run_bytes(), headers=headers)
        assert answer.status_code == 415
        assert answer.json()["hint"]
        assert gateway.open_rejects() == []


@pytest.mark.parametrize(
    ("headers", "bomb"),
    [
        pytest.param(GZIP, gzip.compress(b" " * 30_000_000), id="gzip"),
        pytest.param(GZIP, gzip.compress(b" " * 900_000) * 2, id="gzip-members"),
        pytest.param(ZSTD, zstandard.compress(b" " * 30_000_000), id="zstd"),
        pytest.param(ZSTD, zstandard.compress(b" " * 900_000) * 2, id="zstd-frames"),
        pytest.param(
            ZSTD,
            zstandard.ZstdCompressor(write_content_size=False).compress(b" " * 30_000_000),
            id="zstd-of-unknown-size",
        ),
    ],
)
def test_413_is_answered_when_it_unpacks_to_too_much(
    tmp_path: Path, headers: dict[str, str], bomb: bytes
) -> None:
    with Running(tmp_path, max_body_bytes=1_000_000, max_event_bytes=1_000_000) as gateway:
        assert gateway.post(bomb, headers=headers).status_code == 413
        assert gateway.pending_bytes == 0
        assert gateway.open_rejects() == []


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        pytest.param(GZIP, run_bytes(), id="not-gzip"),
        pytest.param(GZIP, gzip.compress(run_bytes())[:-9], id="gzip-cut-off"),
        pytest.param(GZIP, gzip.compress(run_bytes()) + b"rest", id="gzip-and-more"),
        pytest.param(ZSTD, run_bytes(), id="not-zstd"),
        pytest.param(ZSTD, zstandard.compress(run_bytes())[:-3], id="zstd-cut-off"),
        pytest.param(ZSTD, zstandard.compress(run_bytes()) + b"rest", id="zstd-and-more"),
    ],
)
def test_400_is_answered_when_compression_is_broken(
    tmp_path: Path, headers: dict[str, str], body: bytes
) -> None:
    with Running(tmp_path) as gateway:
        answer = gateway.post(body, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (400, "bad_encoding")


@pytest.mark.parametrize(
    ("body", "code", "found"),
    [
        pytest.param(b"", "bad_json", "Line 1", id="empty"),
        pytest.param(b'{"a":\n  1,\n}', "bad_json", "Line 2, column 4", id="comma"),
        pytest.param(b'{"a": NaN}', "bad_json", "Line 1", id="nan"),
        pytest.param(b'{"a": "\\ud800"}', "bad_json", "Line 1", id="half-a-surrogate"),
        pytest.param(b'{"a": 1e400}', "number_too_large", "line 1, column 7", id="number"),
        pytest.param(b"\xef\xbb\xbf{}", "bad_json", "Line 1", id="byte-order-mark"),
        pytest.param(b'{"a": "\xff"}', "bad_utf8", "byte 7", id="not-utf8"),
    ],
)
def test_the_place_is_returned_when_the_body_is_not_json(
    tmp_path: Path, body: bytes, code: str, found: str
) -> None:
    with Running(tmp_path) as gateway:
        answer = gateway.post(body)
        assert (answer.status_code, answer.json()["error"]) == (400, code)
        assert found in answer.json()["message"]
        assert [reject.body for reject in gateway.open_rejects()] == [body]


@pytest.mark.parametrize("body", [b"", b"[1,]", b"[{]", b"[1] 2", b"[", b'["\xff', b"\xff"])
def test_whole_batch_is_refused_when_it_cannot_be_split(tmp_path: Path, body: bytes) -> None:
    with Running(tmp_path) as gateway:
        answer = gateway.post(body, "/api/v1/lineage/batch")
        assert answer.status_code == 400
        assert answer.json()["error"] in ("bad_json", "bad_utf8")
        assert [reject.body for reject in gateway.open_rejects()] == [body]


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(depth - 2):
        inner = {"a": inner}
    return run_event(more=inner)


def test_400_is_answered_when_an_event_is_too_deep(tmp_path: Path) -> None:
    with Running(tmp_path, max_depth=20) as gateway:
        assert gateway.post(json.dumps(nested(20)).encode()).status_code == 200
        for deep in (json.dumps(nested(21)).encode(), b"[" * 100_000, b'{"a":' * 3000 + b"1" + b"}" * 3000):
            answer = gateway.post(deep)
            assert (answer.status_code, answer.json()["error"]) == (400, "too_deep")
        batch = gateway.post(b"[" + b"[" * 100_000, "/api/v1/lineage/batch")
        assert (batch.status_code, batch.json()["error"]) == (400, "too_deep")
        wide = run_event(more=[{} for _ in range(100)])
        assert gateway.post(json.dumps(wide).encode()).status_code == 200


def test_400_is_answered_when_an_event_has_too_many_keys(tmp_path: Path) -> None:
    with Running(tmp_path, max_keys=100, max_event_bytes=2**24) as gateway:
        few = run_event(more={str(i): ":" for i in range(80)})
        many = run_event(more={str(i): 1 for i in range(100)})
        assert gateway.post(json.dumps(few).encode()).status_code == 200
        answer = gateway.post(json.dumps(many).encode())
        assert (answer.status_code, answer.json()["error"]) == (400, "too_many_keys")
        assert len(gateway.open_rejects()) == 1


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"[" + b"[]," * 400_000 + b"0]", id="lists"),
        pytest.param(b"[" + b"0," * 600_000 + b"0]", id="numbers"),
        pytest.param(b"[" + b"{}," * 400_000 + b"0]", id="objects"),
        pytest.param(b"[" + b'"",' * 400_000 + b"0]", id="texts"),
        pytest.param(b'"' + b'\\"' * 600_000, id="quotes-without-an-end"),
    ],
)
def test_an_event_is_refused_before_it_is_parsed_when_it_would_take_many_times_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    parsed: list[int] = []
    loads = orjson.loads
    with Running(tmp_path) as gateway:

        def noting(body: bytes) -> Any:
            parsed.append(len(body))
            return loads(body)

        monkeypatch.setattr("orjson.loads", noting)
        answer = gateway.post(run_bytes()[:-1] + b', "more": ' + value + b"}")
        if value.startswith(b"["):
            assert (answer.status_code, answer.json()["error"]) == (400, "too_many_keys")
            assert parsed == []
        else:
            assert (answer.status_code, answer.json()["error"]) == (400, "bad_json")
        assert gateway.pending_bytes == 0


def wide_event(columns: int, sources: int) -> bytes:
    """A compliant event as Spark sends it for a wide table: each column comes from several others."""
    base = {"_producer": PRODUCER, "_schemaURL": f"{PRODUCER}/facet.json"}
    fields = {
        f"column_{number}": {
            "inputFields": [
                {
                    "namespace": "postgres://warehouse.example:5432",
                    "name": f"shop.public.table_{source}",
                    "field": f"column_{number}",
                    "transformations": [{"type": "DIRECT", "subtype": "IDENTITY", "masking": False}],
                }
                for source in range(sources)
            ]
        }
        for number in range(columns)
    }
    output = {
        "namespace": "s3://lake",
        "name": "wide",
        "facets": {"columnLineage": base | {"fields": fields}},
    }
    return run_bytes(outputs=[output])


def test_a_wide_tables_lineage_is_taken_when_it_is_larger_than_an_event_for_tables(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway:
        for body in (wide_event(700, 8), wide_event(2_000, 20)):
            assert len(body) > gateway.settings.max_event_bytes
            assert gateway.post(body).status_code == 200
            assert gateway.post(b"[" + body + b"]", "/api/v1/lineage/batch").json()["status"] == "success"
        assert len(gateway.events()) == 4


def test_413_is_answered_and_logged_when_a_lineage_event_is_too_large(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = run_bytes()
    with Running(tmp_path, max_event_bytes=10, max_body_bytes=len(body)) as gateway:
        assert gateway.post(body).status_code == 200
        packed = gzip.compress(body + b" ")
        for sent, headers in ((body + b" ", {}), (packed, GZIP)):
            answer = gateway.post(sent, headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (413, "body_too_large")
        assert gateway.open_rejects() == []  # no byte of it was read
        assert gateway.count("gateway_events_refused", "body_too_large") == 2
    assert "max_body_bytes" in caplog.text


def test_413_is_counted_and_logged_when_a_lineage_event_grows_too_large_in_chunks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = run_bytes()
    with Running(tmp_path, max_body_bytes=len(body)) as gateway:

        def chunked(text: bytes) -> bytes:
            head = b"POST /api/v1/lineage HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            with gateway.connect() as connection:
                connection.sendall(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text))
                return connection.recv(65536)

        assert b"200 OK" in chunked(body)
        assert gateway.count("gateway_events_refused", "body_too_large") == 0
        assert b"413 " in chunked(body + b" ")
        assert gateway.count("gateway_events_received") == 2
        assert gateway.count("gateway_events_refused", "body_too_large") == 1
    assert "its chunks exceed gateway.max_body_bytes" in caplog.text


def test_413_is_answered_when_a_batch_has_too_many_events(tmp_path: Path) -> None:
    with Running(tmp_path, max_batch_events=3) as gateway:
        events = b",".join(run_bytes() for _ in range(3))
        assert gateway.post(b"[" + events + b"]", "/api/v1/lineage/batch").status_code == 200
        for more in (b"[" + events + b",{}]", b"[0" + b",0" * 1_000_000 + b"]"):
            answer = gateway.post(more, "/api/v1/lineage/batch")
            assert (answer.status_code, answer.json()["error"]) == (413, "too_many_events")
        assert [len(reject.body) for reject in gateway.open_rejects()] == [len(events) + 5, 2_000_003]
        assert gateway.count("gateway_events_refused", "too_many_events") == 2

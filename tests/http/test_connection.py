"""The wire: what clients do to HTTP, well or badly."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from headwater.clock import ManualClock
from headwater.gateway.gateway import Gateway
from headwater.http.request import Request
from headwater.http.response import Response
from tests.gateway.running import Running, get, post, read_all, run_bytes, statuses, wait_until


def test_answers_keep_their_order_when_requests_are_pipelined(tmp_path: Path) -> None:
    bodies = [run_bytes() for _ in range(10)]
    requests = b"".join(post(body) + get("/healthz") for body in bodies)
    with Running(tmp_path) as gateway:
        answer = gateway.talk(requests + post(b"{}") + get("/nowhere"))
        assert statuses(answer) == [200] * 20 + [400, 404]
        assert gateway.bodies() == bodies
    successes = [part.partition(b"\r\n\r\n")[2] for part in answer.split(b"HTTP/1.1")[1:21]]
    assert successes == [b'{"status":"success"}', b'{"status":"alive"}'] * 10


def test_all_are_answered_when_far_more_are_pipelined_than_are_held_at_once(tmp_path: Path) -> None:
    body = run_bytes()
    with Running(tmp_path) as gateway:
        answer = gateway.talk(post(body) * 1000 + get("/healthz") * 5000)
        assert statuses(answer) == [200] * 6000
        assert len(gateway.events()) == 1000


def test_connection_is_reused_when_kept_alive(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway, gateway.client() as client:
        for _ in range(5):
            assert client.post("/api/v1/lineage", content=run_bytes()).status_code == 200
        assert gateway.connections == 1


def test_body_is_read_when_it_comes_in_chunks(tmp_path: Path) -> None:
    body = run_bytes()
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:7], body[7:100], body[100:]))
    head = b"POST /api/v1/lineage HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Running(tmp_path) as gateway:
        assert statuses(gateway.talk(head + chunks + b"0\r\nX-Trailer: 1\r\n\r\n")) == [200]
        assert gateway.bodies() == [body]


def test_request_is_read_when_it_comes_byte_by_byte(tmp_path: Path) -> None:
    body = run_bytes()
    with Running(tmp_path) as gateway:
        request = post(body)
        assert statuses(gateway.talk(*(request[i : i + 1] for i in range(len(request))))) == [200]
        assert gateway.bodies() == [body]


def test_continue_is_sent_when_it_is_expected(tmp_path: Path) -> None:
    body = run_bytes()
    request = post(body, "Expect: 100-continue")
    head = request.removesuffix(body)
    with Running(tmp_path) as gateway, gateway.connect() as connection:
        connection.sendall(head)
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert statuses(connection.recv(1000)) == [200]


def test_final_answer_comes_first_when_continue_is_expected_in_vain(tmp_path: Path) -> None:
    with Running(tmp_path, api_keys=("secret",)) as gateway, gateway.connect() as connection:
        connection.sendall(post(b"", "Expect: 100-continue").replace(b"Length: 0", b"Length: 99"))
        assert statuses(read_all(connection)) == [401]


def test_unknown_expectation_is_refused_when_asked_for(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway:
        assert statuses(gateway.talk(get("/healthz", "Expect: miracles"))) == [417]


def test_head_has_no_body_when_get_has_one(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway:
        answer = gateway.talk(get("/healthz").replace(b"GET", b"HEAD") + get("/healthz"))
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert b"Content-Length: 18" in head
    assert rest.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, id="tls-to-plain"),
        pytest.param(b"hello\r\n\r\n", 400, id="nonsense"),
        pytest.param(b"GET /healthz HTTP/1.1\r\n\r\n", 400, id="no-host"),
        pytest.param(b"GET /healthz HTTP/2.0\r\nHost: a\r\n\r\n", 505, id="version"),
        pytest.param(b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405, id="connect"),
        pytest.param(
            b"POST /api/v1/lineage HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n{}",
            400,
            id="two-lengths",
        ),
        pytest.param(
            b"POST /api/v1/lineage HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            400,
            id="odd-transfer-encoding",
        ),
        pytest.param(
            b"POST /api/v1/lineage HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
            id="bad-chunk",
        ),
        pytest.param(
            b"POST /api/v1/lineage HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
            400,
            id="negative-length",
        ),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, id="two-hosts"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400, id="two-equal-hosts"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n", 400, id="bad-host"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, id="path-in-host"),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHost: a\r\nHost: b\r\n\r\n",
            400,
            id="two-hosts-and-an-upgrade",
        ),
        pytest.param(
            b"POST /api/v1/lineage HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            id="transfer-encoding-1.0",
        ),
        pytest.param(
            b"POST /api/v1/lineage HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            id="transfer-encoding-1.0-and-an-upgrade",
        ),
        pytest.param(
            b"POST /api/v1/lineage HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            id="two-transfer-encodings",
        ),
        pytest.param(
            b"POST /api/v1/lineage HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
            400,
            id="two-content-lengths",
        ),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
            400,
            id="two-authorizations",
        ),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n", 400, id="obs-fold"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost : a\r\n\r\n", 400, id="space-before-colon"),
        pytest.param(b"GET /healthz HTTP/1.1\nHost: a\n\n", 400, id="bare-line-feeds"),
        pytest.param(
            b"POST /api/v1/lineage HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
            + b"T: 1\r\n" * 40_000,
            431,
            id="endless-trailers",
        ),
        pytest.param(
            b"POST /api/v1/lineage HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: "
            + b"t" * 200_000,
            431,
            id="endless-trailer",
        ),
        pytest.param(
            b"POST /api/v1/lineage HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;"
            + b"e" * 200_000,
            431,
            id="endless-chunk-extension",
        ),
        pytest.param(
            b"POST /api/v1/lineage HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            + (b"1;" + b"e" * 1000 + b"\r\n{\r\n") * 300,
            431,
            id="many-chunk-extensions",
        ),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 300 + b"\r\n", 431, id="too-many-equal-headers"),
        pytest.param(
            b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X%d:\r\n" % n for n in range(300)) + b"\r\n",
            431,
            id="too-many-headers",
        ),
        pytest.param(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431, id="long-target"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 200_000, 431, id="endless-header"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 20_000, 431, id="endless-headers"),
    ],
)
def test_connection_is_answered_and_closed_when_http_is_broken(
    tmp_path: Path, request_bytes: bytes, status: int
) -> None:
    with Running(tmp_path) as gateway:
        answer = gateway.talk(request_bytes)
        assert statuses(answer) == [status]
        assert b"Connection: close" in answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
        assert gateway.get("/healthz").status_code == 200


def test_earlier_requests_are_answered_when_a_later_one_is_broken(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway:
        assert statuses(gateway.talk(post(run_bytes()) + b"nonsense\r\n\r\n")) == [200, 400]
        assert len(gateway.events()) == 1


def test_body_is_kept_when_an_upgrade_is_offered(tmp_path: Path) -> None:
    body = run_bytes()
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQ")
    with Running(tmp_path) as gateway:
        assert statuses(gateway.talk(post(body, *offer) + get("/healthz"))) == [200, 200]
        assert statuses(gateway.talk(*(bytes([byte]) for byte in post(body, *offer)))) == [200]
        assert gateway.bodies() == [body, body]


@pytest.mark.parametrize(
    "option",
    [
        "Connection: close, Upgrade",
        "Connection: Upgrade, close",
        "Connection: Upgrade\r\nConnection: close",
    ],
)
def test_the_connection_is_closed_when_an_upgrade_is_offered_beside_close(
    tmp_path: Path, option: str
) -> None:
    with Running(tmp_path) as gateway, gateway.connect() as connection:
        connection.sendall(post(run_bytes(), option, "Upgrade: h2c") + get("/healthz"))
        answer = read_all(connection)
        assert statuses(answer) == [200]
        assert b"Connection: close" in answer


def test_upgrades_are_declined_when_very_many_are_pipelined(tmp_path: Path) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost:\r\nConnection:upgrade\r\nUpgrade:a\r\n\r\n"
    with Running(tmp_path) as gateway:
        assert statuses(gateway.talk(request * 600)) == [200] * 600
        assert gateway.pending_bytes == 0


def test_body_is_read_when_each_byte_is_a_chunk(tmp_path: Path) -> None:
    body = run_bytes(text="x" * 50_000)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    head = b"POST /api/v1/lineage HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n"
    packed = b"".join(b"1\r\n%c\r\n" % byte for byte in gzip.compress(body, 0))
    with Running(tmp_path) as gateway:
        requests = head + b"\r\n" + chunks + b"0\r\n\r\n"
        requests += head + b"Content-Encoding: gzip\r\n\r\n" + packed + b"0\r\n\r\n"
        assert statuses(gateway.talk(requests)) == [200, 200]
        assert gateway.bodies() == [body, body]
        assert gateway.pending_bytes == 0


def test_requests_are_not_handled_ahead_when_the_client_does_not_read_responses(tmp_path: Path) -> None:
    handled = 0

    def large(request: Request) -> None:
        nonlocal handled
        handled += 1
        request.respond(Response(200, b"%8d" % handled + b" " * 2**20))

    def prepare(gateway: Gateway) -> None:
        gateway.router.add("GET", "/large", large)

    with Running(tmp_path, prepare=prepare, shutdown_timeout_seconds=0.1) as gateway:
        with gateway.connect() as deaf:
            deaf.sendall(get("/large") * 300)  # one slice
            wait_until(lambda: handled > 0 and gateway.pending_bytes > 0)
            assert gateway.get("/healthz").status_code == 200
            assert handled < 20  # what the buffers of the kernel take
            assert gateway.pending_bytes > 250 * 1024
        wait_until(lambda: gateway.pending_bytes == 0)
        with gateway.connect() as reader:
            handled = 0
            reader.sendall(get("/large") * 50 + get("/large", "Connection: close"))
            answer = read_all(reader)
            assert statuses(answer) == [200] * 51
            assert [int(part[:8]) for part in answer.split(b"\r\n\r\n")[1:]] == [*range(1, 52)]


def test_bytes_count_when_they_are_not_admitted_yet(tmp_path: Path) -> None:
    limit = 300_000
    head = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: "
    trailer = b"POST /api/v1/lineage HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: "
    most = 0.0
    with Running(tmp_path, max_pending_bytes=limit, max_body_bytes=limit) as gateway, ExitStack() as stack:
        opened = [stack.enter_context(gateway.connect()) for _ in range(40)]
        for number, connection in enumerate(opened):
            connection.sendall(head if number % 2 else trailer)
        for _ in range(12):
            for connection in opened:
                with suppress(ConnectionError):
                    connection.sendall(b"x" * 5000)
            most = max(most, gateway.pending_bytes)
        wait_until(lambda: gateway.count("gateway_requests", "", "503") > 0)
        assert most <= limit + 40 * 6000  # a small head is always read: it may be a probe
        assert gateway.get("/healthz").status_code == 200
    wait_until(lambda: gateway.pending_bytes == 0)


def test_http_1_0_is_closed_when_it_does_not_ask_to_be_kept(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway, gateway.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert b"Connection: keep-alive" in connection.recv(1000)
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert b"Connection: close" in read_all(connection)


def test_absolute_target_is_served_when_a_proxy_sends_it(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway:
        assert statuses(gateway.talk(get("http://host:80/healthz?x=1"))) == [200]
        assert statuses(gateway.talk(get("/health%7A"))) == [200]


def test_rest_is_not_awaited_when_the_declared_body_is_too_large(tmp_path: Path) -> None:
    with Running(tmp_path, max_body_bytes=1000) as gateway, gateway.connect() as connection:
        connection.sendall(post(b"").replace(b"Length: 0", b"Length: 1001"))
        answer = read_all(connection)
        assert statuses(answer) == [413]
        assert b"Connection: close" in answer


def test_rest_is_not_awaited_when_chunks_grow_too_large(tmp_path: Path) -> None:
    head = b"POST /api/v1/lineage HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Running(tmp_path, max_body_bytes=1000) as gateway, gateway.connect() as connection:
        connection.sendall(head + b"258\r\n" + b" " * 600 + b"\r\n258\r\n" + b" " * 600 + b"\r\n")
        assert statuses(read_all(connection)) == [413]
        assert gateway.pending_bytes == 0


def test_answer_can_be_read_when_the_client_is_still_sending(tmp_path: Path) -> None:
    with Running(tmp_path, max_body_bytes=1000) as gateway:
        assert gateway.post(b" " * 5_000_000).status_code == 413


def test_request_is_given_up_when_it_does_not_arrive_in_time(tmp_path: Path) -> None:
    clock = ManualClock()
    with (
        Running(tmp_path, clock=clock, shutdown_timeout_seconds=0.1) as gateway,
        gateway.connect() as connection,
        gateway.connect() as idle,
    ):
        connection.sendall(post(run_bytes())[:-10])
        wait_until(lambda: gateway.pending_bytes > 0)
        clock.advance(31.0)
        assert statuses(connection.recv(1000)) == [408]
        assert gateway.pending_bytes == 0
        clock.advance(75.0)
        assert idle.recv(1000) == b""


def test_memory_is_given_back_when_the_client_leaves_midway(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway:
        with gateway.connect() as connection:
            connection.sendall(post(run_bytes())[:-10])
            wait_until(lambda: gateway.pending_bytes > 0)
        wait_until(lambda: gateway.pending_bytes == 0)
        wait_until(lambda: gateway.connections == 0)
        assert gateway.events() == []
        with gateway.connect() as connection:  # gone before the answer: taken all the same
            connection.sendall(post(run_bytes()))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        wait_until(lambda: gateway.connections == 0)
        assert gateway.post(run_bytes()).status_code == 200


def test_client_is_cut_off_when_it_does_not_read_its_answers(tmp_path: Path) -> None:
    clock = ManualClock()
    with Running(tmp_path, clock=clock, shutdown_timeout_seconds=0.1) as gateway, gateway.connect() as deaf:
        deaf.setblocking(False)
        requests = get("/openapi.json") * 1000
        deadline = time.monotonic() + 20
        wire = gateway.gateway._server
        while not any(connection.is_blocked for connection in wire.admission):
            assert time.monotonic() < deadline
            try:
                deaf.send(requests)
            except BlockingIOError:
                time.sleep(0.01)
        assert gateway.get("/healthz").status_code == 200
        clock.advance(31.0)
        wait_until(lambda: not any(connection.is_blocked for connection in wire.admission))


def test_all_answers_arrive_when_the_client_reads_late(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway, gateway.connect() as connection:
        expected = len(gateway.get("/openapi.json").content)
        requests = get("/openapi.json") * 300
        sender = threading.Thread(target=connection.sendall, args=(requests,))
        sender.start()
        wire = gateway.gateway._server
        wait_until(lambda: any(each.is_blocked for each in wire.admission))
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < 300 or not received.endswith(b"}"):
            received += connection.recv(1_000_000)
        sender.join(20)
        assert len(received) > 300 * expected
        wait_until(lambda: not any(each.is_blocked for each in wire.admission))
        connection.sendall(get("/healthz"))
        assert statuses(connection.recv(1000)) == [200]


def test_nothing_more_is_served_when_the_client_said_close(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway, gateway.connect() as connection:
        connection.sendall(get("/healthz", "Connection: close") + get("/healthz"))
        assert statuses(read_all(connection)) == [200]
        connection.sendall(get("/healthz"))


def test_stream_ends_when_the_client_leaves(tmp_path: Path) -> None:
    ended: list[str] = []

    async def forever(request: Request) -> None:
        stream = request.start_stream(content_type="text/event-stream")
        try:
            while True:
                await stream.write(b"data: more\n\n" * 1000)
        except ConnectionResetError:
            ended.append("reset")
            raise

    with Running(tmp_path, prepare=lambda gateway: gateway.router.add("GET", "/forever", forever)) as gateway:
        with gateway.connect() as connection:
            connection.sendall(get("/forever"))
            assert statuses(connection.recv(1000)) == [200]
        wait_until(lambda: ended == ["reset"])


def test_busy_is_answered_when_too_many_bytes_wait(tmp_path: Path) -> None:
    body = run_bytes()
    with Running(tmp_path, max_pending_bytes=2 * len(body)) as gateway:
        with gateway.connect() as slow:
            slow.sendall(post(body + b" " * len(body))[:-1])
            wait_until(lambda: gateway.pending_bytes > len(body))
            answer = gateway.post(body)
            assert (answer.status_code, answer.json()["error"]) == (503, "busy")
            assert answer.headers["retry-after"] == "1"
            assert gateway.get("/healthz").status_code == 200
            slow.sendall(b" ")
            assert statuses(slow.recv(1000)) == [200]
        assert gateway.post(body).status_code == 200
        chunked = b"POST /api/v1/lineage HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
        large = b" " * (3 * len(body))
        again = gateway.talk(chunked + b"%x\r\n%b\r\n0\r\n\r\n" % (len(large), large) + get("/healthz"))
        assert statuses(again) == [503, 200]
        assert gateway.pending_bytes == 0


def test_stream_is_sent_in_parts_when_a_route_is_a_coroutine(tmp_path: Path) -> None:
    async def count(request: Request) -> None:
        stream = request.start_stream(content_type="text/event-stream")
        for number in range(3):
            await stream.write(b"data: %d\n\n" % number)
            await asyncio.sleep(0)
        stream.close()

    async def slowly(request: Request) -> None:
        await asyncio.sleep(0.01)
        request.respond(Response(200, request.query.encode(), content_type="text/plain"))

    async def badly(request: Request) -> None:
        raise ValueError("a fault of ours")

    def prepare(gateway: Gateway) -> None:
        gateway.router.add("GET", "/count", count)
        gateway.router.add("GET", "/slowly", slowly)
        gateway.router.add("GET", "/badly", badly)

    with Running(tmp_path, prepare=prepare) as gateway:
        assert gateway.get("/count").text == "data: 0\n\ndata: 1\n\ndata: 2\n\n"
        answer = gateway.talk(get("/slowly?a=1") + get("/healthz") + get("/badly") + get("/count"))
        assert statuses(answer) == [200, 200, 500, 200]
        assert answer.endswith(b"data: 2\n\n\r\n0\r\n\r\n")
        assert gateway.talk(get("/count").replace(b"GET", b"HEAD")).endswith(b"\r\n\r\n")


@pytest.mark.parametrize("error", [None, ValueError("a fault of ours"), ConnectionResetError("left")])
def test_a_stream_is_cut_off_when_its_handler_ends_before_it(tmp_path: Path, error: Exception | None) -> None:
    async def half(request: Request) -> None:
        stream = request.start_stream(content_type="text/event-stream")
        await stream.write(b"data: 1\n\n")
        if error is not None:
            raise error

    with Running(tmp_path, prepare=lambda gateway: gateway.router.add("GET", "/half", half)) as gateway:
        with gateway.connect() as connection:
            connection.sendall(get("/half"))
            connection.shutdown(socket.SHUT_WR)  # as a socket that was closed first looks
            with suppress(ConnectionResetError):
                assert not read_all(connection).endswith(b"0\r\n\r\n")
        wait_until(lambda: gateway.connections == 0)

"""Who may connect: places in all and per address, probes beyond them, TLS handshakes."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from headwater.clock import ManualClock
from headwater.http import response as responses
from headwater.http.admission import MAX_SURPLUS, Admission
from headwater.http.connection import HURRY_SECONDS
from headwater.settings import GatewaySettings, TlsSettings
from headwater.system.network import address_block
from tests.gateway.running import Running, get, post, read_all, run_bytes, statuses, wait_until
from tests.gateway.test_server import Authority

HALF = b"GET /healthz HTTP/1.1\r\nHost: a\r\n"


class Entry:
    """Stands for a connection in `Admission`."""

    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


def admission(**settings: Any) -> Admission:
    return Admission(GatewaySettings(**settings))


def add(places: Admission, address: str) -> Any:
    entry = Entry()
    return entry, places.add(cast(Any, entry), address)


@contextmanager
def connections(gateway: Running, count: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections that have sent these bytes, once the server has all of them."""
    with ExitStack() as stack:
        before = gateway.connections
        opened = [stack.enter_context(gateway.connect()) for _ in range(count)]
        for connection in opened:
            connection.sendall(first)
        wait_until(lambda: gateway.connections == before + count)
        yield opened


def test_further_connections_are_refused_when_all_places_are_taken(tmp_path: Path) -> None:
    with Running(tmp_path, max_connections=2) as gateway:
        with connections(gateway, 2):
            answer = gateway.talk(post(run_bytes()))
            assert statuses(answer) == [503]
            assert b"Retry-After: 1" in answer
            assert b"Connection: close" in answer
        wait_until(lambda: gateway.connections == 0)
        assert gateway.post(run_bytes()).status_code == 200
        assert len(gateway.events()) == 1


@pytest.mark.parametrize(
    "first", [b"", HALF, post(run_bytes())[:-10]], ids=["mute", "half-head", "half-body"]
)
def test_probes_are_answered_when_all_places_are_taken(tmp_path: Path, first: bytes) -> None:
    with Running(tmp_path, max_connections=20) as gateway, connections(gateway, 20, first):
        for path in ("/healthz", "/readyz"):
            assert gateway.get(path).status_code == 200
        assert gateway.get("/openapi.json").status_code == 503
        assert statuses(gateway.talk(post(b"x" * 100, path="/healthz"))) == [503]
        assert statuses(gateway.talk(get("/healthz") + get("/healthz"))) == [200]  # one, then closed


def test_a_surplus_connection_is_refused_when_its_request_does_not_come_at_once(tmp_path: Path) -> None:
    clock = ManualClock()
    with (
        Running(tmp_path, max_connections=1, clock=clock, shutdown_timeout_seconds=0.1) as gateway,
        connections(gateway, 1),
        connections(gateway, 1) as mute,
        connections(gateway, 1, HALF) as half,
        connections(gateway, 1, HALF + b"X: " + b"x" * 5000) as large,
    ):
        assert statuses(read_all(large[0])) == [503]
        clock.advance(3.0)
        assert statuses(read_all(mute[0])) == [503]
        assert statuses(read_all(half[0])) == [503]


def test_the_oldest_surplus_connection_is_cut_when_there_are_too_many(tmp_path: Path) -> None:
    with (
        Running(tmp_path, max_connections=1) as gateway,
        connections(gateway, 1 + MAX_SURPLUS) as opened,
        gateway.connect() as last,
    ):
        last.sendall(get("/healthz"))
        assert statuses(read_all(last)) == [200]
        assert is_closed(opened[1])
        assert gateway.connections <= 1 + MAX_SURPLUS


def test_an_address_cannot_take_all_places_when_others_want_some() -> None:
    places = admission(max_connections=100, trusted_proxies=("10.0.0.0/8",))
    refusals = [add(places, "192.0.2.1")[1] for _ in range(100)]
    assert refusals == [None] * 90 + [responses.TOO_MANY_OF_ADDRESS] * 10
    assert not places.is_full
    assert add(places, "192.0.2.2")[1] is None
    assert [add(places, "10.1.2.3")[1] for _ in range(9)] == [None] * 9  # a proxy has no limit of its own
    assert add(places, "10.1.2.3")[1] is responses.TOO_MANY_CONNECTIONS


def test_places_are_free_again_when_connections_end() -> None:
    places = admission(max_connections=10, max_connections_per_address=2)
    entries = [add(places, f"2001:db8::{number:x}")[0] for number in range(1, 4)]  # one /64 network
    assert add(places, "2001:db8::9")[1] is responses.TOO_MANY_OF_ADDRESS
    for entry in entries:
        places.remove(cast(Any, entry))
        places.remove(cast(Any, entry))
    assert add(places, "2001:db8::9")[1] is None
    assert add(places, "2001:db8:0:1::9")[1] is None
    assert len(places) == 3
    assert not any(entry.is_aborted for entry in entries)
    assert len(places._counts) == 2


def test_a_sender_is_an_address_or_a_network_when_it_is_counted() -> None:
    assert address_block("192.0.2.1") == address_block("::ffff:192.0.2.1") == "192.0.2.1"
    assert address_block("2001:db8::1") == address_block("2001:db8::ffff:1%eth0") == "2001:db8::/64"
    assert address_block("not an address") == "not an address"


@pytest.mark.parametrize("first", [b"", HALF], ids=["mute", "half-open"])
def test_slow_connections_give_way_when_all_places_are_taken(tmp_path: Path, first: bytes) -> None:
    clock = ManualClock()
    with (
        Running(tmp_path, max_connections=5, clock=clock, shutdown_timeout_seconds=0.1) as gateway,
        connections(gateway, 5, first),
    ):
        wait_until(lambda: gateway.pending_bytes >= 5 * len(first))
        clock.advance(HURRY_SECONDS - 1)
        assert statuses(gateway.talk(post(run_bytes()))) == [503]
        clock.advance(2)
        wait_until(lambda: not first or gateway.count("gateway_requests", "", "408") == 5)
        clock.advance(3)  # the time to read the refusal
        wait_until(lambda: gateway.connections == 0)
        assert statuses(gateway.talk(post(run_bytes()))) == [200]


def test_slow_bodies_give_way_when_memory_is_scarce(tmp_path: Path) -> None:
    clock = ManualClock()
    body = run_bytes(text="x" * 10_000)
    limits: dict[str, Any] = {
        "max_pending_bytes": 12_500,
        "max_body_bytes": 12_500,
        "shutdown_timeout_seconds": 0.1,
    }
    with (
        Running(tmp_path, clock=clock, **limits) as gateway,
        connections(gateway, 1, post(body)[:-1]) as slow,
        connections(gateway, 1) as idle,
    ):
        wait_until(lambda: gateway.pending_bytes > 10_000)
        assert gateway.post(body).status_code == 503
        clock.advance(HURRY_SECONDS + 1)
        assert statuses(read_all(slow[0])) == [408]
        assert gateway.post(body).status_code == 200
        idle[0].sendall(get("/healthz", "Connection: close"))
        assert statuses(read_all(idle[0])) == [200]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


def tls(authority: Authority) -> TlsSettings:
    certificate, key = authority.issue("server")
    return TlsSettings(certificate=certificate, key=key)


def test_handshakes_are_limited_when_clients_do_not_shake_hands(tmp_path: Path, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=authority.file)
    with Running(tmp_path, tls=tls(authority), max_connections=20) as gateway, ExitStack() as stack:
        mute = [stack.enter_context(gateway.connect()) for _ in range(20 + 3 * MAX_SURPLUS)]
        wait_until(lambda: gateway.connections == 20 + MAX_SURPLUS)
        with gateway.connect() as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as probe:
            probe.sendall(get("/healthz"))
            assert statuses(read_all(probe)) == [200]
        with gateway.connect() as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as producer:
            producer.sendall(post(run_bytes()))
            assert statuses(read_all(producer)) == [503]
        for connection in mute:
            connection.close()
        wait_until(lambda: gateway.connections == 0)
        with gateway.client(verify=context) as client:
            url = f"https://127.0.0.1:{gateway.gateway.port}"
            assert client.post(f"{url}/api/v1/lineage", content=run_bytes()).status_code == 200


def test_a_handshake_is_ended_when_it_takes_too_long(tmp_path: Path, authority: Authority) -> None:
    clock = ManualClock()
    with Running(tmp_path, tls=tls(authority), clock=clock, shutdown_timeout_seconds=0.1) as gateway:
        with connections(gateway, 3, b"\x16\x03\x01") as half:
            clock.advance(11.0)
            wait_until(lambda: gateway.connections == 0)
            assert is_closed(half[0])
        with gateway.connect() as plain:
            plain.sendall(get("/healthz"))
            assert is_closed(plain)
        wait_until(lambda: gateway.connections == 0)


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed the connection, without an answer in plain text."""
    try:
        return b"HTTP" not in connection.recv(1000)
    except ConnectionResetError:
        return True

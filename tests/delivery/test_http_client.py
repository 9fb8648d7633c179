"""The HTTP client of the outlets before servers that behave oddly."""

from __future__ import annotations

import asyncio
import datetime
import gzip
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headwater.delivery.outlets.http_client import MAX_ANSWER_BYTES, HttpAnswer, HttpClient, TlsOptions
from headwater.errors import OutletUnavailable, SettingsError
from headwater.testing import Answer, Request, ScriptedServer


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


BOMB = gzip.compress(bytes(8 * MAX_ANSWER_BYTES))


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def client_of(url: str, **arguments: Any) -> HttpClient:
    defaults: dict[str, Any] = {"url": url, "headers": {}, "tls": TlsOptions()}
    return HttpClient(**(defaults | arguments))


@pytest.fixture(params=["direct", "by-proxy"])
def address(request: pytest.FixtureRequest, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL at which the server answers, itself or as a proxy."""
    if request.param == "direct":
        return server.url
    monkeypatch.setenv("HTTP_PROXY", server.url)
    return "http://far.example/"


def post(client: HttpClient, *urls: str) -> list[HttpAnswer]:
    async def work() -> list[HttpAnswer]:
        client.open()
        try:
            return [await client.post(url, b"{}") for url in urls]
        finally:
            await client.close()

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("raw", "status", "content"),
    [
        pytest.param(
            b"HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, b"until the end", id="ends-with-connection"
        ),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", id="no-content"),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok",
            201,
            b"ok",
            id="continue-first",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            200,
            b"abcde",
            id="chunked",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok", 200, b"ok", id="close"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + gzip.compress(b"packed"),
            200,
            b"packed",
            id="gzip",
        ),
    ],
)
def test_an_answer_is_understood_when_its_form_is_a_rare_one(
    server: ScriptedServer, address: str, raw: bytes, status: int, content: bytes
) -> None:
    server.answer_next(Answer(raw=raw))
    first, second = post(client_of(address), address, address)
    assert (first.status_code, first.content) == (status, content)
    assert second.status_code == 200


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(raw=b"SSH-2.0-OpenSSH_9\r\n"), id="not-http"),
        pytest.param(Answer(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort"), id="short"),
        pytest.param(Answer(cut="before"), id="closed"),
        pytest.param(Answer(body=b"x" * (MAX_ANSWER_BYTES + 1)), id="too-long"),
        pytest.param(Answer(headers={"content-encoding": "br"}, body=b"x"), id="unknown-encoding"),
        pytest.param(Answer(headers={"content-encoding": "gzip"}, body=b"x"), id="broken-encoding"),
        pytest.param(Answer(headers={"content-encoding": "gzip"}, body=BOMB), id="unpacks-to-too-much"),
    ],
)
def test_an_answer_is_no_answer_when_it_is_broken(
    server: ScriptedServer, address: str, answer: Answer
) -> None:
    server.answer_next(answer)
    with pytest.raises(OutletUnavailable, match="gave no usable answer"):
        post(client_of(address), address)


def test_connections_are_used_again_when_requests_follow_each_other(server: ScriptedServer) -> None:
    post(client_of(server.url), *[server.url] * 10)
    assert (server.requests, server.connections) == (10, 1)


def test_connections_are_as_many_as_requests_when_they_are_at_once(server: ScriptedServer) -> None:
    server.answer_always(Answer(delay_seconds=0.05))
    client = client_of(server.url, max_connections=3)

    async def work() -> None:
        client.open()
        for _ in range(2):
            await asyncio.gather(*(client.post(server.url, b"{}") for _ in range(4)))
        await client.close()

    asyncio.run(work())
    assert server.requests == 8
    assert server.connections == 5  # four, of which three are kept, and one more


def test_a_new_connection_is_opened_when_the_kept_one_was_closed_meanwhile(
    server: ScriptedServer, address: str
) -> None:
    client = client_of(address)

    async def work() -> None:
        client.open()
        await client.post(address, b"{}")
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        assert (await client.post(address, b"{}")).status_code == 200
        server.answer_next(Answer(cut="before"))  # closed in the very moment of the next request
        assert (await client.post(address, b"{}")).status_code == 200
        await client.close()

    asyncio.run(work())
    assert server.requests == 4


def test_a_connection_is_not_used_again_when_its_request_was_given_up(server: ScriptedServer) -> None:
    client = client_of(server.url)
    server.answer_next(Answer(delay_seconds=30, body=b"late"))

    async def work() -> None:
        client.open()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.post(server.url, b"{}"), 0.5)
        assert (await client.post(server.url, b"{}")).content == b""
        await client.close()

    asyncio.run(work())
    assert server.connections == 2


def test_a_connection_is_dropped_when_it_speaks_without_being_asked(server: ScriptedServer) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    client = client_of(server.url)
    speaks = True

    talks: list[asyncio.Task[None] | None] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(asyncio.current_task())
        await reader.readuntil(b"{}")
        writer.write(answer)
        await writer.drain()
        if speaks:
            await asyncio.sleep(0.05)
            writer.write(answer)
            await writer.drain()
        try:
            await reader.read()
        except ConnectionResetError:
            pass
        writer.close()

    async def work() -> None:
        nonlocal speaks
        client.open()
        talker = await asyncio.start_server(talk, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{talker.sockets[0].getsockname()[1]}/"
        assert (await client.post(url, b"{}")).content == b"ok"
        await asyncio.sleep(0.1)
        speaks = False
        assert (await client.post(url, b"{}")).content == b"ok"
        await client.close()
        await asyncio.wait([talk for talk in talks if talk])
        talker.close()
        await talker.wait_closed()

    asyncio.run(work())


def test_user_and_password_are_sent_when_the_url_has_them(server: ScriptedServer) -> None:
    seen: list[Request] = []

    def watch(request: Request) -> None:
        seen.append(request)

    server.answer_always(watch)
    url = server.url.replace("http://", "http://me:p%40ss@") + "/path?x=1"
    post(client_of(url), url)
    post(client_of(url, headers={"Authorization": "Bearer x"}), url)
    assert seen[0].headers["authorization"] == "Basic bWU6cEBzcw=="
    assert seen[0].headers["host"] == f"127.0.0.1:{server.port}"
    assert seen[0].path == "/path?x=1"
    assert seen[1].headers["authorization"] == "Bearer x"


@pytest.mark.parametrize("headers", [{"x": "a\r\nb: c"}, {"x y": "a"}, {"x": "日本"}, {"": "a"}])
def test_headers_are_refused_when_they_would_break_the_request(headers: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="headers"):
        client_of("http://host", headers=headers)


def test_requests_go_through_the_proxy_when_the_environment_names_one(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Request] = []

    def watch(request: Request) -> None:
        seen.append(request)

    server.answer_always(watch)
    monkeypatch.setenv("HTTP_PROXY", server.url)
    (answer,) = post(client_of("http://far.example/in"), "http://far.example/in")
    assert answer.status_code == 200
    assert seen[0].path == "http://far.example/in"
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    post(client_of(server.url), f"{server.url}/direct")
    assert seen[1].path == "/direct"


def test_a_host_that_does_not_exist_is_waited_for_when_named() -> None:
    url = "http://headwater-test.invalid/"
    with pytest.raises(OutletUnavailable, match="gave no usable answer"):
        post(client_of(url), url)


def certificate(folder: Path) -> Path:
    """A file with a key and a certificate for 127.0.0.1, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headwater test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


def test_certificates_are_checked_when_the_receiver_speaks_tls(tmp_path: Path) -> None:
    path = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    context.load_verify_locations(path)
    with ScriptedServer(tls=context) as server:
        assert server.url.startswith("https://")
        trusting = TlsOptions(ca=str(path))
        (answer,) = post(client_of(server.url, tls=trusting), server.url)
        assert answer.status_code == 200
        with pytest.raises(OutletUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            post(client_of(server.url), server.url)
        post(client_of(server.url, tls=TlsOptions(verify=False)), server.url)
        context.verify_mode = ssl.CERT_REQUIRED  # from now on it wants to see ours
        with pytest.raises(OutletUnavailable):
            post(client_of(server.url, tls=trusting), server.url)
        mutual = TlsOptions(ca=str(path), certificate=str(path))
        post(client_of(server.url, tls=mutual), server.url)
        assert server.requests == 3

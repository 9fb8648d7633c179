"""The gateway as a whole: TLS, addresses, stopping."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import ssl
import threading
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headwater.errors import HeadwaterError, SettingsError
from headwater.http.server import tls_context
from headwater.settings import TlsSettings
from tests.gateway.running import Running, get, post, read_all, run_bytes, statuses


class Authority:
    """A certificate authority of the test's own."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(self._name, self._key, is_authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[str, str]:
        """Files with a certificate for 127.0.0.1 and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        files = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return str(files[0]), str(files[1])

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, is_authority: bool = False
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
        )
        return builder.sign(self._key, hashes.SHA256())


def test_events_are_taken_when_tls_is_set(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls", "authority")
    certificate, key = authority.issue("server")
    body = run_bytes()
    with Running(tmp_path, tls=TlsSettings(certificate=certificate, key=key), max_body_bytes=5000) as gateway:
        url = f"https://127.0.0.1:{gateway.gateway.port}"
        context = ssl.create_default_context(cafile=authority.file)
        with httpx2.Client(base_url=url, verify=context) as client:
            for _ in range(3):
                assert client.post("/api/v1/lineage", content=body).status_code == 200
            assert client.post("/api/v1/lineage", content=b"x" * 6000).status_code == 413
        with (
            gateway.connect() as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(post(body) + get("/healthz", "Connection: close"))
            assert statuses(read_all(connection)) == [200, 200]
        with gateway.connect() as plain:
            plain.sendall(get("/healthz"))
            assert b"200" not in plain.recv(1000)
        assert gateway.bodies() == [body] * 4


def test_strangers_are_refused_when_clients_must_show_a_certificate(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "tls", "authority"), Authority(tmp_path / "tls", "stranger")
    certificate, key = authority.issue("server")
    tls = TlsSettings(certificate=certificate, key=key, client_ca=str(authority.file))
    with Running(tmp_path, tls=tls) as gateway:
        url = f"https://127.0.0.1:{gateway.gateway.port}"
        context = ssl.create_default_context(cafile=authority.file)
        with httpx2.Client(base_url=url, verify=context) as client, pytest.raises(httpx2.HTTPError):
            client.get("/healthz")
        context.load_cert_chain(*stranger.issue("unknown"))
        with httpx2.Client(base_url=url, verify=context) as client, pytest.raises(httpx2.HTTPError):
            client.get("/healthz")
        context = ssl.create_default_context(cafile=authority.file)
        context.load_cert_chain(*authority.issue("known"))
        with httpx2.Client(base_url=url, verify=context) as client:
            assert client.get("/healthz").status_code == 200


def test_there_is_no_server_and_a_reason_when_tls_cannot_be_used(tmp_path: Path) -> None:
    tls = TlsSettings(certificate=str(tmp_path / "absent.crt"), key=str(tmp_path / "absent.key"))
    with pytest.raises(SettingsError, match=r"gateway\.tls"):
        tls_context(tls)


def test_start_fails_with_a_reason_when_the_port_is_taken(tmp_path: Path) -> None:
    with Running(tmp_path / "one") as one:
        two = Running(tmp_path / "two", port=one.gateway.port)
        with pytest.raises(HeadwaterError, match=f"cannot listen on 127.0.0.1:{one.gateway.port}"):
            asyncio.run(two.gateway.start())
        two.log.close()
        two.rejects.close()


def test_each_is_answered_and_each_200_is_in_the_log_when_stopped_under_load(tmp_path: Path) -> None:
    answers: list[tuple[int, int]] = []
    resets: list[int] = []
    with Running(tmp_path) as gateway:
        enough = threading.Event()

        def send(first: int) -> None:
            with gateway.client() as client:
                for number in range(first, first + 100_000):
                    try:
                        answer = client.post("/api/v1/lineage", content=run_bytes(n=number))
                    except httpx2.ConnectError:
                        return  # the port is closed
                    except httpx2.HTTPError:
                        resets.append(number)
                        return
                    answers.append((number, answer.status_code))
                    if len(answers) > 300:
                        enough.set()
                    if answer.status_code != 200:
                        return

        senders = [threading.Thread(target=send, args=(first * 1_000_000,)) for first in range(8)]
        for sender in senders:
            sender.start()
        assert enough.wait(30)
        gateway.stop()
        for sender in senders:
            sender.join(20)
        assert resets == []
        assert {status for _, status in answers} <= {200, 503}
        acknowledged = {number for number, status in answers if status == 200}
        stored = [json.loads(body)["n"] for body in gateway.bodies()]
        assert acknowledged <= set(stored)
        assert len(stored) == len(set(stored))


def test_pipelined_requests_are_answered_when_the_gateway_stops(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway, gateway.connect() as connection, gateway.connect() as idle:
        connection.sendall(post(run_bytes()) * 50)
        first = connection.recv(1)
        gateway.stop()
        answer = first + read_all(connection)
        assert set(statuses(answer)) <= {200, 503}
        assert len(statuses(answer)) == 50 or b"Connection: close" in answer
        assert statuses(answer).count(200) <= len(gateway.events())
        assert idle.recv(100) == b""


def test_half_a_request_does_not_hold_up_when_the_gateway_stops(tmp_path: Path) -> None:
    with Running(tmp_path, shutdown_timeout_seconds=0.3) as gateway, gateway.connect() as connection:
        connection.sendall(post(run_bytes())[:-5])
        gateway.stop()
        assert gateway.events() == []
        gateway.stop()  # twice is once


def test_503_is_answered_when_a_request_comes_while_stopping(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway, gateway.connect() as connection:
        connection.sendall(get("/healthz"))
        assert statuses(connection.recv(1000)) == [200]
        stopping = threading.Thread(target=gateway.stop)
        stopping.start()
        connection.sendall(post(run_bytes()))
        answer = read_all(connection)
        connection.close()
        stopping.join(20)
        if answer:  # it came within the grace for requests that were on their way
            assert statuses(answer)[0] in (200, 503)
        assert statuses(answer).count(200) == len(gateway.events())

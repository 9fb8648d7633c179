"""Addresses: whose request this is, and whether it comes from this machine."""

from __future__ import annotations

import pytest

from headwater.system.network import MAX_PROXIES, ClientAddresses, is_from_this_machine


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"])
def test_request_is_from_this_machine_when_its_peer_is_and_no_proxy_forwarded_it(peer: str) -> None:
    assert is_from_this_machine(peer, {"host": "localhost", "user-agent": "curl", "accept": "*/*"})


@pytest.mark.parametrize("peer", ["", "192.0.2.1", "2001:db8::1", "localhost", "0.0.0.0"])
def test_request_is_not_from_this_machine_when_its_peer_is_not(peer: str) -> None:
    assert not is_from_this_machine(peer, {})


@pytest.mark.parametrize(
    "header",
    [
        "forwarded",
        "via",
        "x-real-ip",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-forwarded",
        "true-client-ip",
        "cf-connecting-ip",
    ],
)
@pytest.mark.parametrize("value", ["203.0.113.7", "127.0.0.1", "for=127.0.0.1", ""])
def test_request_is_not_from_this_machine_when_a_proxy_forwarded_it(header: str, value: str) -> None:
    assert not is_from_this_machine("127.0.0.1", {"host": "localhost", header: value})


def test_only_the_nearest_proxies_are_read_when_a_header_names_thousands() -> None:
    addresses = ClientAddresses(["127.0.0.0/8"])
    trusted = ", ".join(["127.0.0.1"] * MAX_PROXIES)
    assert addresses.find("127.0.0.1", f"203.0.113.7, {trusted}") == "127.0.0.1"
    assert addresses.find("127.0.0.1", f"203.0.113.7, {trusted[11:]}") == "203.0.113.7"

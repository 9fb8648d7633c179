"""Internet addresses as settings, headers, proxies and events write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from headwater.text_cache import text_cache

MAX_PROXIES = 32  # between a client and this server; addresses beyond them are not read
# Headers that a proxy adds to what it forwards, besides `X-Forwarded-…`.
_FORWARDING = {
    "cf-connecting-ip",
    "client-ip",
    "fastly-client-ip",
    "forwarded",
    "forwarded-for",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-original-forwarded-for",
    "x-originating-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
}


def read_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address without port, brackets, zone or IPv4 mapping; None if the text is not an address."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is reachable from this machine only."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_from_this_machine(peer: str, headers: Mapping[str, str]) -> bool:
    """Return whether a request was sent by a program on this machine, and not through a proxy on it.

    Any forwarding header counts as a proxy, whatever address it names: behind a proxy that adds only some of
    them, the client chooses the others. Names of headers are lower case.
    """
    address = read_address(peer)
    if address is None or not address.is_loopback:
        return False
    return not any(name in _FORWARDING or name.startswith("x-forwarded") for name in headers)


def address_block(address: str) -> str:
    """Return what stands for one sender: an IPv4 address, or the /64 network of an IPv6 address."""
    found = read_address(address)
    if isinstance(found, IPv6Address):
        return str(ip_network((int(found) >> 64 << 64, 64)))
    return str(found) if found is not None else address


class ClientAddresses:
    """Finds the address of a client behind trusted proxies."""

    def __init__(self, trusted_proxies: Sequence[str]) -> None:
        self._networks = [ip_network(each) for each in trusted_proxies]
        self.find = text_cache(4096)(self._find)

    def _find(self, peer: str, forwarded_for: str) -> str:
        """Return the address of a client, by the connection's peer and the `X-Forwarded-For` header."""
        # From the nearest to the farthest; an untrusted address may have made up all that lie beyond it.
        found = read_address(peer)
        proxies = forwarded_for.rsplit(",", MAX_PROXIES)[-MAX_PROXIES:] if forwarded_for else ()
        for text in reversed(proxies):
            if found is None or not any(found in network for network in self._networks):
                break
            if (farther := read_address(text)) is None:
                break
            found = farther
        return str(found) if found is not None else peer

    def trusts(self, peer: str) -> bool:
        """Return whether this is the address of a trusted proxy."""
        address = read_address(peer)
        return address is not None and any(address in network for network in self._networks)

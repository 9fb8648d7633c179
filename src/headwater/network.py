"""Internet addresses as settings, headers, proxies and events write them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network


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


class ClientAddresses:
    """Finds the address of a client behind trusted proxies."""

    def __init__(self, trusted_proxies: Sequence[str]) -> None:
        self._networks = [ip_network(each) for each in trusted_proxies]
        self.find = lru_cache(4096)(self._find)

    def _find(self, peer: str, forwarded_for: str) -> str:
        """Return the address of a client, by the connection's peer and the `X-Forwarded-For` header."""
        # From the nearest to the farthest; an untrusted address may have made up all that lie beyond it.
        found = read_address(peer)
        for text in reversed(forwarded_for.split(",")) if forwarded_for else ():
            if found is None or not any(found in network for network in self._networks):
                break
            if (farther := read_address(text)) is None:
                break
            found = farther
        return str(found) if found is not None else peer

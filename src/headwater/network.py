"""Addresses of the internet, as headers, proxies and events write them."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

__all__ = ["read_address"]


def read_address(text: str) -> IPv4Address | IPv6Address | None:
    """The address without port, brackets, zone or mapping; None for what is none."""
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

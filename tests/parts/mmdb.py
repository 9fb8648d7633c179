"""Writes small MaxMind DB files (format 2.0, IPv4), so that none need be kept in the repository."""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path
from typing import Any

__all__ = ["write_mmdb"]

_MARKER = b"\xab\xcd\xefMaxMind.com"
_SEPARATOR = bytes(16)


class Short(int):
    """A number that the format wants in 16 bits."""


class Long(int):
    """A number that the format wants in 64 bits."""


def write_mmdb(path: Path, networks: dict[str, dict[str, Any]]) -> None:
    """A database that knows these networks, such as `{"81.2.69.0/24": {"country": {"iso_code": "GB"}}}`."""
    nodes: list[list[int | None]] = [[None, None]]
    data, offsets = b"", []
    for record in networks.values():
        offsets.append(len(data))
        data += _encoded(record)
    leaves: dict[tuple[int, int], int] = {}
    for (network, _), offset in zip(networks.items(), offsets, strict=True):
        parsed = ipaddress.IPv4Network(network)
        node = 0
        for depth in range(parsed.prefixlen):
            bit = (int(parsed.network_address) >> (31 - depth)) & 1
            if depth == parsed.prefixlen - 1:
                leaves[node, bit] = offset
                break
            if nodes[node][bit] is None:
                nodes.append([None, None])
                nodes[node][bit] = len(nodes) - 1
            node = nodes[node][bit] or 0
    count, tree = len(nodes), b""
    for number, node_pair in enumerate(nodes):
        for bit in (0, 1):
            value = node_pair[bit]
            if (number, bit) in leaves:
                value = count + len(_SEPARATOR) + leaves[number, bit]
            tree += (count if value is None else value).to_bytes(3, "big")
    metadata = _encoded(
        {
            "node_count": count,
            "record_size": Short(24),
            "ip_version": Short(4),
            "database_type": "Test",
            "languages": ["en"],
            "binary_format_major_version": Short(2),
            "binary_format_minor_version": Short(0),
            "build_epoch": Long(1_700_000_000),
            "description": {"en": "made by a test"},
        }
    )
    path.write_bytes(tree + _SEPARATOR + data + _MARKER + metadata)


def _encoded(value: Any) -> bytes:
    if isinstance(value, str):
        body = value.encode()
        return _head(2, len(body)) + body
    if isinstance(value, float):
        return _head(3, 8) + struct.pack(">d", value)
    if isinstance(value, int):
        body = value.to_bytes((value.bit_length() + 7) // 8, "big")
        kind = 5 if isinstance(value, Short) else 9 if isinstance(value, Long) else 6
        return _head(kind, len(body)) + body
    if isinstance(value, list):
        return _head(11, len(value)) + b"".join(map(_encoded, value))
    assert isinstance(value, dict)
    return _head(7, len(value)) + b"".join(_encoded(key) + _encoded(item) for key, item in value.items())


def _head(kind: int, size: int) -> bytes:
    assert size < 285
    extra = b"" if size < 29 else bytes([size - 29])
    short = min(size, 29)
    return bytes([short, kind - 7]) + extra if kind > 7 else bytes([kind << 5 | short]) + extra

"""The format of a group commit in one row: packed, compressed, checksummed.

A packed and compressed row per commit gives about three times as many appended events per second as a row
per event, since lineage events repeat themselves (measured, docs/log.md).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

import msgspec

from headwater.formats import zstd

_HEAD = struct.Struct("<QdI")
_HEAD_WITH_EPOCH = struct.Struct("<QdIQ")
_HAS_EPOCH = 1 << 63  # in the field of the position; commits of earlier releases have no epoch
_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 1,
    zstd.CompressionParameter.checksum_flag: 1,
}


class Commit(msgspec.Struct, frozen=True):
    """The events of one group commit."""

    first: int
    received_at: float
    bodies: list[bytes]
    epoch: int = 0
    """Which opening of the log gave out the positions; 0 in commits of earlier releases."""

    @property
    def end(self) -> int:
        return self.first + len(self.bodies)


class Packer:
    """Packs a commit into one blob: position, time, count, epoch, lengths, bytes, as one checked zstd frame.

    Position, time and epoch are in it too, so that the checksum covers all that the row says. Not
    thread-safe; the writer has one of its own.
    """

    def __init__(self) -> None:
        self._zstd = zstd.ZstdCompressor(options=_OPTIONS)

    def pack(self, first: int, received_at: float, bodies: Sequence[bytes], epoch: int = 0) -> bytes:
        lengths = array("I", map(len, bodies)).tobytes()
        if epoch:
            head = _HEAD_WITH_EPOCH.pack(first | _HAS_EPOCH, received_at, len(bodies), epoch)
        else:
            head = _HEAD.pack(first, received_at, len(bodies))
        raw = b"".join((head, lengths, *bodies))
        return self._zstd.compress(raw, self._zstd.FLUSH_FRAME)


def unpack(blob: bytes) -> Commit:
    """The commit in a blob. Raises ValueError if a single bit of it has changed."""
    try:
        raw = zstd.decompress(blob)
        head, epoch = _HEAD, 0
        first, received_at, count = head.unpack_from(raw)
        if first & _HAS_EPOCH:
            head = _HEAD_WITH_EPOCH
            first, received_at, count, epoch = head.unpack_from(raw)
            first ^= _HAS_EPOCH
    except (zstd.ZstdError, struct.error, MemoryError, OverflowError) as error:
        raise ValueError(f"the commit's checksum or form is wrong: {error}") from None
    at = head.size + 4 * count
    lengths = array("I", raw[head.size : at])
    if len(lengths) != count or at + sum(lengths) != len(raw):
        raise ValueError("the commit's lengths do not add up")
    bodies = []
    for length in lengths:
        bodies.append(raw[at : at + length])
        at += length
    return Commit(first, received_at, bodies, epoch)

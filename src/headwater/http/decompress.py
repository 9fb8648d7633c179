"""Decodes gzip and zstd bodies as they arrive, in linear time and within `gateway.max_body_bytes` (G12)."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from headwater.formats.zstd import DecompressionParameter, ZstdDecompressor, ZstdError, get_frame_info
from headwater.http.response import Problem

# Each member (gzip) or frame (zstd) costs a decoder of its own and a copy of what is left of `STEP_BYTES`.
MAX_MEMBERS = 1_024
STEP_BYTES = 16 * 1024
# A body may be larger than its content by this much. Empty blocks make such a body, and decoding costs CPU.
# A compressed block of zstd, of up to 128 KiB, is decoded when all of it has arrived.
PADDING_BYTES = (64 + 128) * 1024
GZIP = 31  # zlib's window size with the gzip container
ZSTD_WINDOW_LOG = 23  # 8 MiB, what every zstd decoder should support; larger ones cost memory
FRAME_HEADER_BYTES = 18  # the longest header of a zstd frame
STATE_BYTES = 64 * 1024  # of a decoder, without the window of zstd

_COMPRESS_ONCE = "Compress the whole body once, or send it without Content-Encoding."


class ZstdFrame:
    """Decodes one frame to the same, whatever its pieces are.

    libzstd has other code for a frame that arrives whole, with other verdicts on what no encoder makes, such
    as empty blocks of a repeated byte: so the first byte of each frame is passed to it alone. In pieces it
    does not compare the size that the header declares with the content.
    """

    def __init__(self) -> None:
        self._frame = ZstdDecompressor(options={DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG})
        self._header = b""
        self._bytes_out = 0

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        if not self._header and len(data) > 1:
            self._header = data[:1]
            self._frame.decompress(data[:1], max_length)
            data = data[1:]
        self._header += data[: FRAME_HEADER_BYTES - len(self._header)]
        part = self._frame.decompress(data, max_length)
        self._bytes_out += len(part)
        if self._frame.eof:
            declared = get_frame_info(self._header).decompressed_size
            if declared is not None and declared != self._bytes_out:
                raise ZstdError(f"the header declares {declared} bytes, the content has {self._bytes_out}")
        return part


# A decoder of one member or frame: `zlib.decompressobj` and `ZstdFrame` share these names.
_MemberDecoder = Any

_MAKE: dict[str, Callable[[], _MemberDecoder]] = {
    "gzip": partial(zlib.decompressobj, GZIP),
    "x-gzip": partial(zlib.decompressobj, GZIP),
    "zstd": ZstdFrame,
}


class BodyDecoder:
    """Decodes one body. Its methods raise Problem for a body that is broken or exceeds a limit."""

    def __init__(self, encoding: str, make: Callable[[], _MemberDecoder], max_bytes: int) -> None:
        self._encoding = encoding
        self._make = make
        self._max_bytes = max_bytes
        self._member: _MemberDecoder | None = None
        self._members = 0
        self._bytes_in = 0
        self._bytes_out = 0

    @property
    def memory(self) -> int:
        """Bytes that the decoder holds: its state, and what it has written into its window."""
        return STATE_BYTES + min(self._bytes_out, 1 << ZSTD_WINDOW_LOG)

    def feed(self, data: bytes) -> bytes:
        """Return what the next bytes of the body decode to."""
        steps = [data[start : start + STEP_BYTES] for start in range(0, len(data), STEP_BYTES)]
        return b"".join(self._decode(step) for step in steps)

    def finish(self) -> None:
        """Check that the body is complete."""
        if self._member is not None:
            raise self._broken("the end is missing")

    def _decode(self, data: bytes) -> bytes:
        parts = []
        self._bytes_in += len(data)
        while data:
            member = self._member or self._begin_member()
            try:
                part = member.decompress(data, self._max_bytes + 1 - self._bytes_out)
            except (zlib.error, ZstdError) as error:
                raise self._broken(str(error)[:200]) from None
            self._bytes_out += len(part)
            if self._bytes_out > self._max_bytes:
                raise self._too_large()
            parts.append(part)
            data = b""
            if member.eof:
                data = member.unused_data
                self._member = None
        if self._bytes_in > self._bytes_out + PADDING_BYTES:
            raise self._refused(f"it is more than {PADDING_BYTES} bytes larger than its content")
        return b"".join(parts)

    def _begin_member(self) -> _MemberDecoder:
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise self._refused(f"it has more than {MAX_MEMBERS} members or frames")
        self._member = self._make()
        return self._member

    def _broken(self, reason: str) -> Problem:
        return Problem(
            400,
            "bad_encoding",
            f"The body is not {self._encoding}, or it is truncated: {reason}",
            hint=_COMPRESS_ONCE,
        )

    def _refused(self, reason: str) -> Problem:
        return Problem(
            400, "bad_encoding", f"The {self._encoding} body is refused: {reason}.", hint=_COMPRESS_ONCE
        )

    def _too_large(self) -> Problem:
        return Problem(
            413,
            "body_too_large",
            f"The decompressed body exceeds {self._max_bytes} bytes (`gateway.max_body_bytes`).",
            hint="Send fewer events in one request.",
        )


def decoder_of(encoding: str, max_bytes: int) -> BodyDecoder | None:
    """Return the decoder of a Content-Encoding; None for `identity`; Problem 415 if it is unknown."""
    encoding = encoding.strip().lower()
    if encoding in ("identity", ""):
        return None
    if (make := _MAKE.get(encoding)) is not None:
        return BodyDecoder(encoding, make, max_bytes)
    raise Problem(
        415,
        "unsupported_encoding",
        "The Content-Encoding is not supported.",
        hint="Use gzip, zstd, or none.",
        headers={"Accept-Encoding": "gzip, zstd, identity"},
    )

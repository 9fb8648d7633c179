"""Decompresses gzip and zstd bodies within `gateway.max_body_bytes` (G12)."""

from __future__ import annotations

import zlib

import zstandard

from headwater.http.request import Request
from headwater.http.response import Problem

ZSTD_WINDOW_BYTES = 8 * 1024 * 1024  # what every zstd decoder should support; larger ones cost memory
GZIP = 31  # zlib's window size with the gzip container
STEP_BYTES = 64 * 1024


class Decompressor:
    """Decompresses bodies; 413 for a body that would exceed `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._zstd = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)

    def body(self, request: Request) -> bytes:
        """Return the body of a request without its Content-Encoding, and count its memory."""
        encoding = request.headers.get("content-encoding")
        if encoding is None:
            return request.body
        body = self._decompress(request.body, encoding.strip().lower())
        request.reserve(len(body))
        return body

    def _decompress(self, body: bytes, encoding: str) -> bytes:
        if encoding in ("identity", ""):
            return body
        try:
            if encoding in ("gzip", "x-gzip"):
                return self._gunzip(body)
            if encoding == "zstd":
                return self._unzstd(body)
        except (zlib.error, zstandard.ZstdError, EOFError) as error:
            raise Problem(
                400,
                "bad_encoding",
                f"The body is not {encoding}, or it is truncated: {str(error)[:200]}",
                hint="Compress the whole body once, or send it without Content-Encoding.",
            ) from None
        raise Problem(
            415,
            "unsupported_encoding",
            "The Content-Encoding is not supported.",
            hint="Use gzip, zstd, or none.",
            headers={"Accept-Encoding": "gzip, zstd, identity"},
        )

    def _gunzip(self, body: bytes) -> bytes:
        parts: list[bytes] = []
        size = 0
        while body:  # a gzip file may consist of several members
            member = zlib.decompressobj(GZIP)
            parts.append(member.decompress(body, self._max_bytes + 1 - size))
            size += len(parts[-1])
            if size > self._max_bytes:
                raise self._too_large_decompressed()
            if not member.eof:
                raise EOFError("the end is missing")
            body = member.unused_data
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _unzstd(self, body: bytes) -> bytes:
        # Twice: the stream reader is bounded but does not notice a missing end, the decompressor notices it
        # but is not bounded.
        size = 0
        with self._zstd.stream_reader(body, read_across_frames=True) as reader:
            while step := reader.read(STEP_BYTES):
                size += len(step)
                if size > self._max_bytes:
                    raise self._too_large_decompressed()
        parts: list[bytes] = []
        while body:
            frame = self._zstd.decompressobj()
            parts.append(frame.decompress(body))
            if not frame.eof:
                raise EOFError("the end is missing")
            body = frame.unused_data
        return b"".join(parts)

    def _too_large_decompressed(self) -> Problem:
        return Problem(
            413,
            "body_too_large",
            f"The decompressed body exceeds {self._max_bytes} bytes (`gateway.max_body_bytes`).",
            hint="Send fewer events in one request.",
        )

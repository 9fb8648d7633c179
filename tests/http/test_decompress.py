"""Decoding of bodies: linear in the input, whatever the input is."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.http.connection import SLICE_BYTES
from headwater.http.decompress import MAX_MEMBERS, PADDING_BYTES, STEP_BYTES, BodyDecoder, decoder_of
from headwater.http.response import Problem
from tests.gateway.running import Running, post, run_bytes, statuses

MAX_BYTES = 2**20
ENCODERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstandard.compress}
EMPTY_BLOCK = {"gzip": b"\x00\x00\x00\xff\xff", "zstd": b"\x00\x00\x00"}
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"  # a frame of zstd that has no content


class Work:
    """Counts what decoding costs: decoders, calls of them, and the bytes that were given to them."""

    def __init__(self, encoding: str, max_bytes: int = MAX_BYTES) -> None:
        decoder = decoder_of(encoding, max_bytes)
        assert decoder is not None
        self.decoder: BodyDecoder = decoder
        self.members = self.calls = self.bytes = 0
        self._make = decoder._make
        decoder._make = self._counting

    def _counting(self) -> Any:
        self.members += 1
        return _CountingMember(self, self._make())

    def decode(self, body: bytes, piece_bytes: int = STEP_BYTES) -> bytes:
        pieces = range(0, len(body), piece_bytes)
        decoded = b"".join(self.decoder.feed(body[start : start + piece_bytes]) for start in pieces)
        self.decoder.finish()
        return decoded

    def check(self, bytes_in: int) -> None:
        """The work is linear, and what depends on members is bounded by their number."""
        assert self.members <= MAX_MEMBERS
        assert self.calls <= self.members + bytes_in // STEP_BYTES + 1
        assert self.bytes <= bytes_in + self.members * STEP_BYTES


class _CountingMember:
    def __init__(self, work: Work, member: Any) -> None:
        self._work = work
        self._member = member

    def decompress(self, data: bytes, max_length: int) -> bytes:
        self._work.calls += 1
        self._work.bytes += len(data)
        decoded: bytes = self._member.decompress(data, max_length)
        return decoded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._member, name)


def without_end(encoding: str) -> bytes:
    """The begin of a member to which blocks may be added."""
    if encoding == "zstd":
        return b"\x28\xb5\x2f\xfd\x00\x58"
    return gzip.compress(b"")[:10]


@pytest.mark.parametrize("encoding", ENCODERS)
@pytest.mark.parametrize("size", [100_000, 1_000_000, 10_000_000])
@pytest.mark.parametrize("shape", ["empty members", "tiny members", "empty blocks", "skippable frames"])
def test_the_work_stays_linear_when_a_body_is_made_of_overhead(encoding: str, size: int, shape: str) -> None:
    if shape == "empty blocks":
        body = without_end(encoding) + EMPTY_BLOCK[encoding] * (size // len(EMPTY_BLOCK[encoding]))
    elif shape == "skippable frames":
        body = SKIPPABLE * (size // len(SKIPPABLE))
    else:
        member = ENCODERS[encoding](b"" if shape == "empty members" else b"{}")
        body = member * (size // len(member))
    work = Work(encoding)
    with pytest.raises(Problem) as caught:
        work.decode(body)
    assert (caught.value.status, caught.value.code) == (400, "bad_encoding")
    work.check(len(body))
    assert work.bytes <= PADDING_BYTES + (MAX_MEMBERS + 1) * STEP_BYTES  # however long the body is


CONTENTS = st.lists(st.binary(max_size=40) | st.sampled_from([b"", b"x" * 70_000]), max_size=60)


@given(
    encoding=st.sampled_from(sorted(ENCODERS)),
    contents=CONTENTS,
    skipped=st.booleans(),
    piece_bytes=st.integers(1, 3 * STEP_BYTES),
)
@settings(max_examples=60, deadline=None)
def test_content_is_the_same_and_the_work_linear_when_members_and_pieces_vary(
    encoding: str, contents: list[bytes], skipped: bool, piece_bytes: int
) -> None:
    parts = [ENCODERS[encoding](content) for content in contents]
    body = (SKIPPABLE if skipped and encoding == "zstd" else b"").join(parts)
    work = Work(encoding, 2**23)
    assert work.decode(body, piece_bytes) == b"".join(contents)
    pieces = len(body) // piece_bytes + 1
    assert work.calls <= work.members + pieces + len(body) // STEP_BYTES + 1
    assert work.bytes <= len(body) + work.members * min(piece_bytes, STEP_BYTES)


@pytest.mark.parametrize("declared", [0, 2, 3, 255])
@pytest.mark.parametrize("piece_bytes", [1, 2, 5, 8, 9, 12, 14, 15, 99])
def test_a_frame_is_refused_whatever_its_pieces_are_when_it_has_not_the_declared_size(
    declared: int, piece_bytes: int
) -> None:
    block, empty_last_block = (3 << 3).to_bytes(3, "little") + b"{} ", b"\x01\x00\x00"
    body = b"\x28\xb5\x2f\xfd\x20" + bytes([declared]) + block + empty_last_block
    if declared == 3:
        assert Work("zstd").decode(body, piece_bytes) == b"{} "
    else:
        with pytest.raises(Problem) as caught:
            Work("zstd").decode(body, piece_bytes)
        assert (caught.value.status, caught.value.code) == (400, "bad_encoding")


@given(encoding=st.sampled_from(sorted(ENCODERS)), seed=st.integers(0, 2**32), piece_bytes=st.integers(1, 99))
@settings(max_examples=100, deadline=None)
def test_a_body_is_decoded_or_refused_when_bytes_of_it_are_changed(
    encoding: str, seed: int, piece_bytes: int
) -> None:
    dice = random.Random(seed)
    body = bytearray(ENCODERS[encoding](run_bytes()) * dice.randint(1, 3))
    for _ in range(dice.randint(0, 4)):
        body[dice.randrange(len(body))] = dice.randrange(256)
    work = Work(encoding)
    decoded = b""
    with contextlib.suppress(Problem):  # any other exception fails the test
        decoded = work.decode(bytes(body[: dice.randint(1, len(body))]), piece_bytes)
    assert len(decoded) <= MAX_BYTES
    assert work.calls <= work.members + len(body) // piece_bytes + 1
    assert work.bytes <= len(body) + work.members * piece_bytes


@pytest.mark.parametrize("encoding", ENCODERS)
def test_400_is_answered_when_a_body_is_a_megabyte_of_empty_members(tmp_path: Path, encoding: str) -> None:
    member = ENCODERS[encoding](b"")
    with Running(tmp_path) as gateway:
        answer = gateway.post(member * (10**6 // len(member)), headers={"content-encoding": encoding})
        assert (answer.status_code, answer.json()["error"]) == (400, "bad_encoding")
        assert gateway.pending_bytes == 0


@pytest.mark.parametrize("encoding", ENCODERS)
def test_other_requests_come_in_between_when_a_large_body_is_decoded(
    tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = random.Random(1).randbytes(500_000).hex().encode()
    body = run_bytes(text=content.decode())
    packed = ENCODERS[encoding](body)
    turn = 0
    decoded: Counter[int] = Counter()
    feed = BodyDecoder.feed

    def counting(self: BodyDecoder, data: bytes) -> bytes:
        decoded[turn] += len(data)
        return feed(self, data)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(BodyDecoder, "feed", counting)
    with Running(tmp_path, max_event_bytes=2**24) as gateway:
        counter = asyncio.run_coroutine_threadsafe(count_turns(), gateway._loop)
        answer = gateway.talk(post(packed, f"Content-Encoding: {encoding}") + post(run_bytes()))
        counter.cancel()
        assert statuses(answer) == [200, 200]
        assert gateway.bodies()[0] == body
        assert gateway.pending_bytes == 0
    assert sum(decoded.values()) == len(packed)
    assert max(decoded.values()) <= SLICE_BYTES


def test_a_body_is_refused_when_its_decoder_would_need_a_large_window(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = compressor.compress(b" " * 1000) + compressor.flush()
    with Running(tmp_path) as gateway:
        assert gateway.post(body, headers={"content-encoding": "zstd"}).status_code == 400


def test_stored_blocks_are_accepted_when_a_client_does_not_compress() -> None:
    content = random.Random(2).randbytes(300_000)
    assert Work("gzip").decode(gzip.compress(content, 0)) == content
    assert Work("zstd").decode(zstandard.compress(content)) == content


@pytest.mark.parametrize("encoding", ENCODERS)
@pytest.mark.parametrize("level", [1, 19])
def test_a_block_is_awaited_when_it_hardly_compresses(encoding: str, level: int) -> None:
    """Keys, digests and images in base64 take three quarters of their size: zstd's blocks then are large."""
    content = base64.b64encode(random.Random(3).randbytes(300_000))
    gzipped, compressed = gzip.compress(content, min(level, 9)), zstandard.compress(content, level)
    packed = gzipped if encoding == "gzip" else compressed
    assert len(packed) < 0.8 * len(content)
    for piece_bytes in (1_000, STEP_BYTES):
        assert Work(encoding).decode(packed, piece_bytes) == content

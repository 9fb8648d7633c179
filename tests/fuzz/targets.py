"""What a fuzzer calls: each target reads bytes as hostile input, and asserts what must hold for any.

`make fuzz-coverage` calls them under coverage guidance; test_targets.py calls them with the kept seeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
import tempfile
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import h11
import orjson

from headwater.clock import ManualClock
from headwater.formats.zstd import ZstdCompressor, ZstdDecompressor
from headwater.gateway.json_limits import JsonLimits
from headwater.gateway.openlineage_validator import Budget, Validator
from headwater.http.connection import Connection
from headwater.http.decompress import MAX_MEMBERS, BodyDecoder, decoder_of
from headwater.http.request import Request
from headwater.http.response import Problem, Response
from headwater.http.routing.router import Router
from headwater.http.server import HttpServer
from headwater.log.files.checked_lines import Line, LineReader, checked_line, has_checksums, read_line
from headwater.log.queue import offline
from headwater.log.queue.log import Log
from headwater.log.queue.partition_file import partition_paths
from headwater.metrics import Metrics
from headwater.settings import GatewaySettings
from tests.log.page_damage import damaged
from tests.log.parts import adds_up, body, copy_of, fill, read_all, small

Target = Callable[[bytes], None]
MAX_INPUT = 4096  # below every limit whose outcome depends on how the input is cut into pieces
EVENTS = 24


# --- HTTP: what a connection reads ------------------------------------------------------------------------


class Seen(NamedTuple):
    """A request as a server read it."""

    method: bytes
    target: bytes
    body: bytes


class MemoryTransport(asyncio.Transport):
    """The other end of a connection: keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def write_eof(self) -> None: ...

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("203.0.113.9", 4711) if name == "peername" else default


class AnyPath(Router):
    """Passes every request to one handler, whatever its method and path."""

    def __init__(self, handler: Callable[[Request], None]) -> None:
        super().__init__()
        self.add("POST", "/", handler)
        self._methods = self._paths["/"]

    def find(self, request: Request) -> Any:
        return self._methods["POST"]


async def served(data: bytes, cuts: list[int]) -> tuple[list[Seen], bytes]:
    """What a connection reads of the bytes when they arrive in these pieces, and what it answers."""
    seen: list[Seen] = []

    def handle(request: Request) -> None:
        try:
            content = request.read_body()
        except Problem as problem:
            request.respond(problem.response())
            return
        seen.append(Seen(request.method.encode(), request.target, content))
        request.respond(Response(200, b"{}"))

    server = HttpServer(GatewaySettings(), AnyPath(handle), Metrics(), ManualClock())
    server.date = b"Thu, 01 Jan 1970 00:00:00 GMT"
    connection, transport = Connection(server), MemoryTransport()
    connection.connection_made(transport)
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    for start, end in pairwise(edges):
        if start < end:
            connection.data_received(data[start:end])
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # reading is resumed by the loop
        assert server.pending_bytes >= 0
    connection.eof_received()
    connection.connection_lost(None)
    assert server.pending_bytes == 0, "memory of a connection that is gone"
    assert len(server.admission) == 0
    return seen, transport.sent


def read_by_h11(data: bytes) -> list[Seen]:
    """The complete requests that another parser finds, up to the first that it refuses."""
    found: list[Seen] = []
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    parser.receive_data(data)
    parser.receive_data(b"")
    head: h11.Request | None = None
    content = b""
    with contextlib.suppress(h11.RemoteProtocolError, h11.LocalProtocolError):
        while True:
            event = parser.next_event()
            if isinstance(event, h11.Request):
                head, content = event, b""
            elif isinstance(event, h11.Data):
                content += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                found.append(Seen(head.method, head.target, content))
                parser.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                parser.send(h11.EndOfMessage())
                if parser.our_state is not h11.DONE or parser.their_state is not h11.DONE:
                    break
                parser.start_next_cycle()
            else:
                break
    return found


def statuses(answer: bytes) -> list[bytes]:
    return [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]


def http_connection(data: bytes) -> None:
    """A connection reads the same requests however they are cut, and the same as another parser."""
    if len(data) < 4:
        return
    cuts, stream = list(data[:4]), data[4:MAX_INPUT]
    whole, answer = asyncio.run(served(stream, []))
    parts, other_answer = asyncio.run(served(stream, [cut * len(stream) // 255 for cut in cuts]))
    assert parts == whole, "requests depend on how their bytes arrive"
    assert statuses(other_answer) == statuses(answer)
    assert b" 500 " not in answer
    if b"content-encoding" not in stream.lower():
        for ours, theirs in zip(whole, read_by_h11(stream), strict=False):
            assert ours == theirs, "two servers read different requests"


# --- bodies ------------------------------------------------------------------------------------------------


class _CountingMember:
    def __init__(self, work: list[int], member: Any) -> None:
        self._work = work
        self._member = member

    def decompress(self, data: bytes, max_length: int) -> bytes:
        self._work[0] += 1
        self._work[1] += len(data)
        return cast(bytes, self._member.decompress(data, max_length))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._member, name)


def _decoded(encoding: str, data: bytes, piece_bytes: int) -> bytes | str:
    """The content, or the code of the refusal; the work is bounded by the input."""
    decoder = decoder_of(encoding, 1 << 20)
    assert isinstance(decoder, BodyDecoder)
    make, work, members = decoder._make, [0, 0], [0]

    def counting() -> Any:
        members[0] += 1
        return _CountingMember(work, make())

    decoder._make = counting
    content = b""
    try:
        for start in range(0, len(data), piece_bytes):
            content += decoder.feed(data[start : start + piece_bytes])
        decoder.finish()
    except Problem as problem:
        return problem.code
    finally:
        pieces = len(data) // piece_bytes + 1
        assert members[0] <= MAX_MEMBERS + 1
        assert work[0] <= members[0] + pieces
        assert work[1] <= len(data) + members[0] * piece_bytes
    return content


def _unzstd(packed: bytes) -> bytes:
    """The content of all frames, by libzstd's code for frames in pieces: whole ones have another."""
    content, frame = b"", ZstdDecompressor()
    for byte in packed:
        if frame.eof:
            frame = ZstdDecompressor()
        content += frame.decompress(bytes([byte]))
    assert frame.eof
    return content


def body_decoders(data: bytes) -> None:
    """A body decodes to the same whatever its pieces are, and to what the libraries make of it."""
    if len(data) < 2:
        return
    encoding, piece_bytes, packed = ("gzip", "zstd")[data[0] & 1], data[1] + 1, data[2:MAX_INPUT]
    whole = _decoded(encoding, packed, max(1, len(packed)))
    assert _decoded(encoding, packed, piece_bytes) == whole
    if isinstance(whole, bytes) and packed:
        if encoding == "zstd":
            assert _unzstd(packed) == whole
        else:
            # Python's reader of gzip also accepts zeros behind the last member; ours is stricter
            assert gzip.decompress(packed) == whole


# --- validation --------------------------------------------------------------------------------------------


@cache
def _validators() -> tuple[JsonLimits, JsonLimits, Validator, Validator]:
    settings = GatewaySettings()
    return (
        JsonLimits(settings, is_lineage=True),
        JsonLimits(settings, is_lineage=False),
        Validator(strict=False),
        Validator(strict=True),
    )


def validator(data: bytes) -> None:
    """Any bytes are refused as no JSON, or have a verdict, which no budget changes."""
    limits, table_limits, usual, strict = _validators()
    data = data[: 4 * MAX_INPUT]
    for each in (limits, table_limits):
        with contextlib.suppress(Problem):
            each.parse_event(data)
    try:
        event = limits.parse_event(data)
    except Problem:
        return
    verdict = usual.check(event)
    nothing_left = Budget()
    nothing_left.left = 0
    assert usual.check(event, nothing_left).ok == verdict.ok
    if strict.check(event).ok:
        assert verdict.ok
    assert verdict.ok == (not verdict.errors)
    assert len(verdict.errors) <= 21
    for violation in (*verdict.errors, *verdict.warnings):
        assert len(violation.path) <= 1000
        assert len(violation.reason) <= 1000
    if verdict.ok:
        again = orjson.loads(orjson.dumps(event))
        assert usual.check(again).ok


# --- files -------------------------------------------------------------------------------------------------


def event_file_lines(data: bytes) -> None:
    """No line of a file is read as an event unless it is one that was written with this checksum."""
    kept: list[Line] = []
    with tempfile.NamedTemporaryFile(dir=_memory(), suffix=".log") as file:
        file.write(data)
        file.flush()
        path = Path(file.name)
        has_checksums(path)
        reader = LineReader(path, is_checked=True)
        kept = list(reader)
        reader.problem(reader.read_all())
        torn = list(LineReader(path, is_checked=True, leaves_torn=True))
    assert torn == kept[: len(torn)]
    assert len(kept) - len(torn) <= 1
    for line in kept:
        if not line.is_damaged:
            assert line.checksum == zlib.crc32(line.event)
            assert b"\n" not in line.event
            written = checked_line(line.event)
            assert written in data or written[:-1] in data
            assert read_line(written) == line
    assert b"\n".join(_raw(line) for line in kept) == data.removesuffix(b"\n") or not kept


def _raw(line: Line) -> bytes:
    return line.event if line.is_damaged else checked_line(line.event)[:-1]


@cache
def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@cache
def _log() -> tuple[Path, list[str], Any]:
    """A log of several partitions as a crash leaves it, and the names of its files."""
    place = tempfile.TemporaryDirectory(dir=_memory())
    log = Log.open(Path(place.name) / "first", small(partition_bytes=64 * 1024))
    reader = log.reader("r")
    fill(log, EVENTS, size=4000, per_commit=4)
    reader.finish([1, 2, 5])
    copy = copy_of(log.folder, Path(place.name) / "log")
    log.close()
    partitions = [path.name for path in partition_paths(copy)]
    names = [*partitions, f"{partitions[-1]}-wal", "index.db", "index.db-wal", "tail", "clock"]
    return copy, names, place


def partition_reader(data: bytes) -> None:
    """Whatever happens to a file of the log, its events are as they were, or missing and counted."""
    if len(data) < 7:
        return
    log, names, _ = _log()
    bodies = {position: body(position, 4000) for position in range(1, EVENTS + 1)}
    with tempfile.TemporaryDirectory(dir=log.parent) as place:
        copy = copy_of(log, Path(place) / "log")
        path = copy / names[data[0] % len(names)]
        path.write_bytes(damaged(path.read_bytes(), data[1:61]))
        offline.stat(copy)
        problems = offline.verify(copy)
        exported = {event.position: event.body for event in offline.export(copy)}
        assert exported.items() <= bodies.items()
        assert problems or exported == bodies, "events are missing, and nothing is said"
        opened = Log.open(copy, small(partition_bytes=64 * 1024))
        try:
            reader = opened.reader("r")
            found = read_all(reader)
            assert {event.position: event.body for event in found}.items() <= bodies.items()
            adds_up(opened)
            reader.finish([event.position for event in found])
            assert reader.lag_events() == 0
            assert opened.append_wait([b"new"]) > EVENTS
        finally:
            opened.close()


# --- what a fuzzer begins with -----------------------------------------------------------------------------


def _http_seeds() -> Iterator[bytes]:
    event, packed = b'{"a":1}', gzip.compress(b'{"a":1}')
    post, length = b"POST / HTTP/1.1\r\nHost: a\r\n", b"Content-Length: 7\r\n"
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    close = b"HEAD /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    for stream in (
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        post + length + b"\r\n" + event,
        post + b"Transfer-Encoding: chunked\r\n\r\n7\r\n" + event + b"\r\n0\r\nX: y\r\n\r\n",
        b"POST / HTTP/1.0\r\nConnection: keep-alive\r\n" + length + b"\r\n" + event + close,
        post + b"Expect: 100-continue\r\n" + length + b"\r\n" + event,
        post + upgrade + length + b"\r\n" + event,
        b"GET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n" + close,
        post + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed,
    ):
        yield b"\x20\x60\xa0\xe0" + stream


def _body_seeds() -> Iterator[bytes]:
    for content in (b"", b'{"a":1}', b"x" * 300):
        frame = ZstdCompressor().compress(content, ZstdCompressor.FLUSH_FRAME)
        for encoding, data in ((0, gzip.compress(content)), (1, frame)):
            yield bytes([encoding, 6]) + data
            yield bytes([encoding, 3]) + data + data
    yield bytes([1, 6]) + b"\x28\xb5\x2f\xfd\x20\x0b\x01\x00\x00"  # 11 bytes are declared, none come


def _event_seeds() -> Iterator[bytes]:
    from tests.gateway.openlineage_corpus import events

    for event in events().values():
        yield orjson.dumps(event)


def _line_seeds() -> Iterator[bytes]:
    lines = [checked_line(event) for event in (b"", b'{"a":1}', b"\ttab", b'{"b":"\xff"}', bytes(20))]
    yield b"".join(lines)
    yield b"".join(lines)[:-1]
    yield lines[1] + b'{"no":"checksum"}\n' + lines[2]


def _partition_seeds() -> Iterator[bytes]:
    for kind in range(8):
        yield bytes([kind, kind, 1, 0, 2, 0, 4])


TARGETS: dict[str, tuple[Target, Callable[[], Iterator[bytes]]]] = {
    "http_connection": (http_connection, _http_seeds),
    "body_decoders": (body_decoders, _body_seeds),
    "validator": (validator, _event_seeds),
    "event_file_lines": (event_file_lines, _line_seeds),
    "partition_reader": (partition_reader, _partition_seeds),
}


def quietly() -> None:
    """Hostile input is logged at length, which is not what is tested here."""
    logging.getLogger("headwater").setLevel(logging.CRITICAL)

"""Imports events from files of JSON lines or from folders of a log."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from headwater.errors import HeadwaterError
from headwater.graph.ingest.follower import BATCH_BYTES
from headwater.graph.store.database import GraphDatabase, IngestResult
from headwater.log.queue import offline

MAX_LINE_BYTES = 32 * 1024 * 1024
MAX_ARRAY_BYTES = 256 * 1024 * 1024
PEEK_BYTES = 4096


def import_events(
    database: GraphDatabase,
    bodies: Iterator[bytes],
    *,
    batch_events: int = 1_000,
    on_progress: Callable[[int], None] | None = None,
) -> IngestResult:
    """Ingest events in batches; `on_progress` is called with the number of bytes read so far."""
    total, read = IngestResult(0, 0), 0
    for batch in _batches(bodies, batch_events):
        total = total.plus(database.ingest(batch))
        read += sum(map(len, batch))
        if on_progress is not None:
            on_progress(read)
    return total


def _batches(bodies: Iterator[bytes], max_events: int) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for body in bodies:
        batch.append(body)
        size += len(body)
        if len(batch) >= max_events or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def read_events(path: Path) -> Iterator[bytes]:
    """The events of a file of JSON lines or a JSON array, also compressed (`.gz`), or of a folder of a log.

    Lines of `headwater log export --json`, which have position and time around the event, are unwrapped. A
    line of more than `MAX_LINE_BYTES` is cut, and then counts as invalid.
    """
    if path.is_dir():
        for event in offline.export(path):
            yield event.body
        return
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        start = file.read(PEEK_BYTES).lstrip()
        file.seek(0)
        if start.startswith(b"["):
            yield from _array(file.read(MAX_ARRAY_BYTES + 1), path)
            return
        while line := file.readline(MAX_LINE_BYTES):
            is_whole = line.endswith(b"\n")
            if line.strip():
                yield _unwrapped(line)
            while not is_whole and (line := file.readline(MAX_LINE_BYTES)):
                is_whole = line.endswith(b"\n")


def _array(content: bytes, path: Path) -> Iterator[bytes]:
    if len(content) > MAX_ARRAY_BYTES:
        raise HeadwaterError(
            f"{path} is a JSON array of more than {MAX_ARRAY_BYTES >> 20} MiB.",
            hint=f"Convert it to lines: `jq -c '.[]' {path} > events.ndjson`.",
        )
    try:
        for event in msgspec.json.decode(content, type=list[msgspec.Raw]):
            yield bytes(event)
    except msgspec.DecodeError as error:
        raise HeadwaterError(
            f"{path} is neither a JSON array nor JSON lines: {error}.", hint="Write one event per line."
        ) from None


def _unwrapped(line: bytes) -> bytes:
    if line.startswith(b'{"position":') and (start := line.find(b'"event":')) > 0:
        return line[start + 8 : line.rindex(b"}")]
    return line

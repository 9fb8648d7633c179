"""Imports events from files of JSON lines or from folders of a log."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

from headwater.graph.ingest.follower import BATCH_BYTES
from headwater.graph.store.database import GraphDatabase, IngestResult
from headwater.log.queue import offline

MAX_LINE_BYTES = 32 * 1024 * 1024


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
    """The events of a file of JSON lines, also compressed (`.gz`), or of a folder of a log.

    Lines of `headwater log export --json`, which have position and time around the event, are unwrapped. A
    line of more than `MAX_LINE_BYTES` is cut, and then counts as invalid.
    """
    if path.is_dir():
        for event in offline.export(path):
            yield event.body
        return
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            is_whole = line.endswith(b"\n")
            if line.strip():
                yield _unwrapped(line)
            while not is_whole and (line := file.readline(MAX_LINE_BYTES)):
                is_whole = line.endswith(b"\n")


def _unwrapped(line: bytes) -> bytes:
    if line.startswith(b'{"position":') and (start := line.find(b'"event":')) > 0:
        return line[start + 8 : line.rindex(b"}")]
    return line

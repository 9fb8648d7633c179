"""Parts of the log's tests that need clearing up."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.parts import FaultyDisk


@pytest.fixture
def disk(request: pytest.FixtureRequest) -> Iterator[FaultyDisk]:
    """A file system that fails on demand."""
    made = FaultyDisk(f"faulty-{request.node.name}")
    yield made
    made.unregister()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory where there is one: these tests wait for thousands of syncs."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as place:
        yield Path(place)

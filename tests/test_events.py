"""Events as they are kept: no more memory than they say."""

from __future__ import annotations

import tracemalloc

import orjson
import pytest

from headwater.events import fitted


@pytest.mark.parametrize("size", [10, 1_000, 30_000])
def test_bytes_take_their_length_when_they_are_fitted(size: int) -> None:
    value = {"text": "x" * size}
    tracemalloc.start()
    try:
        kept = [fitted(orjson.dumps(value)) for _ in range(20)]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept == [orjson.dumps(value)] * 20
    assert held < 20 * (len(kept[0]) + 100)

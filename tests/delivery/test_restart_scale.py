"""Half of the keys fail and the outlet's process dies by kill -9: the short form of `make bench-restart`."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from bench.restart import LIMIT_BYTES, Receiver, run

from tests.delivery.rig import Rig, eventually

pytestmark = pytest.mark.long  # test_read_ahead.py holds the same promises at a small size


def test_only_what_was_under_way_is_sent_again_when_half_of_the_keys_fail_and_the_process_is_killed(
    tmp_path: Path,
) -> None:
    figures = run(tmp_path, events=20_000, keys=200, idle_seconds=1.0)

    assert figures.missing == 0
    assert figures.unordered == 0
    assert figures.repeated_beyond_under_way == 0
    assert figures.peak_rss_bytes < LIMIT_BYTES


def test_healthy_keys_are_delivered_when_many_small_events_of_failing_keys_come_first(rig: Rig) -> None:
    failing, healthy = 60_000, 1_000
    with Receiver(failing + healthy) as receiver:
        # odd keys fail; each may keep some kilobytes in memory, which of such small events is hundreds
        rig.log.append_wait([body(number, number % 100 * 2 + 1) for number in range(failing)])
        rig.log.append_wait([body(failing + number, number % 10 * 2) for number in range(healthy)])
        rig.drain(url=receiver.url, batch="always", group_by=("/key",))

        assert eventually(lambda: receiver.distinct == healthy)
        receiver.failing = False
        assert eventually(lambda: receiver.distinct == failing + healthy)
        assert eventually(rig.settled)
        assert receiver.unordered == receiver.repeated == 0


def body(number: int, key: int) -> bytes:
    return orjson.dumps({"key": key, "number": number})

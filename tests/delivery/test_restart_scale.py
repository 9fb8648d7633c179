"""Half of the keys fail and the outlet's process dies by kill -9: the short form of `make bench-restart`."""

from __future__ import annotations

from pathlib import Path

from bench.restart import LIMIT_BYTES, run


def test_only_what_was_under_way_is_sent_again_when_half_of_the_keys_fail_and_the_process_is_killed(
    tmp_path: Path,
) -> None:
    figures = run(tmp_path, events=20_000, keys=200, idle_seconds=1.0)

    assert figures.missing == 0
    assert figures.unordered == 0
    assert figures.repeated_beyond_under_way == 0
    assert figures.peak_rss_bytes < LIMIT_BYTES

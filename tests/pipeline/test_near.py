"""How much of a queue the driver takes at once."""

from __future__ import annotations

import pytest

from headwater.log.queue.commit_format import Commit
from headwater.pipeline.stream.sources import take

COMMITS = [Commit(1, 0.0, [b"aa", b"bb", b"cc"]), Commit(6, 0.0, [b"dd", b"e" * 100, b"ff"])]


@pytest.mark.parametrize(
    ("most_bytes", "positions", "end"),
    [
        (1000, [1, 2, 3, 6, 7, 8], 10),  # all, and the gap at the end with them
        (5, [1, 2], 3),  # within a commit
        (6, [1, 2, 3], 6),  # between commits: the gap belongs to what was before it
        (8, [1, 2, 3, 6], 7),
        (1, [1], 2),  # one at least
    ],
)
def test_no_more_bytes_are_taken_when_there_is_a_limit(
    most_bytes: int, positions: list[int], end: int
) -> None:
    taken, stopped = take(iter(COMMITS), 10, most_bytes)
    assert [place for commit in taken for place in range(commit.first, commit.end)] == positions
    assert stopped == end


def test_an_event_goes_alone_when_it_is_over_the_limit() -> None:
    taken, end = take([Commit(7, 0.0, COMMITS[1].bodies[1:])], 9, 50)
    assert [len(body) for commit in taken for body in commit.bodies] == [100]
    assert end == 8

"""Kill -9 at each place around a delivery: nothing is missing, and little comes twice (G3, G4)."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from headwater.system.crash_points import CRASH_POINTS
from headwater.testing import OpenLineageServer
from tests.delivery.outlet_worker_process import BATCH
from tests.delivery.rig import Rig, numbers
from tests.parts.forks import Forks

POINTS = [point for point in CRASH_POINTS if point.startswith(("reader.", "cursor.", "rejects."))]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks("tests.delivery.outlet_worker_process") as forks:
        yield forks


@pytest.mark.parametrize("group_by", ["", "/k"], ids=["one-session", "keyed"])
@pytest.mark.parametrize("point", POINTS)
def test_nothing_is_missing_and_little_comes_twice_when_killed(
    tmp_path: Path, backend: OpenLineageServer, forks: Forks, point: str, group_by: str
) -> None:
    backend.refuse = lambda event: "bad" if event["i"] % 20 == 7 else None
    with Rig(tmp_path) as rig:
        rig.log.append_wait([orjson.dumps({"i": i, "k": i % 4}) for i in range(200)])
        rig.log.reader("one")
    kills = 0
    for n in (1, 2, 3):
        code = forks.run(str(tmp_path), backend.url, group_by, crash_point=f"{point}:{n}")
        assert code in (0, -signal.SIGKILL)
        kills += code != 0
    assert kills
    assert forks.run(str(tmp_path), backend.url, group_by) == 0
    with Rig(tmp_path) as rig:
        assert rig.balance() == {"delivered": 190, "rejected": 10, "dropped": 0, "lag": 0}
        assert sorted(numbers([reject.body for reject in rig.rejects.list()])) == list(range(7, 200, 20))
    seen = Counter(numbers(backend.received))
    assert set(seen) == {i for i in range(200) if i % 20 != 7}
    # at each kill at most one batch of each session: four keys, or the one session
    assert sum(seen.values()) - len(seen) <= kills * BATCH * (4 if group_by else 1)
    for key in range(4):
        mine = [i for i in dict.fromkeys(numbers(backend.received)) if i % 4 == key]
        assert mine == sorted(mine)

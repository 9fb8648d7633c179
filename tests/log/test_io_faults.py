"""A fault at every call that changes a file: after a restart every acknowledged event is there once (G1, G3).

A sample of the calls is tried, and all of them in the long tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log import io_fault_scenarios
from tests.support import io_faults

SCENARIOS = (
    "EventFiles",
    "LoadedFiles",
    "DestinationFiles",
    "StoredRejects",
    "QueueWithLimits",
    "StreamArchived",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = io_faults.compile_library(tmp_path_factory.mktemp("library"))
    if found is None:
        pytest.skip("no C compiler")
    return found


@pytest.mark.timeout(900)  # hundreds of processes, each with its fault
@pytest.mark.parametrize(
    "stride", [pytest.param(61, id="sample"), pytest.param(1, id="every", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_acknowledged_event_is_there_once_when_a_call_of_the_disk_failed(
    library: Path, scenario: str, stride: int
) -> None:
    found = io_faults.run(library, io_fault_scenarios.__name__, scenario, stride)
    assert found["problems"] == [], "\n\n".join(found["problems"][:5])
    assert found["calls"] > 20
    assert found["faults"] >= len(io_faults.FAULTS)

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing import OpenLineageServer
from tests.delivery.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


@pytest.fixture
def backend() -> Iterator[OpenLineageServer]:
    with OpenLineageServer() as backend:
        yield backend

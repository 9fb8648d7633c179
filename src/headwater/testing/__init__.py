"""Conformance suites for extensions, and small servers to test against. Start reading at `destinations`.

The suites are `headwater.testing.outlets` and `headwater.testing.destinations`; they need pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.testing.dataset_server import DataSetServer
    from headwater.testing.http_server import Answer, Request, ScriptedServer
    from headwater.testing.openlineage_server import OpenLineageServer
    from headwater.testing.processes import HeadwaterProcess, OpenLineageProcess

__all__ = [
    "Answer",
    "DataSetServer",
    "HeadwaterProcess",
    "OpenLineageProcess",
    "OpenLineageServer",
    "Request",
    "ScriptedServer",
]

_HOMES = {
    "Answer": "http_server",
    "DataSetServer": "dataset_server",
    "HeadwaterProcess": "processes",
    "OpenLineageProcess": "processes",
    "OpenLineageServer": "openlineage_server",
    "Request": "http_server",
    "ScriptedServer": "http_server",
}


def __getattr__(name: str) -> Any:
    # on demand, so that `python -m headwater.testing.openlineage_server` is not imported before it runs
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Lineage of any PySpark job: its inputs and outputs, column by column, as OpenLineage events.

    import headwater.lineage
    headwater.lineage.install(spark)

Needs pyspark and openlineage-python, and no other package of Headwater. Lineage never fails or slows the job
(G10): its errors are in the event or in the log, and are never raised. Start reading at session.py.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.lineage.process.install import LineageUnavailable, flush, install, uninstall

__all__ = ["LineageUnavailable", "flush", "install", "uninstall"]

_HOMES = dict.fromkeys(__all__, "process.install")


def __getattr__(name: str) -> Any:
    # On demand: the hook of HEADWATER_LINEAGE imports this package in every Python process.
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Lineage of any PySpark job: what it read, what it wrote, column by column, as OpenLineage events.

    import headwater.lineage
    headwater.lineage.install(spark)

Needs pyspark and openlineage-python, and nothing else of Headwater: people use it alone. Lineage never fails
or slows the job (G10): whatever goes wrong in here is told in the event or in the log, never raised.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.lineage.process.install import LineageUnavailable, flush, install, uninstall

__all__ = ["LineageUnavailable", "flush", "install", "uninstall"]

_HOMES = dict.fromkeys(__all__, "process.install")


def __getattr__(name: str) -> Any:
    # On demand: the environment variable's hook imports this package in every Python, also where no Spark is.
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

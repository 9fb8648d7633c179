"""What user code registers while a job runs: facets for the next event, and handlers of nodes.

from headwater.lineage.extend.facet_registry import FacetRegistry, lineage_node

FacetRegistry.register_run_facet("quality", {"passed": True})

@lineage_node("com.acme.spark.ReadLedger")
class ReadLedger: ...
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from headwater.lineage.extend.builders import Facet

if TYPE_CHECKING:
    from headwater.lineage.extend.context import OpenLineageContext
    from headwater.lineage.extend.lineage_nodes import PlanNode

__all__ = ["FacetRegistry", "handler_of", "lineage_node", "register_node", "unregister_node"]

MOST_WAITING = 1000  # of each kind; whoever registers in a loop without events must not fill the memory (G8)

Handler = Callable[["PlanNode"], object]
H = TypeVar("H", bound=Handler)
_Waiting = tuple[int, str, Facet]


class FacetRegistry:
    """Facets of runs and jobs for the next event that is sent; one registry a process.

    A facet belongs to the first such event whose time is not before the call: events of earlier queries that
    still wait to be built do not get it, nor does an event that is made and then not sent. Whether another
    event comes at all, nobody can promise.
    """

    context: OpenLineageContext | None = None
    """What lineage works with, once it is installed."""

    _lock = Lock()
    _run: ClassVar[list[_Waiting]] = []
    _job: ClassVar[list[_Waiting]] = []

    @classmethod
    def register_run_facet(cls, name: str, facet: Facet) -> None:
        """A facet of the run: a class of openlineage-python, or a mapping."""
        cls._add(cls._run, name, facet)

    @classmethod
    def register_job_facet(cls, name: str, facet: Facet) -> None:
        """A facet of the job."""
        cls._add(cls._job, name, facet)

    @classmethod
    def take(cls, moment: int) -> tuple[dict[str, Facet], dict[str, Facet]]:
        """Facets for the run and for the job of an event of this time (milliseconds); they are then gone."""
        if not cls._run and not cls._job:  # nearly always
            return {}, {}
        with cls._lock:
            return cls._due(cls._run, moment), cls._due(cls._job, moment)

    @classmethod
    def _add(cls, waiting: list[_Waiting], name: str, facet: Facet) -> None:
        with cls._lock:
            waiting.append((int(time.time() * 1000), name, facet))
            del waiting[:-MOST_WAITING]

    @staticmethod
    def _due(waiting: list[_Waiting], moment: int) -> dict[str, Facet]:
        if not waiting:
            return {}
        due = {name: facet for at, name, facet in waiting if at <= moment}
        waiting[:] = [one for one in waiting if one[0] > moment]
        return due


_handlers: dict[str, Handler] = {}


def register_node(cls: str, handler: Handler) -> None:
    """Let `handler(PlanNode)` make what speaks for nodes of a JVM class, named whole or without its package.

    What it makes implements any of the protocols in nodes.py. A later handler of the same class replaces it.
    """
    _handlers[cls] = handler


def unregister_node(cls: str) -> None:
    """Forget the handler of a class, if there is one."""
    _handlers.pop(cls, None)


def lineage_node(cls: str) -> Callable[[H], H]:
    """`register_node` as a decorator."""

    def register(handler: H) -> H:
        register_node(cls, handler)
        return handler

    return register


def handler_of(cls: str) -> Handler | None:
    """The handler of a JVM class."""
    if not _handlers:
        return None
    found: Any = _handlers.get(cls)
    return found if found is not None else _handlers.get(cls.rpartition(".")[2])

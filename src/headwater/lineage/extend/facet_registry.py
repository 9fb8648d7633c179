"""Facets that user code registers while a job runs.

FacetRegistry.register_run_facet("quality", {"passed": True})
"""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, ClassVar

from headwater.lineage.extend.builders import Facet

if TYPE_CHECKING:
    from headwater.lineage.extend.builders import OpenLineageContext

__all__ = ["FacetRegistry"]

MAX_WAITING = 1000  # facets of each kind: registering in a loop without events must not fill the memory (G8)

_Waiting = tuple[int, str, Facet]


class FacetRegistry:
    """Run and job facets for the next event that is sent; one registry per process.

    A facet is attached to the first event that is sent and whose time is not before the call: events of
    earlier queries that are not built yet do not get it. If no further event is sent, it is discarded.
    """

    context: OpenLineageContext | None = None
    """The context of the installed lineage."""

    _lock = Lock()
    _run: ClassVar[list[_Waiting]] = []
    _job: ClassVar[list[_Waiting]] = []

    @classmethod
    def register_run_facet(cls, name: str, facet: Facet) -> None:
        """Register a facet of the run: a class of openlineage-python, or a mapping."""
        cls._add(cls._run, name, facet)

    @classmethod
    def register_job_facet(cls, name: str, facet: Facet) -> None:
        """Register a facet of the job."""
        cls._add(cls._job, name, facet)

    @classmethod
    def take(cls, time_millis: int) -> tuple[dict[str, Facet], dict[str, Facet]]:
        """Remove and return the run facets and job facets for an event of this time."""
        if not cls._run and not cls._job:  # nearly always
            return {}, {}
        with cls._lock:
            return cls._due(cls._run, time_millis), cls._due(cls._job, time_millis)

    @classmethod
    def clear(cls) -> None:
        """Discard everything: the application has ended."""
        with cls._lock:
            cls.context = None
            cls._run.clear()
            cls._job.clear()

    @classmethod
    def _add(cls, waiting: list[_Waiting], name: str, facet: Facet) -> None:
        with cls._lock:
            waiting.append((int(time.time() * 1000), name, facet))
            del waiting[:-MAX_WAITING]

    @staticmethod
    def _due(waiting: list[_Waiting], time_millis: int) -> dict[str, Facet]:
        if not waiting:
            return {}
        due = {name: facet for at, name, facet in waiting if at <= time_millis}
        waiting[:] = [one for one in waiting if one[0] > time_millis]
        return due

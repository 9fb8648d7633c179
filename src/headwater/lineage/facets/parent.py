"""`parent`: the run above, and the one at the top."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.lineage.facets.make import standard
from headwater.lineage.runs import Run
from headwater.lineage.settings import LineageSettings, ParentRun

__all__ = ["parent_facet"]


def parent_facet(run: Run, settings: LineageSettings, name_of: Callable[[Run], str]) -> dict[str, Any] | None:
    """The facet; None for an application that nobody is known to have started."""
    above = run.parent
    if above is None:
        parent = settings.parent
    else:
        parent = ParentRun(settings.namespace, name_of(above), str(above.id))
    if parent is None:
        return None
    root = settings.root_parent
    if root is None and above is not None:
        root = ParentRun(settings.namespace, name_of(run.root), str(run.root.id))
    return standard("parent_run.ParentRunFacet", **_pair(parent), root=_pair(root or parent))


def _pair(run: ParentRun) -> dict[str, Any]:
    return {"run": {"runId": run.run_id}, "job": {"namespace": run.namespace, "name": run.name}}

"""The views of all rejects and of one."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.log.rejects.rejects import ListedReject, Rejects
from headwater.page.views.system import SystemStatus
from headwater.page.views.view import Parameters, View

PAGE_SIZE = 50


def rejects_view(status: SystemStatus, rejects: Rejects, parameters: Parameters) -> View:
    """The rejects of all stages, of one, or of one reason, oldest first, and the reasons of all."""
    stage, reason = parameters.get("stage", "") or None, parameters.get("reason", "")
    counts = rejects.counts()
    after = parameters.get("after", "")[:200]
    page: Sequence[ListedReject] = []
    if stage is not None and reason:
        page = rejects.list_group(stage, reason, limit=PAGE_SIZE, after=after) if stage in counts else []
    elif stage is None or stage in counts:
        page = rejects.list(stage, limit=PAGE_SIZE, after=after)
    groups = status.cached("groups", rejects.groups)
    next_after = page[-1].id if len(page) == PAGE_SIZE else None
    values = {
        "rejects": page,
        "counts": counts,
        "stage": stage,
        "reason": reason,
        "groups": [group for group in groups if stage in (None, group.stage)],
        "next_after": next_after,
    }
    return View("rejects.html", "Rejects", "rejects", values)


def reject_view(rejects: Rejects, parameters: Parameters) -> View:
    """One reject with its reason and its event."""
    reject = rejects.get(parameters.get("id"))
    return View("reject.html", f"Reject {reject.id}", "rejects", {"reject": reject})

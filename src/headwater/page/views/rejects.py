"""The views of all rejects and of one."""

from __future__ import annotations

from headwater.log.rejects.rejects import Rejects
from headwater.page.views.view import Parameters, View

PAGE_SIZE = 50


def rejects_view(rejects: Rejects, parameters: Parameters) -> View:
    """The rejects of all stages, or of one, oldest first."""
    stage = parameters.get("stage", "") or None
    counts = rejects.counts()
    after = parameters.get("after", "")[:200]
    page = rejects.list(stage, limit=PAGE_SIZE, after=after) if stage is None or stage in counts else []
    next_after = page[-1].id if len(page) == PAGE_SIZE else None
    values = {"rejects": page, "counts": counts, "stage": stage, "next_after": next_after}
    return View("rejects.html", "Rejects", "rejects", values)


def reject_view(rejects: Rejects, parameters: Parameters) -> View:
    """One reject with its reason and its event."""
    reject = rejects.get(parameters.get("id"))
    return View("reject.html", f"Reject {reject.id}", "rejects", {"reject": reject})

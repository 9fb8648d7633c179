"""The views of all rejects and of one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from headwater.graph.query.budget import Budget
from headwater.graph.query.query import GraphQuery
from headwater.log.rejects.groups import RejectGroup
from headwater.log.rejects.rejects import ListedReject, Rejects
from headwater.page.views.system import SystemStatus
from headwater.page.views.view import Parameters, View

PAGE_SIZE = 50
MAX_READ = 200_000  # rejects of one list: two threads answer all questions of the page
READ_SECONDS = 3.0
READ_BETWEEN_CHECKS = 200


class Reading:
    """Ends the reading of rejects after a number and a time, or when the client has left (G8)."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._until = time.monotonic() + READ_SECONDS
        self.rejects = 0
        self.is_cut = False

    def __call__(self) -> bool:
        """Whether the next reject may be read; ClientGone if the client has left."""
        if self.rejects % READ_BETWEEN_CHECKS == 0:
            self._budget.check()
            self.is_cut = self.is_cut or time.monotonic() > self._until
        if self.rejects >= MAX_READ:
            self.is_cut = True
        self.rejects += not self.is_cut
        return not self.is_cut


class Groups(NamedTuple):
    """The reasons of the first rejects; `read` says of how many, if there are more."""

    groups: Sequence[RejectGroup]
    read: int | None = None


def reject_groups(status: SystemStatus, rejects: Rejects, query: GraphQuery) -> Groups:
    """The rejects by stage and reason, some seconds old where they are many."""

    def read() -> Groups:
        with query.bounded() as budget:
            reading = Reading(budget)
            groups = rejects.groups(goes_on=reading)
            return Groups(groups, reading.rejects if reading.is_cut else None)

    return status.cached("groups", read)


def rejects_view(status: SystemStatus, rejects: Rejects, query: GraphQuery, parameters: Parameters) -> View:
    """The rejects of all stages, of one, or of one reason, oldest first, and the reasons of all."""
    stage, reason = parameters.get("stage", "") or None, parameters.get("reason", "")
    counts = rejects.counts()
    after = parameters.get("after", "")[:200]
    page: Sequence[ListedReject] = []
    with query.bounded() as budget:
        reading = Reading(budget)
        if stage is not None and reason:
            if stage in counts:
                page = rejects.list_group(stage, reason, limit=PAGE_SIZE, after=after, goes_on=reading)
        elif stage is None or stage in counts:
            page = rejects.list(stage, limit=PAGE_SIZE, after=after, goes_on=reading)
    found = reject_groups(status, rejects, query)
    next_after = page[-1].id if len(page) == PAGE_SIZE else None
    values = {
        "rejects": page,
        "counts": counts,
        "stage": stage,
        "reason": reason,
        "groups": [group for group in found.groups if stage in (None, group.stage)],
        "grouped": found.read,
        "searched": reading.rejects if reading.is_cut else None,
        "next_after": next_after,
    }
    return View("rejects.html", "Rejects", "rejects", values)


def reject_view(rejects: Rejects, query: GraphQuery, parameters: Parameters) -> View:
    """One reject with its reason and its event."""
    with query.bounded() as budget:
        reject = rejects.get(parameters.get("id"), goes_on=Reading(budget))
    return View("reject.html", f"Reject {reject.id}", "rejects", {"reject": reject})

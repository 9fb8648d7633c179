"""Runs and jobs: the words that the tables use for what events say of them."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["NO_JOB", "Direction", "Report", "RunFacts", "State"]

NO_JOB = 0  # in place of a job: a DatasetEvent has none


class State(IntEnum):
    """What the events of a run say of it; the order decides between events of the same moment."""

    OTHER = 0
    START = 1
    RUNNING = 2
    COMPLETE = 3
    ABORT = 4
    FAIL = 5

    @property
    def level(self) -> int:
        """0 nothing known, 1 under way, 2 ended: an end stays the end, whatever comes with a later time."""
        return 0 if self is State.OTHER else 1 if self <= State.RUNNING else 2


class Direction(IntEnum):
    """How a job uses a dataset."""

    INPUT = 1
    OUTPUT = 2


class Report(IntEnum):
    """What a job told all of: see the table `reports`."""

    COLUMNS = 1  # the columns of a dataset, by `columnLineage`
    LINEAGE = 2  # what a dataset is made of, by `lineage`
    INPUTS = 3  # what it reads
    OUTPUTS = 4  # what it writes


class RunFacts:
    """What a batch says of one run."""

    __slots__ = ("first_at", "job", "last_at", "parent", "started_at", "state")

    def __init__(self, at: int) -> None:
        self.first_at = self.last_at = at
        self.started_at: int | None = None
        self.state = (-1, 0, 0)  # level, time, state
        self.job = (-(2**63), 0)  # time, job
        self.parent: tuple[int, str, int, str, int] = (-(2**63), "", 0, "", 0)  # time, parent, job, root, job

"""What went wrong: with a run, or with finding out about it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ExtractionError", "Failure"]


class Failure(NamedTuple):
    """Why a run failed, as Spark or Python say it."""

    text: str
    cls: str | None = None
    stack: str | None = None


class ExtractionError(NamedTuple):
    """Something about a run that could not be found out: which part of the work, and why."""

    task: str
    text: str
    stack: str | None = None

"""A timeline of runs: parents above their children, each run as a bar from its start to its end."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import NamedTuple

from headwater.graph.query.answers import RunSummary

TICKS = 4


class TimelineRun(NamedTuple):
    """A run; `left` and `width` are percents of all time, `label` is its job without the parent's name."""

    run: RunSummary
    label: str
    depth: int
    left: float
    width: float
    is_open: bool


class Timeline(NamedTuple):
    """The runs of a tree, and the seconds of the marks of its scale; `is_cut`: there are more."""

    runs: list[TimelineRun]
    ticks: list[float]
    began: str | None
    is_cut: bool


def timeline(runs: list[RunSummary], *, is_cut: bool) -> Timeline | None:
    """The timeline of the runs of one tree; None without times."""
    times = {
        run.id: (_seconds(run.started_at or run.first_at), _seconds(run.ended_at or run.last_at))
        for run in runs
    }
    known = [moment for pair in times.values() for moment in pair if moment is not None]
    if not known:
        return None
    first, last = min(known), max(known)
    whole = max(last - first, 0.001)
    children: dict[str, list[RunSummary]] = defaultdict(list)
    ids = set(times)
    for run in runs:
        children[run.parent if run.parent in ids and run.parent != run.id else ""].append(run)
    found: list[TimelineRun] = []
    # in a cycle of parents, the earliest is the first
    waiting = [(run, 0, "") for run in reversed([*children[""], *runs])]
    placed: set[str] = set()
    while waiting:
        run, depth, parent = waiting.pop()
        if run.id in placed:
            continue
        placed.add(run.id)
        began, ended = times[run.id]
        left = 100 * ((began if began is not None else first) - first) / whole
        right = 100 * ((ended if ended is not None else last) - first) / whole
        label = run.job.name.removeprefix(f"{parent}.") if parent else run.job.name
        width = round(max(0.4, right - left), 2)
        found.append(TimelineRun(run, label, depth, round(left, 2), width, not run.ended_at))
        waiting += [(child, depth + 1, run.job.name) for child in reversed(children[run.id])]
    began_at = min((run.started_at or run.first_at or "" for run in runs), default="")
    return Timeline(found, [whole * tick / TICKS for tick in range(TICKS + 1)], began_at, is_cut)


def _seconds(moment: str | None) -> float | None:
    return datetime.fromisoformat(moment).timestamp() if moment else None

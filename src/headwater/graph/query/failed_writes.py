"""Writes of datasets that only failed runs made: what such a run announced may not have happened."""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from headwater.graph.store.database import rows_for
from headwater.graph.store.schema import Direction, State
from headwater.log.queue.sqlite import select

_FAILED = f"r.level = 2 AND r.state > {State.COMPLETE:d}"
# A cheap look first: where the last run that ended did well, an edge of failed runs is not current anyway.
_FAILING_JOBS = (
    f"SELECT value FROM json_each(?1) AS j WHERE (SELECT {_FAILED} FROM runs r WHERE r.job = j.value"  # noqa: S608
    " AND r.level = 2 ORDER BY r.last_at DESC, r.uuid DESC LIMIT 1)"
)
# A run that did not fail, or a write from before the oldest run that retention has left.
_OTHER_WRITES = (
    "SELECT 1 FROM dataset_names n JOIN run_datasets i ON i.name = n.id"  # noqa: S608
    f" AND i.direction = {Direction.OUTPUT:d} JOIN runs r ON r.id = i.run AND r.job = ?2"
    f" WHERE n.dataset = ?1 AND NOT ({_FAILED}) UNION ALL"
    " SELECT 1 FROM dataset_names n JOIN job_datasets o ON o.name = n.id AND o.job = ?2"
    f" AND o.direction = {Direction.OUTPUT:d} WHERE n.dataset = ?1 AND o.first_at <"
    " (SELECT first_at FROM runs WHERE job = ?2 ORDER BY last_at LIMIT 1) LIMIT 1"
)


def failed_writes(connection: apsw.Connection, writes: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Those pairs of a dataset and a job of which all runs of the job that wrote the dataset failed."""
    pairs = set(writes)
    failing = {job for (job,) in rows_for(connection, _FAILING_JOBS, {job for _, job in pairs})}
    return {
        (dataset, job)
        for dataset, job in pairs
        if job in failing and not select(connection, _OTHER_WRITES, dataset, job)
    }

"""The objects of a run that builders are offered, as views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.lineage.extend.spark_objects import RDD, ActiveJob, QueryExecution, Stage, StageInfo, rdd_views
from headwater.lineage.runs import Execution, ExtractionError, Job, Run

__all__ = ["objects_of", "rdds_of"]


def objects_of(run: Run, agent: Any, errors: list[ExtractionError]) -> list[object]:
    """The run, then its queries outermost first, its jobs with their stages and RDDs, its ended stages."""
    found: list[object] = [run]
    found += [_query(execution, agent, errors) for execution in run.executions]
    for job in run.jobs:
        active = _job(job, agent)
        found += [active, *active.stages, *active.rdds]
    found += [
        StageInfo(each.id, each.attempt, each.name, each.tasks, each.metrics, each.error)
        for each in run.stages
    ]
    return found


def rdds_of(objects: Sequence[object]) -> list[RDD]:
    """The RDDs among them."""
    return [each for each in objects if isinstance(each, RDD)]


def _query(execution: Execution, agent: Any, errors: list[ExtractionError]) -> QueryExecution:
    plan = None
    try:
        plan = execution.plan
    except Exception as error:
        errors.append(ExtractionError("plan", f"the plan cannot be read: {error}"))
    # a query that Spark itself refuses is its own failure, not one of ours
    if plan is None and execution.plan_error and not execution.plan_error.startswith("["):
        errors.append(ExtractionError("plan", execution.plan_error))
    if plan is not None and plan.cut:
        errors.append(ExtractionError("plan", plan.cut))
    start, end = execution.start, execution.end
    number = execution.id
    return QueryExecution(
        number,
        plan,
        description=start.description if start is not None else "",
        sql=execution.sql,
        physical=start.physical if start is not None else "",
        database=start.database if start is not None else "",
        executed=end.executed if end is not None else (),
        error=end.error if end is not None else None,
        fetch=(lambda: agent.query(number)) if agent is not None else None,
    )


def _job(job: Job, agent: Any) -> ActiveJob:
    start, number = job.start, job.id
    rdds = rdd_views(
        start.rdds or (),
        is_of_query=start.execution is not None,
        fetch=(lambda rdd: agent.rdd(number, rdd)) if agent is not None else None,
    )
    by_id = {rdd.id: rdd for rdd in rdds}
    stages = [
        Stage(each.id, each.name, each.tasks, [by_id[rdd] for rdd in each.rdds if rdd in by_id])
        for each in start.stages
    ]
    return ActiveJob(
        number,
        stages,
        rdds,
        start.outputs,
        start.properties,
        start.execution,
        fetch=(lambda: agent.job(number)) if agent is not None else None,
    )

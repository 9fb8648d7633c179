"""Events in the form of openlineage-spark's, for those who have its events in their backend already."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import orjson

from headwater.lineage.extend.builders import InputDatasetBuilder
from headwater.lineage.extend.spark_objects import QueryExecution
from headwater.lineage.facets.make import custom
from headwater.lineage.jvm.agent import Agent
from headwater.lineage.jvm.plan import Attribute, Node, read_plan

logger = logging.getLogger(__name__)

Event = dict[str, Any]
MOST_NODES = 300  # of a plan in `spark.logicalPlan`: Spark's own JSON of larger plans takes seconds


def like_upstream(
    event: Event,
    objects: Iterable[object],
    inputs: Sequence[InputDatasetBuilder],
    disabled: Collection[str],
    agent: Agent | None,
) -> None:
    """Change an event's facets to those of openlineage-spark."""
    for each in (*event["inputs"], *event["outputs"]):
        source = each["facets"].get("dataSource")
        if source is not None:
            # `file` is no URI, but what backends have from that agent; the name is that after resolvers
            each["facets"]["dataSource"] = {**source, "name": each["namespace"], "uri": each["namespace"]}
    queries = [one for one in objects if isinstance(one, QueryExecution) and one.plan is not None]
    facets = event["run"]["facets"]
    try:
        if queries and agent is not None and "spark_unknown" not in disabled:
            unknown = list(_unknown_inputs(queries[0], inputs, agent))
            if unknown:
                facets["spark_unknown"] = custom("run", inputs=unknown)
        if queries and "spark.logicalPlan" not in disabled:
            plan = _logical_plan(queries[0])
            if plan is not None:
                facets["spark.logicalPlan"] = plan
    except Exception as error:  # Spark cannot write every plan as JSON, and may have released this one
        logger.debug("The plan's facets were not made: %s", error)


def _unknown_inputs(
    query: QueryExecution, inputs: Sequence[InputDatasetBuilder], agent: Agent
) -> Iterator[dict[str, Any]]:
    """The leaves of the optimized plan that are no dataset."""
    known = {number for each in inputs for number in each.expr_ids}
    java = query.jvm
    for node in read_plan(agent.write_plan(java.optimizedPlan())).nodes if java is not None else ():
        if node.out and not node.kids and not node.inner and not known & {column.id for column in node.out}:
            yield {
                "description": {"class": node.cls},
                "inputAttributes": [],
                "outputAttributes": [_attribute(column) for column in node.out],
            }


def _attribute(column: Attribute) -> dict[str, Any]:
    kind = column.type if isinstance(column.type, str) else (column.type or {}).get("type")
    return {"name": column.name, "type": kind, "metadata": {}}


def _logical_plan(query: QueryExecution) -> dict[str, Any] | None:
    """`spark.logicalPlan`: Spark's own JSON of the optimized plan; None if it is too large or gone."""
    plan = query.plan
    if plan is None or len(plan.nodes) > MOST_NODES or sum(map(_width, plan.nodes)) > 20 * MOST_NODES:
        return None
    java = query.jvm
    if java is None:
        return None
    return custom("run", plan=orjson.loads(str(java.optimizedPlan().toJSON())))


def _width(node: Node) -> int:
    return len(node.out)

"""Plan documents of queries that need not run: analysis alone, through the same Java as in real life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.lineage.jvm.agent import Agent
from headwater.lineage.jvm.compile import load
from headwater.lineage.jvm.plan import Node, Plan, read_plan
from headwater.lineage.naming.names import DatasetId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Walker", "table_of"]


class Walker:
    """Walks plans of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark: Any = spark
        self._gateway: Any = spark.sparkContext._gateway
        missing = load(spark.sparkContext).missing
        assert not missing, missing
        self._agent = Agent(spark.sparkContext)

    def sql(self, text: str) -> Plan:
        """A statement's analyzed plan; nothing is executed, commands neither."""
        state = self.spark._jsparkSession.sessionState()
        modes = self._gateway.jvm.org.apache.spark.sql.execution.CommandExecutionMode
        parsed = state.sqlParser().parsePlan(text)
        return self.walk(state.executePlan(parsed, modes.SKIP()).analyzed())

    def frame(self, frame: DataFrame) -> Plan:
        """A frame's analyzed plan."""
        java: Any = frame
        return self.walk(java._jdf.queryExecution().analyzed())

    def text(self, plan: Any, budget: int = 1 << 27) -> str:
        """The document of a JVM plan."""
        return self._agent.write_plan(plan, budget)

    def walk(self, plan: Any) -> Plan:
        """A JVM plan's document, read."""
        return read_plan(self.text(plan))


def table_of(node: Node) -> list[DatasetId]:
    """The name of the table that a leaf reads, as its dataset: short, for tests alone."""
    found = _table(node.fields)
    return [DatasetId("test", found)] if found else []


def _table(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    if value.get("@") in ("id", "name"):
        return str(value.get("table") or value.get("name"))
    return next((found for each in value.values() if (found := _table(each))), None)

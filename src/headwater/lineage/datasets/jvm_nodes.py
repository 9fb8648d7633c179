"""Lineage methods of JVM objects: nodes with OpenLineage's interfaces, and Python data sources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.lineage.extend.lineage_nodes import (
    DatasetFieldLineage,
    ExpressionDependency,
    ExpressionDependencyWithDelegate,
    ExpressionDependencyWithIdentifier,
    InputDatasetField,
    InputDatasetFieldFromDelegate,
    InputDatasetWithDelegate,
    InputDatasetWithFacets,
    InputDatasetWithIdentifier,
    OutputDatasetField,
    OutputDatasetWithDelegate,
    OutputDatasetWithFacets,
    OutputDatasetWithIdentifier,
)
from headwater.lineage.jvm.agent import Agent
from headwater.lineage.jvm.plan import Node, Plan
from headwater.lineage.naming.names import DatasetId

if TYPE_CHECKING:
    from headwater.lineage.extend.context import OpenLineageContext


class JvmLineageNode:
    """A node that implements the interfaces, or that holds a relation, table or provider that does.

    Interfaces are recognized by their simple names: their packages are `io.openlineage.spark.builtin…`,
    `…extension.scala.v1`, `…shade.extension.v1`, and those into which extensions have shaded them.
    """

    def __init__(self, agent: Agent, execution: int, plan: Plan, node: Node) -> None:
        self._agent = agent
        self._execution = execution
        self._plan = plan
        self._node = node
        self._has = {
            field: {name.rpartition(".")[2].rpartition("$")[2] for name in names}
            for field, names in node.interfaces.items()
        }

    def get_inputs(self, context: OpenLineageContext) -> Iterable[InputDatasetWithFacets]:
        """The results of `getInputs`, and the datasets of lineage relations."""
        for result in self._results("InputLineageNode", "getInputs"):
            facets, own = _facets(result, "facets"), _facets(result, "inputFacets")
            if (found := _identifier(result)) is not None:
                yield InputDatasetWithIdentifier(*found, facets, own)
            elif (node := self._delegate(result)) is not None:
                yield InputDatasetWithDelegate(node, facets, own)
        for result in self._results("LineageRelation", "getLineageDatasetIdentifier"):
            if not self._node.kids and not self._node.inner and (found := _identifier(result)) is not None:
                yield InputDatasetWithIdentifier(*found)

    def get_outputs(self, context: OpenLineageContext) -> Iterable[OutputDatasetWithFacets]:
        """The results of `getOutputs`, and the datasets of lineage relation providers."""
        for result in self._results("OutputLineageNode", "getOutputs"):
            facets, own = _facets(result, "facets"), _facets(result, "outputFacets")
            if (found := _identifier(result)) is not None:
                yield OutputDatasetWithIdentifier(*found, facets, own)
            elif (node := self._delegate(result)) is not None:
                yield OutputDatasetWithDelegate(node, facets, own)
        for result in self._results("LineageRelationProvider", "getLineageDatasetIdentifier"):
            if (found := _identifier(result)) is not None:
                yield OutputDatasetWithIdentifier(*found)

    def column_level_lineage_inputs(self, context: OpenLineageContext) -> Iterable[DatasetFieldLineage]:
        """The results of `columnLevelLineageInputs`."""
        for result in self._results("ColumnLevelLineageNode", "columnLevelLineageInputs"):
            number = _id(result, "exprId")
            if number is not None:
                yield InputDatasetField(str(_get(result, "field", "name")), number, _identifier(result))
            elif (node := self._delegate(result)) is not None:
                yield InputDatasetFieldFromDelegate(node)

    def column_level_lineage_outputs(self, context: OpenLineageContext) -> Iterable[DatasetFieldLineage]:
        """The results of `columnLevelLineageOutputs`."""
        for result in self._results("ColumnLevelLineageNode", "columnLevelLineageOutputs"):
            number = _id(result, "exprId")
            if number is not None:
                yield OutputDatasetField(str(_get(result, "field", "name")), number)

    def column_level_lineage_dependencies(
        self, context: OpenLineageContext
    ) -> Iterable[ExpressionDependency]:
        """The results of `columnLevelLineageDependencies`."""
        for result in self._results("ColumnLevelLineageNode", "columnLevelLineageDependencies"):
            output = _id(result, "outputExprId")
            if output is None:
                continue
            inside = result.get("expression")
            if isinstance(inside, dict) and inside.get("@") == "expression":
                yield ExpressionDependencyWithDelegate(output, inside["of"])
            else:
                inputs = [_number(one) for one in result.get("inputExprIds") or []]
                yield ExpressionDependencyWithIdentifier(output, [one for one in inputs if one is not None])

    def _results(self, interface: str, method: str) -> Iterable[dict[str, Any]]:
        for field, names in self._has.items():
            if interface not in names:
                continue
            answer = self._agent.call_node(self._execution, self._node.id, field, method)
            for result in answer if isinstance(answer, list) else [answer]:
                if isinstance(result, dict):
                    yield result

    def _delegate(self, result: dict[str, Any]) -> Node | Plan | None:
        found = _get(result, "node", "delegate")
        if not isinstance(found, dict):
            return None
        if found.get("@") == "node":
            return self._plan.nodes[found["id"]]
        return msgspec.convert(found["of"], Plan) if found.get("@") == "plan" else None


def _get(result: dict[str, Any], *names: str) -> Any:
    return next((result[name] for name in names if result.get(name) is not None), None)


def _identifier(result: dict[str, Any]) -> DatasetId | None:
    inside = _get(result, "datasetIdentifier", "identifier")
    if isinstance(inside, dict):
        result = inside
    namespace, name = result.get("namespace"), result.get("name")
    return DatasetId(str(namespace), str(name)) if namespace is not None and name is not None else None


def _id(result: dict[str, Any], key: str) -> int | None:
    return _number(result.get(key))


def _number(found: Any) -> int | None:
    """An expression id: a number, or an object that holds one."""
    if isinstance(found, dict):
        found = _get(found, "exprId", "id", "expr_id")
    return int(found) if isinstance(found, int) else None


def _facets(result: dict[str, Any], kind: str) -> dict[str, Any]:
    """The facets in a result: an object of facets, or the result of a facets builder."""
    names = (
        (f"{kind}Builder", kind) if kind != "facets" else ("facetsBuilder", "datasetFacetsBuilder", "facets")
    )
    found = _get(result, *names)
    if not isinstance(found, dict):
        return {}
    return {name: _plain(facet) for name, facet in _hoisted(found).items() if isinstance(facet, dict)}


def _hoisted(found: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in found.items() if name not in ("@", "additionalProperties")}
    more = found.get("additionalProperties")
    return {**kept, **more} if isinstance(more, dict) else kept


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in _hoisted(value).items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def python_source(agent: Agent, execution: int, node: Node) -> object | None:
    """The Python data source of a relation, as the program created it."""
    pickled = agent.pickled_source(execution, node.id)
    if pickled is None:
        return None
    from pyspark import cloudpickle

    found: object = cloudpickle.loads(pickled)  # pickled by this program; every executor unpickles it as well
    return found

"""Speakers for nodes that live in the JVM: nodes with OpenLineage's interfaces, and Python data sources."""

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

__all__ = ["JvmSpeaker", "python_source"]


class JvmSpeaker:
    """A node that carries interfaces, or that holds a relation, table or provider that does.

    Interfaces are known by their simple names: they have been in `io.openlineage.spark.builtin…`,
    `…extension.scala.v1`, `…shade.extension.v1` and in packages of those who shaded them.
    """

    def __init__(self, jvm: Agent, execution: int, plan: Plan, node: Node) -> None:
        self._jvm = jvm
        self._execution = execution
        self._plan = plan
        self._node = node
        self._has = {
            field: {name.rpartition(".")[2].rpartition("$")[2] for name in names}
            for field, names in node.interfaces.items()
        }

    def get_inputs(self, context: OpenLineageContext) -> Iterable[InputDatasetWithFacets]:
        """What `getInputs` answers, and relations that tell their dataset."""
        for told in self._answers("InputLineageNode", "getInputs"):
            facets, own = _facets(told, "facets"), _facets(told, "inputFacets")
            if (found := _identifier(told)) is not None:
                yield InputDatasetWithIdentifier(*found, facets, own)
            elif (node := self._delegate(told)) is not None:
                yield InputDatasetWithDelegate(node, facets, own)
        for told in self._answers("LineageRelation", "getLineageDatasetIdentifier"):
            if not self._node.kids and not self._node.inner and (found := _identifier(told)) is not None:
                yield InputDatasetWithIdentifier(*found)

    def get_outputs(self, context: OpenLineageContext) -> Iterable[OutputDatasetWithFacets]:
        """What `getOutputs` answers, and providers that tell their dataset."""
        for told in self._answers("OutputLineageNode", "getOutputs"):
            facets, own = _facets(told, "facets"), _facets(told, "outputFacets")
            if (found := _identifier(told)) is not None:
                yield OutputDatasetWithIdentifier(*found, facets, own)
            elif (node := self._delegate(told)) is not None:
                yield OutputDatasetWithDelegate(node, facets, own)
        for told in self._answers("LineageRelationProvider", "getLineageDatasetIdentifier"):
            if (found := _identifier(told)) is not None:
                yield OutputDatasetWithIdentifier(*found)

    def column_level_lineage_inputs(self, context: OpenLineageContext) -> Iterable[DatasetFieldLineage]:
        """What `columnLevelLineageInputs` answers."""
        for told in self._answers("ColumnLevelLineageNode", "columnLevelLineageInputs"):
            number = _id(told, "exprId")
            if number is not None:
                yield InputDatasetField(str(_get(told, "field", "name")), number, _identifier(told))
            elif (node := self._delegate(told)) is not None:
                yield InputDatasetFieldFromDelegate(node)

    def column_level_lineage_outputs(self, context: OpenLineageContext) -> Iterable[DatasetFieldLineage]:
        """What `columnLevelLineageOutputs` answers."""
        for told in self._answers("ColumnLevelLineageNode", "columnLevelLineageOutputs"):
            number = _id(told, "exprId")
            if number is not None:
                yield OutputDatasetField(str(_get(told, "field", "name")), number)

    def column_level_lineage_dependencies(
        self, context: OpenLineageContext
    ) -> Iterable[ExpressionDependency]:
        """What `columnLevelLineageDependencies` answers."""
        for told in self._answers("ColumnLevelLineageNode", "columnLevelLineageDependencies"):
            output = _id(told, "outputExprId")
            if output is None:
                continue
            inside = told.get("expression")
            if isinstance(inside, dict) and inside.get("@") == "expression":
                yield ExpressionDependencyWithDelegate(output, inside["of"])
            else:
                inputs = [_number(one) for one in told.get("inputExprIds") or []]
                yield ExpressionDependencyWithIdentifier(output, [one for one in inputs if one is not None])

    def _answers(self, interface: str, method: str) -> Iterable[dict[str, Any]]:
        for field, names in self._has.items():
            if interface not in names:
                continue
            answer = self._jvm.call_node(self._execution, self._node.id, field, method)
            for told in answer if isinstance(answer, list) else [answer]:
                if isinstance(told, dict):
                    yield told

    def _delegate(self, told: dict[str, Any]) -> Node | Plan | None:
        found = _get(told, "node", "delegate")
        if not isinstance(found, dict):
            return None
        if found.get("@") == "node":
            return self._plan.nodes[found["id"]]
        return msgspec.convert(found["of"], Plan) if found.get("@") == "plan" else None


def _get(told: dict[str, Any], *names: str) -> Any:
    return next((told[name] for name in names if told.get(name) is not None), None)


def _identifier(told: dict[str, Any]) -> DatasetId | None:
    inside = _get(told, "datasetIdentifier", "identifier")
    if isinstance(inside, dict):
        told = inside
    namespace, name = told.get("namespace"), told.get("name")
    return DatasetId(str(namespace), str(name)) if namespace is not None and name is not None else None


def _id(told: dict[str, Any], key: str) -> int | None:
    return _number(told.get(key))


def _number(found: Any) -> int | None:
    """An id: a number, or an object that holds one."""
    if isinstance(found, dict):
        found = _get(found, "exprId", "id", "expr_id")
    return int(found) if isinstance(found, int) else None


def _facets(told: dict[str, Any], kind: str) -> dict[str, Any]:
    """The facets in an answer: an object of facets, or a builder that was asked to build them."""
    names = (
        (f"{kind}Builder", kind) if kind != "facets" else ("facetsBuilder", "datasetFacetsBuilder", "facets")
    )
    found = _get(told, *names)
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


def python_source(jvm: Agent, execution: int, node: Node) -> object | None:
    """The data source behind a relation, as the program made it; it speaks if it has the methods."""
    pickled = jvm.pickled_source(execution, node.id)
    if pickled is None:
        return None
    from pyspark import cloudpickle

    found: object = cloudpickle.loads(pickled)  # made by this very program, and read by every executor anyway
    return found

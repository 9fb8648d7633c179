"""Lineage methods of plan nodes: finds the object with the methods, turns results into datasets and edges.

The object is that of a registered handler, the JVM node itself, or its Python data source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from headwater.lineage.columns.column_graph import NodeColumns
from headwater.lineage.extend.builders import (
    DatasetBuilder,
    InputDatasetBuilder,
    OpenLineageContext,
    OutputDatasetBuilder,
)
from headwater.lineage.extend.isolation import class_name
from headwater.lineage.extend.lineage_nodes import (
    ColumnLevelLineageNode,
    DatasetFieldLineage,
    ExpressionDependency,
    ExpressionDependencyWithDelegate,
    ExpressionDependencyWithIdentifier,
    Facets,
    InputDatasetField,
    InputDatasetFieldFromDelegate,
    InputDatasetWithDelegate,
    InputDatasetWithFacets,
    InputDatasetWithIdentifier,
    InputLineageNode,
    OutputDatasetField,
    OutputDatasetWithDelegate,
    OutputDatasetWithFacets,
    OutputDatasetWithIdentifier,
    OutputLineageNode,
    PlanNode,
    expr_number,
    find_handler,
)
from headwater.lineage.jvm.agent import Agent
from headwater.lineage.jvm.plan import Expression, Node, Plan, read_plan
from headwater.lineage.naming.names import DatasetId

D = TypeVar("D", bound=DatasetBuilder)


class NodeLineage:
    """The lineage methods of the nodes of one plan. Its methods run user code: callers isolate them."""

    def __init__(self, context: OpenLineageContext, agent: Agent | None, execution: int, plan: Plan) -> None:
        self._context = context
        self._agent = agent
        self._execution = execution
        self._plan = plan
        self._objects: dict[int, object | None] = {}

    def has_lineage_methods(self, node: Node) -> bool:
        """Whether a lineage object may exist for the node; fast, without a call into the JVM."""
        return bool(node.interfaces) or find_handler(node.cls) is not None or _python_table(node) is not None

    def name_of(self, node: Node) -> str:
        """What errors name: the handler, the node's class, or its Python data source."""
        handler = find_handler(node.cls)
        if handler is not None:
            return class_name(handler)
        if node.interfaces:
            return node.cls
        table = _python_table(node)
        return f"Python data source {table.name if table is not None else node.cls}"

    def lineage_object(self, node: Node) -> object | None:
        """The object with lineage methods: of a registered handler, the JVM node, or its Python source."""
        if node.id not in self._objects:
            self._objects[node.id] = self._find(node)
        return self._objects[node.id]

    def _find(self, node: Node) -> object | None:
        agent, execution = self._agent, self._execution
        handler = find_handler(node.cls)
        if handler is not None:
            fetch = (lambda number: agent.node(execution, number)) if agent is not None else None
            return handler(PlanNode(self._plan, node, fetch))
        if agent is None:
            return None
        if node.interfaces:
            return JvmLineageNode(agent, execution, self._plan, node)
        table = _python_table(node)
        return _python_source(agent, execution, node, table) if table is not None else None

    # --- datasets

    def inputs(self, node: Node) -> Iterator[InputDatasetBuilder]:
        """The datasets of `get_inputs`."""
        found = self.lineage_object(node)
        if isinstance(found, InputLineageNode) and self._side(node) != "write":
            for given in found.get_inputs(self._context):
                for made in self._read(given):
                    made.role_facets.update(given.input_facets or {})
                    yield _of_node(made, node, given.facets)

    def _read(self, given: InputDatasetWithFacets) -> list[InputDatasetBuilder]:
        if isinstance(given, InputDatasetWithIdentifier):
            return [InputDatasetBuilder(given.namespace, given.name)]
        if isinstance(given, InputDatasetWithDelegate):
            return [made for each in self._delegates(given.node) for made in self._context.inputs_of(each)]
        return []

    def outputs(self, node: Node) -> Iterator[OutputDatasetBuilder]:
        """The datasets of `get_outputs`."""
        found = self.lineage_object(node)
        if isinstance(found, OutputLineageNode) and self._side(node) != "read":
            for given in found.get_outputs(self._context):
                for made in self._written(given):
                    made.role_facets.update(given.output_facets or {})
                    yield _of_node(made, node, given.facets)

    def _side(self, node: Node) -> str:
        """Of a Python data source, which may have both methods: what the node does with it."""
        if find_handler(node.cls) is not None or node.interfaces:
            return ""
        table = _python_table(node)
        return table.side if table is not None else ""

    def _written(self, given: OutputDatasetWithFacets) -> Iterator[OutputDatasetBuilder]:
        if isinstance(given, OutputDatasetWithIdentifier):
            yield OutputDatasetBuilder(given.namespace, given.name)
        elif isinstance(given, OutputDatasetWithDelegate):
            for each in self._delegates(given.node):
                written = self._context.outputs_of(each)
                # a relation is an input to every visitor: as a delegate here, it is what the node writes
                yield from written or [one.as_output() for one in self._context.inputs_of(each)]

    def _delegates(self, delegate: Any) -> Iterable[Node]:
        """The nodes of a delegate: itself if it is a leaf or a command, else all nodes below it."""
        if isinstance(delegate, PlanNode):
            delegate = delegate.node
        if isinstance(delegate, Node):
            if not delegate.kids:
                return [delegate]
            return [self._plan.nodes[number] for number in sorted(self._plan.below(delegate.id))]
        if isinstance(delegate, Plan):
            return delegate.nodes
        if self._agent is not None and delegate is not None:
            return read_plan(self._agent.write_plan(delegate)).nodes
        return []

    # --- columns

    def columns(self, node: Node) -> NodeColumns | None:
        """The results of the three column methods; None if the node has none or they return nothing."""
        found = self.lineage_object(node)
        if not isinstance(found, ColumnLevelLineageNode):
            return None
        fields = list(found.column_level_lineage_inputs(self._context))
        written = list(found.column_level_lineage_outputs(self._context))
        dependencies = list(found.column_level_lineage_dependencies(self._context))
        if not fields and not written and not dependencies:
            return None
        inputs: list[tuple[int, str, tuple[Any, ...]]] = []
        for field in fields:
            if isinstance(field, InputDatasetField):
                datasets: tuple[Any, ...] = (field.dataset,) if field.dataset else ()
                inputs.append((expr_number(field.expr_id), field.field, datasets))
            elif isinstance(field, InputDatasetFieldFromDelegate):
                for each in self._delegates(field.delegate):
                    datasets = tuple(made.id for made in self._context.inputs_of(each))
                    inputs += [(column.id, column.name, datasets) for column in each.out if datasets]
        return NodeColumns(
            inputs=tuple(inputs),
            outputs=tuple(
                (expr_number(one.expr_id), one.field)
                for one in written
                if isinstance(one, OutputDatasetField)
            ),
            dependencies=tuple((expr_number(one.output), (self._expression(one),)) for one in dependencies),
        )

    def _expression(self, dependency: ExpressionDependency) -> Expression:
        if isinstance(dependency, ExpressionDependencyWithIdentifier):
            columns = [["a", expr_number(one)] for one in dependency.inputs]
            return columns[0] if len(columns) == 1 else ["f", "ExpressionDependency", columns]
        if isinstance(dependency, ExpressionDependencyWithDelegate):
            if isinstance(dependency.expression, list):
                return dependency.expression
            if self._agent is not None:
                return self._agent.write_expression(dependency.expression)
        return ["l"]


def _of_node(made: D, node: Node, facets: Facets | None) -> D:
    made.facets.update(facets or {})
    made.nodes = {node.id}
    return made


class PythonTable(NamedTuple):
    """The table of a Python data source in a node."""

    name: str
    side: str
    """read or write"""


def _python_table(node: Node) -> PythonTable | None:
    """A relation reads its table; a command or the write of a micro-batch, which has a query, writes it."""
    fields = node.fields if isinstance(node.fields, dict) else {}
    writes = bool(node.kids or node.inner)
    for key in ("table", "relation"):
        document = fields.get(key)
        if isinstance(document, dict) and document.get("@") == "node":
            document = (document.get("f") or {}).get("table")
        if isinstance(document, dict) and str(document.get("cls", "")).endswith("PythonTable"):
            name = str(document.get("provider") or document.get("name"))
            return PythonTable(name, "write" if writes else "read")
    return None


def _python_source(agent: Agent, execution: int, node: Node, table: PythonTable) -> object | None:
    """The Python data source of a node: of a relation the program's own object, else one with the options."""
    from pyspark import cloudpickle

    # pickled by this program; every executor unpickles it as well
    if table.side == "read":
        pickled = agent.pickled_source(execution, node.id)
        return cloudpickle.loads(pickled) if pickled is not None else None
    pickled = agent.pickled_source_class(execution, table.name)
    if pickled is None:
        return None
    from pyspark.sql.datasource import CaseInsensitiveDict

    made: object = cloudpickle.loads(pickled)(
        options=CaseInsensitiveDict(agent.source_options(execution, node.id))
    )
    return made


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

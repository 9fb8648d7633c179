"""Lineage methods of plan nodes: finds the object with the methods, turns results into datasets and edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from headwater.lineage.columns.graph import NodeColumns
from headwater.lineage.datasets.jvm_nodes import JvmLineageNode, python_source
from headwater.lineage.extend.builders import InputDatasetBuilder, OutputDatasetBuilder
from headwater.lineage.extend.context import OpenLineageContext
from headwater.lineage.extend.lineage_nodes import (
    ColumnLevelLineageNode,
    ExpressionDependency,
    ExpressionDependencyWithDelegate,
    ExpressionDependencyWithIdentifier,
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
        return bool(node.interfaces) or find_handler(node.cls) is not None or _is_python_source(node)

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
        return python_source(agent, execution, node)

    # --- datasets

    def inputs(self, node: Node) -> Iterator[InputDatasetBuilder]:
        """The datasets of `get_inputs`."""
        found = self.lineage_object(node)
        if isinstance(found, InputLineageNode):
            for each in found.get_inputs(self._context):
                yield from self._input(node, each)

    def _input(self, node: Node, given: InputDatasetWithFacets) -> Iterator[InputDatasetBuilder]:
        found: list[InputDatasetBuilder] = []
        if isinstance(given, InputDatasetWithIdentifier):
            found = [InputDatasetBuilder(*given.id)]
        elif isinstance(given, InputDatasetWithDelegate):
            found = [made for each in self._delegates(given.node) for made in self._context.inputs_of(each)]
        for made in found:
            made.facets.update(given.facets or {})
            made.role_facets.update(given.input_facets or {})
            made.nodes = {node.id}
            yield made

    def outputs(self, node: Node) -> Iterator[OutputDatasetBuilder]:
        """The datasets of `get_outputs`."""
        found = self.lineage_object(node)
        if isinstance(found, OutputLineageNode):
            for each in found.get_outputs(self._context):
                yield from self._output(node, each)

    def _output(self, node: Node, given: OutputDatasetWithFacets) -> Iterator[OutputDatasetBuilder]:
        found: list[OutputDatasetBuilder] = []
        if isinstance(given, OutputDatasetWithIdentifier):
            found = [OutputDatasetBuilder(*given.id)]
        elif isinstance(given, OutputDatasetWithDelegate):
            for each in self._delegates(given.node):
                written = self._context.outputs_of(each)
                # a relation is an input to every visitor: as a delegate here, it is what the node writes
                found += written or [one.as_output() for one in self._context.inputs_of(each)]
        for made in found:
            made.facets.update(given.facets or {})
            made.role_facets.update(given.output_facets or {})
            made.nodes = {node.id}
            yield made

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


def _is_python_source(node: Node) -> bool:
    table = node.fields.get("table") if isinstance(node.fields, dict) else None
    return isinstance(table, dict) and str(table.get("cls", "")).endswith("PythonTable")

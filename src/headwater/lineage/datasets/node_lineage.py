"""Asks whoever speaks for a node of a plan, and turns the answers into datasets and edges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headwater.lineage.columns.graph import ToldColumns
from headwater.lineage.datasets.jvm_nodes import JvmSpeaker, python_source
from headwater.lineage.extend.builders import InputDatasetBuilder, OutputDatasetBuilder, QueryPlanVisitor
from headwater.lineage.extend.context import OpenLineageContext, Quick
from headwater.lineage.extend.facet_registry import FacetRegistry, handler_of
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
)
from headwater.lineage.jvm.agent import Agent
from headwater.lineage.jvm.plan import Expression, Node, Plan, read_plan

__all__ = ["Asking", "SpokenInputs", "SpokenOutputs", "asking_of", "guarded"]


class Asking:
    """Finds what speaks for the nodes of one plan after the other."""

    def __init__(self, context: OpenLineageContext, jvm: Agent | None = None) -> None:
        self.context = context
        self._jvm = jvm
        self._execution = -1
        self._plan: Plan | None = None
        self._speakers: dict[int, object | None] = {}

    def begin(self, execution: int, plan: Plan) -> None:
        """The nodes that follow are of this plan."""
        if plan is not self._plan or execution != self._execution:
            self._execution, self._plan = execution, plan
            self._speakers = {}

    def may_speak(self, node: Node) -> bool:
        """Whether it is worth asking for this node's speaker: quick, no call into the JVM."""
        return bool(node.interfaces) or handler_of(node.cls) is not None or _is_python_source(node)

    def speaker(self, node: Node) -> object | None:
        """What speaks for the node: a registered handler, the node itself, or its Python data source."""
        if node.id not in self._speakers:
            self._speakers[node.id] = self._find(node)
        return self._speakers[node.id]

    def _find(self, node: Node) -> object | None:
        plan, execution, jvm = self._plan, self._execution, self._jvm
        if plan is None:
            return None
        handler = handler_of(node.cls)
        if handler is not None:
            fetch = (lambda number: jvm.node(execution, number)) if jvm is not None else None
            return handler(PlanNode(plan, node, fetch))
        if jvm is None:
            return None
        if node.interfaces:
            return JvmSpeaker(jvm, execution, plan, node)
        return python_source(jvm, execution, node)

    # --- datasets

    def inputs(self, node: Node) -> Iterator[InputDatasetBuilder]:
        """What the node's speaker says that it reads."""
        speaker = self.speaker(node)
        if not isinstance(speaker, InputLineageNode):
            return
        for told in speaker.get_inputs(self.context):
            yield from self._input(node, told)

    def _input(self, node: Node, told: InputDatasetWithFacets) -> Iterator[InputDatasetBuilder]:
        if isinstance(told, InputDatasetWithIdentifier):
            found = [InputDatasetBuilder(*told.id)]
        elif isinstance(told, InputDatasetWithDelegate):
            found = [made for each in self._delegates(told.node) for made in self.context.inputs_of(each)]
        else:
            found = []
        for made in found:
            made.facets.update(told.facets)
            made.input_facets.update(told.input_facets)
            made.nodes = {node.id}
            yield made

    def outputs(self, node: Node) -> Iterator[OutputDatasetBuilder]:
        """What the node's speaker says that it writes."""
        speaker = self.speaker(node)
        if not isinstance(speaker, OutputLineageNode):
            return
        for told in speaker.get_outputs(self.context):
            yield from self._output(node, told)

    def _output(self, node: Node, told: OutputDatasetWithFacets) -> Iterator[OutputDatasetBuilder]:
        if isinstance(told, OutputDatasetWithIdentifier):
            found = [OutputDatasetBuilder(*told.id)]
        elif isinstance(told, OutputDatasetWithDelegate):
            found = []
            for each in self._delegates(told.node):
                written = self.context.outputs_of(each)
                # a relation reads, as far as anybody knows: here it is what is written
                read = [OutputDatasetBuilder(*one.id, one.facets) for one in self.context.inputs_of(each)]
                found += written or read
        else:
            found = []
        for made in found:
            made.facets.update(told.facets)
            made.output_facets.update(told.output_facets)
            made.nodes = {node.id}
            yield made

    def _delegates(self, delegate: Any) -> Iterable[Node]:
        """The nodes that a delegate stands for: itself if it is a leaf or a command, else all below it."""
        if isinstance(delegate, PlanNode):
            delegate = delegate.node
        if isinstance(delegate, Node):
            if self._plan is None or not delegate.kids:
                return [delegate]
            return [self._plan.nodes[number] for number in sorted(self._plan.below(delegate.id))]
        if isinstance(delegate, Plan):
            return delegate.nodes
        if self._jvm is not None and delegate is not None:
            return read_plan(self._jvm.write_plan(delegate)).nodes
        return []

    # --- columns

    def columns(self, node: Node) -> ToldColumns | None:
        """What the node's speaker says of its columns; None if it says nothing."""
        speaker = self.speaker(node)
        if not isinstance(speaker, ColumnLevelLineageNode):
            return None
        fields = list(speaker.column_level_lineage_inputs(self.context))
        written = list(speaker.column_level_lineage_outputs(self.context))
        depends = list(speaker.column_level_lineage_dependencies(self.context))
        if not fields and not written and not depends:
            return None
        inputs: list[tuple[int, str, tuple[Any, ...]]] = []
        for field in fields:
            if isinstance(field, InputDatasetField):
                inputs.append((field.expr_id.expr_id, field.field, (field.dataset,) if field.dataset else ()))
            elif isinstance(field, InputDatasetFieldFromDelegate):
                for each in self._delegates(field.delegate):
                    datasets = tuple(made.id for made in self.context.inputs_of(each))
                    inputs += [(column.id, column.name, datasets) for column in each.out if datasets]
        return ToldColumns(
            inputs=tuple(inputs),
            outputs=tuple(
                (one.expr_id.expr_id, one.field) for one in written if isinstance(one, OutputDatasetField)
            ),
            dependencies=tuple((one.output.expr_id, (self._expression(one),)) for one in depends),
        )

    def _expression(self, told: ExpressionDependency) -> Expression:
        if isinstance(told, ExpressionDependencyWithIdentifier):
            columns = [["a", one.expr_id] for one in told.inputs]
            return columns[0] if len(columns) == 1 else ["f", "Told", columns]
        if isinstance(told, ExpressionDependencyWithDelegate):
            if isinstance(told.expression, list):
                return told.expression
            if self._jvm is not None:
                return self._jvm.write_expression(told.expression)
        return ["l"]


def _is_python_source(node: Node) -> bool:
    table = node.fields.get("table") if isinstance(node.fields, dict) else None
    return isinstance(table, dict) and str(table.get("cls", "")).endswith("PythonTable")


class _Spoken(Quick):
    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def is_defined_at(self, node: Node) -> bool:
        return self._asking.may_speak(node)


class SpokenInputs(_Spoken, QueryPlanVisitor[InputDatasetBuilder]):
    """Inputs that nodes tell of themselves."""

    def apply(self, node: Node) -> list[InputDatasetBuilder]:
        return list(self._asking.inputs(node))


class SpokenOutputs(_Spoken, QueryPlanVisitor[OutputDatasetBuilder]):
    """Outputs that nodes tell of themselves."""

    def apply(self, node: Node) -> list[OutputDatasetBuilder]:
        return list(self._asking.outputs(node))


def asking_of(context: OpenLineageContext, agent: Agent | None) -> Asking:
    """What asks the nodes of an application's plans; its visitors are entered among the context's."""
    asking = Asking(context, agent)
    # not adopted: what they call is other people's code, which goes first and is guarded
    context.input_dataset_query_plan_visitors.insert(0, SpokenInputs(asking))
    context.output_dataset_query_plan_visitors.insert(0, SpokenOutputs(asking))
    FacetRegistry.context = context
    return asking


def guarded(asking: Asking) -> Callable[[Node], ToldColumns | None]:
    """`columns` under the guard that all foreign code is under, and without a hop where nobody speaks."""

    def columns(node: Node) -> ToldColumns | None:
        if not asking.may_speak(node):
            return None
        return asking.context.guard.call(asking, lambda: asking.columns(node), None)

    return columns

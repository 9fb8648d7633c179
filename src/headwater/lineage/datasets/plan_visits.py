"""The inputs and outputs of one query: every visitor over every node of its plan.

For each node, lineage methods come first, visitors of extensions second, Headwater's own last. The first of
the three that returns datasets for a node wins, for inputs and outputs separately.
Datasets that a program declares for its own rows (extend/declared.py) come from no node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from headwater.lineage.columns.column_graph import NodeColumns
from headwater.lineage.datasets.node_lineage import NodeLineage
from headwater.lineage.datasets.query_history import QueryHistory
from headwater.lineage.extend.builders import (
    AbstractInputDatasetBuilder,
    AbstractOutputDatasetBuilder,
    DatasetBuilder,
    InputDatasetBuilder,
    OpenLineageContext,
    OutputDatasetBuilder,
    QueryPlanVisitor,
)
from headwater.lineage.extend.declared import INPUT, OUTPUT, DeclaredInput, DeclaredOutput, declaration
from headwater.lineage.extend.isolation import Guard, PerBuild
from headwater.lineage.extend.spark_objects import QueryExecution
from headwater.lineage.facets.dataset import add_symlink, schema
from headwater.lineage.jvm.plan import Attribute, Node, Plan
from headwater.lineage.naming.names import DatasetId
from headwater.lineage.runs import Run

if TYPE_CHECKING:
    from headwater.lineage.jvm.agent import Agent

D = TypeVar("D", bound=DatasetBuilder)

# The first child of these commands is the table that changes, or is not read.
_READS_NOTHING = {"DeleteFromTable", "DescribeRelation", "RefreshTable", "AnalyzeTable", "AnalyzeColumn"}
_PROGRAM_ROWS = {"LocalRelation", "LogicalRDD", "ExternalRDD"}
_FUNCTIONS = {"MapInArrow", "PythonMapInArrow", "MapInPandas"}


class CurrentQuery:
    """The query that visitors are being applied to, and whether its run has ended; one per build."""

    execution = PerBuild(lambda: -1)
    plan: PerBuild[Plan | None] = PerBuild(lambda: None)
    is_end = PerBuild(lambda: False)


class PlanVisits:
    """Applies visitors and lineage methods to the nodes of the current query."""

    _nodes: PerBuild[NodeLineage | None] = PerBuild(lambda: None)

    def __init__(
        self,
        context: OpenLineageContext,
        guard: Guard,
        query: CurrentQuery,
        agent: Agent | None = None,
    ) -> None:
        self._context = context
        self._guard = guard
        self._query = query
        self._agent = agent
        context._connect(lambda node: self.inputs([node]), lambda node: self.outputs([node]))

    def begin(self, execution: int, plan: Plan) -> None:
        """Start with the nodes of this plan."""
        if plan is not self._query.plan or execution != self._query.execution:
            self._query.execution, self._query.plan = execution, plan
            self._nodes = NodeLineage(self._context, self._agent, execution, plan)

    def inputs(self, nodes: Sequence[Node]) -> list[InputDatasetBuilder]:
        """The datasets that nodes read."""
        ask = self._nodes.inputs if self._nodes is not None else lambda node: ()
        return self._visit(self._context.input_dataset_query_plan_visitors, nodes, ask)

    def outputs(self, nodes: Sequence[Node]) -> list[OutputDatasetBuilder]:
        """The datasets that nodes write."""
        ask = self._nodes.outputs if self._nodes is not None else lambda node: ()
        return self._visit(self._context.output_dataset_query_plan_visitors, nodes, ask)

    def columns(self, node: Node) -> NodeColumns | None:
        """The columns that a node's lineage methods describe, isolated like all user code."""
        found = self._nodes
        if found is None or not found.has_lineage_methods(node):
            return None
        return self._guard.call(found.name_of(node), lambda: found.columns(node))

    def _visit(
        self,
        visitors: Sequence[QueryPlanVisitor[D]],
        nodes: Sequence[Node],
        ask: Callable[[Node], Iterable[D]],
    ) -> list[D]:
        found: list[D] = []
        answered: set[int] = set()

        def call(
            builder: object, function: Callable[[], list[tuple[Node, list[D]]]], *, is_own: bool
        ) -> None:
            for node, made in self._guard.call(builder, function) or ():
                if not is_own:
                    _set_origin(node, made)
                    answered.update([node.id] if made else ())
                found.extend(made)

        lineage = self._nodes
        for node in nodes if lineage is not None else ():
            if lineage is not None and lineage.has_lineage_methods(node):
                # each by its own name: one that hangs must not silence the others
                call(lineage.name_of(node), _asking(ask, node), is_own=False)
        for is_own in (False, True):
            left = [node for node in nodes if node.id not in answered]
            for visitor in visitors:
                if self._guard.is_builtin(visitor) is is_own:
                    call(visitor, _applying(visitor, left), is_own=is_own)
        return found


def _asking(ask: Callable[[Node], Iterable[D]], node: Node) -> Callable[[], list[tuple[Node, list[D]]]]:
    return lambda: [(node, list(ask(node)))]


def _applying(
    visitor: QueryPlanVisitor[D], nodes: Sequence[Node]
) -> Callable[[], list[tuple[Node, list[D]]]]:
    return lambda: [(node, list(visitor.apply(node))) for node in nodes if visitor.is_defined_at(node)]


def _set_origin(node: Node, made: Sequence[DatasetBuilder]) -> None:
    """Datasets of extensions belong to the visited node unless the extension says otherwise."""
    for each in made:
        each.nodes = each.nodes or {node.id}
        each.expr_ids = each.expr_ids or {column.id for column in node.out}


class QueryInputs(AbstractInputDatasetBuilder[QueryExecution]):
    """Inputs of a query, subqueries included."""

    def __init__(self, visits: PlanVisits, history: QueryHistory) -> None:
        self._visits = visits
        self._history = history

    def apply(self, event: QueryExecution) -> list[InputDatasetBuilder]:
        plan = event.plan
        if plan is None or _is_temporary_view(plan):
            return []
        self._visits.begin(event.id, plan)
        found = self._visits.inputs(_read_nodes(plan))
        top = plan.top
        for node in (top, *plan.children(top)) if top is not None else ():
            self._history.record((column.id for column in node.out), found)
        return found


class QueryOutputs(AbstractOutputDatasetBuilder[QueryExecution]):
    """Outputs of a query."""

    def __init__(self, visits: PlanVisits) -> None:
        self._visits = visits

    def apply(self, event: QueryExecution) -> list[OutputDatasetBuilder]:
        if event.plan is None:
            return []
        self._visits.begin(event.id, event.plan)
        return self._visits.outputs(event.plan.nodes)


def _read_nodes(plan: Plan) -> list[Node]:
    skipped: set[int] = set()
    for node in plan.nodes:
        if node.simple in _READS_NOTHING:
            skipped |= plan.below(node.kids[0]) if node.kids else set()
    return [node for node in plan.nodes if node.id not in skipped]


def _is_temporary_view(plan: Plan) -> bool:
    """Whether the plan only names a query; it is read when the view is used."""
    top = plan.top
    if top is None or top.simple != "CreateViewCommand":
        return False
    kind = ((top.fields or {}).get("viewType") or {}).get("cls", "")
    return not str(kind).endswith("PersistedView$")


# --- declared by the program


def declared_inputs(run: Run, objects: Sequence[object]) -> list[tuple[int, InputDatasetBuilder]]:
    """The declared input of each leaf with the program's rows, with the id of its SQL execution."""
    found = declaration(run, INPUT, DeclaredInput)
    made: list[tuple[int, InputDatasetBuilder]] = []
    if found is None or not found.columns:
        return made
    for query in objects:
        if not isinstance(query, QueryExecution) or query.plan is None:
            continue
        for node in query.plan.nodes:
            columns = [column for column in node.out if column.name in found.columns]
            is_whole = {*found.columns, *found.beside} <= {column.name for column in node.out}
            if is_whole and (node.simple in _PROGRAM_ROWS or _is_read_by_function(query.plan, node)):
                one = InputDatasetBuilder(
                    found.namespace,
                    found.name,
                    {"schema": schema(columns)},
                    expr_ids=[column.id for column in columns],
                    node=node.id,
                )
                one.named_by_program = True
                made.append((query.id, one))
    return made


def _is_read_by_function(plan: Plan, node: Node) -> bool:
    """Whether tasks read the rows by a Python function, and Spark itself only numbers the tasks."""
    return node.simple in _FUNCTIONS and [kid.simple for kid in plan.children(node)] == ["Range"]


def declared_outputs(run: Run, objects: Sequence[object]) -> list[tuple[int, OutputDatasetBuilder]]:
    """The declared output of the outermost query, with the id of its SQL execution."""
    found = declaration(run, OUTPUT, DeclaredOutput)
    if found is None:
        return []
    for query in objects:
        if isinstance(query, QueryExecution) and query.plan is not None and query.plan.top is not None:
            root, every = query.plan.root, _columns(query.plan)
            if found.by_function and query.plan.top.simple in _FUNCTIONS:
                [stored] = query.plan.children(query.plan.top)
                root, every = stored.id, stored.out
            made = OutputDatasetBuilder(found.namespace, found.name, node=root)
            made.named_by_program = True
            made.columns_not_written = frozenset(found.without)
            for other in found.symlinks:
                add_symlink(made, DatasetId(*other))
            columns = [column for column in every if column.name not in found.without]
            if columns:
                made.facets["schema"] = schema(columns)
            return [(query.id, made)]
    return []


def _columns(plan: Plan) -> Sequence[Attribute]:
    top = plan.top
    if top is None or top.out:
        return top.out if top is not None else []
    return next((kid.out for kid in plan.children(top) if kid.out), [])

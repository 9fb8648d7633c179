"""Plan to edges: one bottom-up pass finds the inputs of each expression id, and those that decide the rows.

Ids are unique in a plan, so one table of values by id serves all nodes. The exceptions are nodes that reuse
the ids of a child for other values (a union has those of its first child): they and the nodes above them look
into their overrides first.

An expression whose class has no rule is a function of its arguments, each a direct TRANSFORMATION. That holds
for all of Spark's scalar functions and for Python, pandas, Arrow and Scala UDFs; other expressions have a
rule in expression_rules.py, and nodes of a plan in node_rules.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from headwater.lineage.columns.edge_sets import (
    AGGREGATION,
    EMPTY,
    FILTER,
    GROUP_BY,
    IDENTITY,
    JOIN,
    SORT,
    TRANSFORMATION,
    Edges,
    union,
    union_then,
)
from headwater.lineage.columns.values import (
    NO_INPUT,
    InputValue,
    ScalarValue,
    Source,
    Sources,
    Value,
    any_of,
    transformed,
)
from headwater.lineage.datasets.jdbc_query import JdbcQuery, TableColumn
from headwater.lineage.datasets.query_history import QueryHistory
from headwater.lineage.jvm.plan import Expression, Node, Plan, subqueries
from headwater.lineage.naming.names import DatasetId

R = TypeVar("R")
Inputs = Callable[[Node], Sequence[DatasetId]]
ExpressionRule = Callable[["Scope", list[Expression], Any], Value]
NodeRule = Callable[["ColumnGraph", Node, "Scope"], None]

NODE_RULES: dict[str, tuple[NodeRule, str]] = {}
"""Rules of plan nodes by the simple name of Spark's class, each with its sentence in the docs."""

EXPRESSION_RULES: dict[str, tuple[ExpressionRule, str]] = {}
"""Rules of expressions, in the same form."""

_KNOWN_PACKAGES = ("org.apache.spark.", "headwater.")
_USES = {
    "IDENTITY": IDENTITY,
    "TRANSFORMATION": TRANSFORMATION,
    "AGGREGATION": AGGREGATION,
    "FILTER": FILTER,
    "JOIN": JOIN,
    "GROUP_BY": GROUP_BY,
    "SORT": SORT,
}
_DEADLINE_EVERY = 64  # nodes between two readings of the clock


class DeadlinePassed(Exception):
    """The deadline passed before the graph was complete."""


class Gap(msgspec.Struct, frozen=True):
    """A part of the plan that could not be followed, and the reason (G11)."""

    what: str
    reason: str


class NodeColumns(msgspec.Struct, frozen=True):
    """The results of a node's column lineage methods, with the expression ids of the plan."""

    inputs: tuple[tuple[int, str, tuple[DatasetId, ...]], ...] = ()
    """Id, field and datasets of columns that the node itself reads; without datasets: the node's own."""
    outputs: tuple[tuple[int, str], ...] = ()
    """Id and name of the columns that it writes."""
    dependencies: tuple[tuple[int, tuple[Expression, ...]], ...] = ()
    """Id of an output column, and the expressions that it depends on."""


NodeColumnsOf = Callable[[Node], NodeColumns | None]
"""Returns the columns that a node describes; None for nodes without lineage methods."""


def expression(*classes: str, says: str) -> Callable[[ExpressionRule], ExpressionRule]:
    """Register a rule for classes of expressions."""
    return _register(EXPRESSION_RULES, classes, says)


def rule(*classes: str, says: str) -> Callable[[NodeRule], NodeRule]:
    """Register a rule for classes of nodes."""
    return _register(NODE_RULES, classes, says)


def _register(rules: dict[str, tuple[R, str]], classes: Sequence[str], says: str) -> Callable[[R], R]:
    def register(made: R) -> R:
        rules.update(dict.fromkeys(classes, (made, says)))
        return made

    return register


class ColumnGraph:
    """The values of all ids of a plan, and for each node the edges that choose its rows.

    One graph serves every dataset that the plan writes. `deadline` is a time of the monotonic clock.
    """

    def __init__(
        self,
        plan: Plan,
        inputs: Inputs,
        *,
        node_columns: NodeColumnsOf | None = None,
        history: QueryHistory | None = None,
        deadline: float | None = None,
        texts: bool = False,
        declared: Mapping[int, frozenset[int]] | None = None,
        queries: Mapping[int, Sequence[tuple[DatasetId, str, JdbcQuery]]] | None = None,
    ) -> None:
        self.plan = plan
        self.declared = declared or {}
        """Leaves with rows of a declared dataset: the ids of their declared columns."""
        self.queries = queries or {}
        """Leaves whose rows are the result of a database's query: its tables, by dataset and name."""
        self.sources = Sources()
        self.values: dict[int, Value] = {}
        self.overrides: list[dict[int, Value] | None] = [None] * len(plan.nodes)
        self.row_edges: list[Edges] = [EMPTY] * len(plan.nodes)
        self.gaps: dict[Gap, None] = {}
        self.written: dict[int, tuple[tuple[int, str], ...]] = {}
        self.texts: dict[int, Expression] | None = {} if texts else None
        self.ctes: dict[int, Node] = {}
        self.loops: dict[int, list[Node]] = {}
        self.loop_rows: dict[int, Edges] = {}
        self.history = history
        self._inputs = inputs
        self._node_columns = node_columns
        self._deadline = float("inf") if deadline is None else deadline
        self._outer: dict[int, Value] | None = None

    def run(self) -> ColumnGraph:
        """Visit every node; raises DeadlinePassed after the deadline.

        The history records the columns of the root, so that later queries that start from these rows are
        followed to this one.
        """
        for node in self.plan.nodes:
            if node.id % _DEADLINE_EVERY == 0 and time.monotonic() > self._deadline:
                raise DeadlinePassed
            self.visit(node)
        top = self.plan.top
        if self.history is not None and top is not None:
            for number in {top.id, *top.kids, *top.inner}:
                if self.plan.nodes[number].out:
                    self.history.record_columns(self, number)
        return self

    def visit(self, node: Node) -> None:
        """Visit one node, after its children."""
        self.overrides[node.id] = self._overlay(node.kids)
        if self.overrides[node.id]:
            self._correlate(node)
        self.row_edges[node.id] = union(*(self.row_edges[kid] for kid in (*node.kids, *node.inner)))
        scope = Scope(self, self.overrides[node.id])
        if unread := node.unread:
            self.gap(node.simple, unread)
        described = self._described_columns(node)
        if described is not None:
            self._set_described(node, scope, described)
            return
        # a node of an extension may have the name of one of Spark's
        found = NODE_RULES.get(node.simple) if node.cls.startswith(_KNOWN_PACKAGES) else None
        try:
            (found[0] if found else NODE_RULES["*"][0])(self, node, scope)
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            # a form of the node that the rule does not know, such as that of another Spark version
            self.gap(node.simple, f"its rule failed: {type(error).__name__}: {error}")
            NODE_RULES["*"][0](self, node, scope)

    # --- for rules

    def filters_rows(self, node: Node, *edges: Edges) -> None:
        """Add edges to those that choose the node's rows."""
        self.row_edges[node.id] = union(self.row_edges[node.id], *edges)

    def set_value(self, node: Node, number: int, value: Value) -> None:
        """Set the value of an id for this node and the nodes above it."""
        self.set_values(node, [number], [value])

    def set_values(self, node: Node, numbers: Sequence[int], values: Sequence[Value]) -> None:
        """Set several values; see `set_value`."""
        known = [self.values.get(number) for number in numbers]
        over: dict[int, Value] = {}
        for number, old, value in zip(numbers, known, values, strict=False):
            if old is None:
                self.values[number] = value
            elif old is not value:
                over[number] = value
        if over:
            self.overrides[node.id] = {**(self.overrides[node.id] or {}), **over}

    def inputs(self, node: Node) -> list[list[Value]]:
        """The values of the columns of each child."""
        found = []
        for kid, numbers in zip(node.kids, node.in_, strict=False):
            scope = Scope(self, self.overrides[kid])
            found.append([scope.column(number) for number in numbers])
        return found

    def columns(self, number: int) -> list[Value]:
        """The values of a node's columns; the plan document must list them."""
        scope = Scope(self, self.overrides[number])
        return [scope.column(attribute.id) for attribute in self.plan.nodes[number].out]

    def new_ids(self, node: Node) -> list[int]:
        """The ids of the node that its children do not have."""
        old = {number for numbers in node.in_ for number in numbers}
        return [attribute.id for attribute in node.out if attribute.id not in old]

    def datasets(self, node: Node) -> tuple[DatasetId, ...]:
        """The datasets that a leaf reads."""
        return tuple(self._inputs(node))

    def read(self, node: Node, datasets: tuple[DatasetId, ...]) -> None:
        """Set a leaf's columns to columns of datasets; of declared rows, the declared columns only."""
        if node.id in self.queries:
            self._read_query(node, self.queries[node.id])
            return
        declared = self.declared.get(node.id)
        for attribute in node.out:
            if declared is not None and attribute.id not in declared:
                self.values[attribute.id] = NO_INPUT
                continue
            source = Source(node.id, datasets, (attribute.name,))
            nested = isinstance(attribute.type, dict) and attribute.type.get("type") != "udt"
            self.values[attribute.id] = (
                InputValue(self.sources, source) if nested else ScalarValue(self.sources.edges(source))
            )

    def _read_query(self, node: Node, tables: Sequence[tuple[DatasetId, str, JdbcQuery]]) -> None:
        """Set a leaf's columns to the columns that its database's query reads."""

        def edges(origins: Sequence[TableColumn], dataset: DatasetId, table: str) -> list[Edges]:
            return [
                self.sources.edges(Source(node.id, (dataset,), (one.column,))).then(_USES[one.use])
                for one in origins
                if one.table == table
            ]

        query = tables[0][2]
        for attribute in node.out:
            if attribute.name not in query.columns:
                self.gap("JDBC query", f"the origin of its column {attribute.name} is not known")
            origins = query.columns.get(attribute.name, ())
            found = [one for dataset, table, _ in tables for one in edges(origins, dataset, table)]
            self.values[attribute.id] = ScalarValue(union(*found))
        for name in query.unknown:
            self.gap("JDBC query", f"{name} may belong to several of its tables")
        rows = [one for dataset, table, _ in tables for one in edges(query.rows, dataset, table)]
        self.filters_rows(node, *rows)

    def gap(self, what: str, reason: str) -> None:
        """Record a part of the plan that could not be followed."""
        self.gaps[Gap(what, reason)] = None

    # --- inside

    def _correlate(self, node: Node) -> None:
        """Visit the node's subqueries again, with the overrides of the node's columns.

        Only the subqueries that belong to this node; shared parts of the plan keep their values.
        """
        first = max(node.kids, default=-1)
        inside = {number for one in node.all_expressions() for number in subqueries(one)}
        if not inside:
            return
        before, self._outer = self._outer, self.overrides[node.id]
        for number in sorted({one for plan in inside for one in self.plan.below(plan)}):
            if first < number < node.id:
                self.visit(self.plan.nodes[number])
        self._outer = before

    def _overlay(self, kids: Sequence[int]) -> dict[int, Value] | None:
        merged: dict[int, Value] | None = self._outer
        for kid in kids:
            over = self.overrides[kid]
            if over and merged is None:
                merged = over
            elif over and merged is not None and over is not merged:
                merged = {**merged, **over}
        return merged

    def _described_columns(self, node: Node) -> NodeColumns | None:
        if self._node_columns is None:
            return None
        try:
            return self._node_columns(node)
        except Exception as error:  # user code (G10)
            self.gap(node.simple, f"its column lineage methods failed: {type(error).__name__}: {error}")
            return None

    def _set_described(self, node: Node, scope: Scope, columns: NodeColumns) -> None:
        for number, name, datasets in columns.inputs:
            if number not in self.values:
                source = Source(node.id, datasets or self.datasets(node), (name,))
                self.values[number] = InputValue(self.sources, source)
        if columns.outputs:
            self.written[node.id] = columns.outputs
        values: dict[int, list[Value]] = {}
        for number, expressions in columns.dependencies:
            values.setdefault(number, []).extend(scope.value(one) for one in expressions)
        for number, found in values.items():
            self.set_value(node, number, any_of(found))
        for number in self.new_ids(node):
            if number not in self.values:
                self.values[number] = NO_INPUT


class Scope:
    """Evaluates the expressions of one node: columns as its children have them, and variables of lambdas."""

    __slots__ = ("graph", "overrides", "variables")

    def __init__(self, graph: ColumnGraph, overrides: dict[int, Value] | None) -> None:
        self.graph = graph
        self.overrides = overrides
        self.variables: dict[int, Value] = {}

    def value(self, one: Expression) -> Value:
        """The value of an expression."""
        tag = one[0]
        if tag == "a":
            return self.column(one[1])
        if tag == "f":
            rule = EXPRESSION_RULES.get(one[1])
            if rule is not None:
                return rule[0](self, one[2], one[3] if len(one) > 3 else None)
            return ScalarValue(self._function(one))
        if tag == "=":
            found = self.value(one[3])
            self.graph.values[one[1]] = found
            if self.graph.texts is not None:
                self.graph.texts[one[1]] = one
            return found
        if tag == "q":
            return self._subquery(one[1], one[2])
        if tag == "v":
            return self.variables.get(one[1], NO_INPUT)
        return NO_INPUT

    def edges(self, one: Expression) -> Edges:
        """The edges of an expression."""
        return self.value(one).edges

    def used(self, expressions: Sequence[Expression], step: int) -> Edges:
        """The edges of expressions, as one indirect use."""
        return union(*(self.edges(one) for one in expressions)).then(step)

    def column(self, number: int) -> Value:
        """A column by its expression id."""
        if self.overrides is not None:
            found = self.overrides.get(number)
            if found is not None:
                return found
        found = self.graph.values.get(number)
        if found is None:
            self.graph.gap("column", f"no node of the plan produces expression id {number}")
            return NO_INPUT
        return found

    def call(self, function: Expression, arguments: Sequence[Value]) -> Value:
        """The body of a lambda with its variables bound in order; surplus variables stay unbound."""
        if function[0] != "f" or function[1] != "LambdaFunction":
            return self.value(function)
        body, *variables = function[2]
        for variable, argument in zip(variables, arguments, strict=False):
            self.variables[variable[1]] = argument
        return self.value(body)

    def _function(self, one: Expression) -> Edges:
        # A stack instead of recursion: `a + b + …` of a thousand terms is a thousand levels deep. Columns are
        # looked up inline, since wide and deep plans spend their time here.
        values, over = self.graph.values, self.overrides
        found: list[Edges] = []
        todo: list[Expression] = list(one[2])
        while todo:
            kid = todo.pop()
            tag = kid[0]
            if tag == "a" and over is None and (value := values.get(kid[1])) is not None:
                found.append(value.edges)
            elif tag == "f" and kid[1] not in EXPRESSION_RULES:
                todo += kid[2]
            elif tag != "l":
                found.append(self.edges(kid))
        return union_then(found, TRANSFORMATION)

    def _subquery(self, cls: str, number: int) -> Value:
        """The value of a subquery; the edges that choose its rows apply to this value alone."""
        if number < 0:
            self.graph.gap("subquery", f"{cls} without a plan")
            return NO_INPUT
        rows = self.graph.row_edges[number]
        if cls == "Exists":
            return ScalarValue(rows)
        columns = self.graph.columns(number)
        if cls == "ScalarSubquery" and columns:
            return transformed(columns[0], IDENTITY, rows)
        whole = any_of(columns).edges if columns else EMPTY
        return ScalarValue(union(whole.then(TRANSFORMATION), rows))

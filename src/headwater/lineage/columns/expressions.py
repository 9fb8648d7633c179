"""Evaluates expressions: the columns that a value depends on, and how.

An expression whose class has no rule is a function of its arguments, each a direct TRANSFORMATION. That holds
for all of Spark's scalar functions and for Python, pandas, Arrow and Scala UDFs; other expressions have a
rule in expression_rules.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headwater.lineage.columns.edges import EMPTY, IDENTITY, TRANSFORMATION, Edges, union, union_then
from headwater.lineage.columns.values import NO_INPUT, ScalarValue, Value, any_of, transformed
from headwater.lineage.jvm.plan import Expression

if TYPE_CHECKING:
    from headwater.lineage.columns.graph import ColumnGraph

ExpressionRule = Callable[["Scope", list[Expression], Any], Value]

EXPRESSIONS: dict[str, tuple[ExpressionRule, str]] = {}
"""Rules by the simple name of Spark's class, each with its sentence in docs/column-lineage.md."""


def expression(*classes: str, says: str) -> Callable[[ExpressionRule], ExpressionRule]:
    """Register a rule for classes of expressions."""

    def register(rule: ExpressionRule) -> ExpressionRule:
        for cls in classes:
            EXPRESSIONS[cls] = (rule, says)
        return rule

    return register


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
            rule = EXPRESSIONS.get(one[1])
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
            elif tag == "f" and kid[1] not in EXPRESSIONS:
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

"""Expressions: which columns a value is made of, and how.

An expression whose class has no rule of its own is a function of its arguments, each a direct
TRANSFORMATION. That holds for all of Spark's scalar functions and for Python, pandas, Arrow and Scala UDFs,
so only what is *not* such a function needs a rule (functions.py, nested.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headwater.lineage.columns.edges import EMPTY, IDENTITY, TRANSFORMATION, Edges, union, union_step
from headwater.lineage.columns.values import NOTHING, Plain, Value, merge, stepped
from headwater.lineage.jvm.plan import Expression

if TYPE_CHECKING:
    from headwater.lineage.columns.graph import Graph

__all__ = ["EXPRESSIONS", "ExpressionRule", "Scope", "expression"]

ExpressionRule = Callable[["Scope", list[Expression], Any], Value]

EXPRESSIONS: dict[str, tuple[ExpressionRule, str]] = {}
"""Rules by the simple name of Spark's class, each with the sentence that the documentation has about it."""


def expression(*classes: str, says: str) -> Callable[[ExpressionRule], ExpressionRule]:
    """Register a rule for classes of expressions."""

    def register(rule: ExpressionRule) -> ExpressionRule:
        for cls in classes:
            EXPRESSIONS[cls] = (rule, says)
        return rule

    return register


class Scope:
    """Evaluates the expressions of one node: columns as its children have them, and variables of lambdas."""

    __slots__ = ("graph", "over", "variables")

    def __init__(self, graph: Graph, over: dict[int, Value] | None) -> None:
        self.graph = graph
        self.over = over
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
            return Plain(self._function(one))
        if tag == "=":
            found = self.value(one[3])
            self.graph.env[one[1]] = found
            if self.graph.texts is not None:
                self.graph.texts[one[1]] = one
            return found
        if tag == "q":
            return self._subquery(one[1], one[2])
        if tag == "v":
            return self.variables.get(one[1], NOTHING)
        return NOTHING

    def edges(self, one: Expression) -> Edges:
        """All that an expression depends on."""
        return self.value(one).edges

    def used(self, expressions: Sequence[Expression], step: int) -> Edges:
        """All that some expressions depend on, as one indirect use."""
        return union(*(self.edges(one) for one in expressions)).step(step)

    def column(self, number: int) -> Value:
        """A column by its expression id."""
        if self.over is not None:
            found = self.over.get(number)
            if found is not None:
                return found
        found = self.graph.env.get(number)
        if found is None:
            self.graph.gap("column", f"#{number} comes from nowhere in the plan")
            return NOTHING
        return found

    def call(self, function: Expression, arguments: Sequence[Value]) -> Value:
        """The body of a lambda with its variables bound, in order; what is left over stays unbound."""
        if function[0] != "f" or function[1] != "LambdaFunction":
            return self.value(function)
        body, *variables = function[2]
        for variable, argument in zip(variables, arguments, strict=False):
            self.variables[variable[1]] = argument
        return self.value(body)

    def _function(self, one: Expression) -> Edges:
        # With a stack, not by recursion: `a + b + …` of a thousand terms is a thousand levels deep. Columns
        # are looked up right here, since this is where a wide and deep plan spends its time.
        env, over = self.graph.env, self.over
        found: list[Edges] = []
        todo: list[Expression] = list(one[2])
        while todo:
            kid = todo.pop()
            tag = kid[0]
            if tag == "a" and over is None and (value := env.get(kid[1])) is not None:
                found.append(value.edges)
            elif tag == "f" and kid[1] not in EXPRESSIONS:
                todo += kid[2]
            elif tag != "l":
                found.append(self.edges(kid))
        return union_step(found, TRANSFORMATION)

    def _subquery(self, cls: str, number: int) -> Value:
        """Values of the plan's columns; what chooses its rows counts for this value alone."""
        if number < 0:
            self.graph.gap("subquery", f"{cls} without a plan")
            return NOTHING
        rows = self.graph.rows[number]
        if cls == "Exists":
            return Plain(rows)
        columns = self.graph.columns(number)
        if cls == "ScalarSubquery" and columns:
            return stepped(columns[0], IDENTITY, rows)
        whole = merge(columns).edges if columns else EMPTY
        return Plain(union(whole.step(TRANSFORMATION), rows))

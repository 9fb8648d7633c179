"""One pass over a plan, bottom-up: what each expression id is made of, and what chose the rows of each node.

Ids are unique in a plan, so one table of values by id serves all nodes. The exception are nodes that give the
ids of a child to something else (a union has those of its first child): they and the nodes above them look
into an overlay first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from headwater.lineage.columns.column_history import ColumnMemory
from headwater.lineage.columns.edges import EMPTY, Edges, union
from headwater.lineage.columns.expressions import Scope
from headwater.lineage.columns.values import NOTHING, Field, Plain, Source, Sources, Value, merge
from headwater.lineage.jvm.plan import Expression, Node, Plan, subqueries
from headwater.lineage.naming.names import DatasetId

__all__ = ["RULES", "Gap", "Graph", "Inputs", "Late", "NodeRule", "TellsColumns", "ToldColumns", "rule"]

Inputs = Callable[[Node], Sequence[DatasetId]]
NodeRule = Callable[["Graph", Node, Scope], None]

RULES: dict[str, tuple[NodeRule, str]] = {}
"""Rules by the simple name of Spark's class, each with the sentence that the documentation has about it."""

_OURS = ("org.apache.spark.", "headwater.")
_DEADLINE_EVERY = 64  # nodes between two looks at the clock


class Late(Exception):
    """The time for this plan is over."""


class Gap(msgspec.Struct, frozen=True):
    """Something that could not be followed (G11): what it is, and why."""

    what: str
    reason: str


class ToldColumns(msgspec.Struct, frozen=True):
    """What a node says about its own columns (seed 004), with ids as in the plan."""

    inputs: tuple[tuple[int, str, tuple[DatasetId, ...]], ...] = ()
    """Id, field and datasets of columns that the node reads itself; no dataset: those of the node."""
    outputs: tuple[tuple[int, str], ...] = ()
    """Id and name of what it writes, if it writes."""
    dependencies: tuple[tuple[int, tuple[Expression, ...]], ...] = ()
    """Id of an output, and the expressions that it is made of."""


TellsColumns = Callable[[Node], ToldColumns | None]
"""Whoever asks nodes for their own columns; None for nodes that say nothing."""


def rule(*classes: str, says: str) -> Callable[[NodeRule], NodeRule]:
    """Register a rule for classes of nodes."""

    def register(made: NodeRule) -> NodeRule:
        for cls in classes:
            RULES[cls] = (made, says)
        return made

    return register


class Graph:
    """The values of all ids of a plan, and for each node the edges that chose its rows."""

    def __init__(
        self,
        plan: Plan,
        inputs: Inputs,
        *,
        tells: TellsColumns | None = None,
        memory: ColumnMemory | None = None,
        deadline: float | None = None,
        texts: bool = False,
        declared: Mapping[int, frozenset[int]] | None = None,
    ) -> None:
        self.plan = plan
        self.declared = declared or {}
        """Leaves whose rows the program made, and says where it had them from: the ids of their columns."""
        self.sources = Sources()
        self.env: dict[int, Value] = {}
        self.over: list[dict[int, Value] | None] = [None] * len(plan.nodes)
        self.rows: list[Edges] = [EMPTY] * len(plan.nodes)
        self.gaps: dict[Gap, None] = {}
        self.told_outputs: dict[int, tuple[tuple[int, str], ...]] = {}
        self.texts: dict[int, Expression] | None = {} if texts else None
        self.ctes: dict[int, Node] = {}
        self.loops: dict[int, list[Node]] = {}
        self.loop_rows: dict[int, Edges] = {}
        self.memory = memory
        self._inputs = inputs
        self._tells = tells
        self._deadline = deadline
        self._outer: dict[int, Value] | None = None

    def run(self) -> None:
        """Visit every node; raises Late when the deadline has passed."""
        for node in self.plan.nodes:
            late = self._deadline is not None and node.id % _DEADLINE_EVERY == 0
            if late and self._deadline is not None and time.monotonic() > self._deadline:
                raise Late
            self.visit(node)

    def visit(self, node: Node) -> None:
        """One node, its children having been visited."""
        self.over[node.id] = self._overlay(node.kids)
        if self.over[node.id]:
            self._correlate(node)
        self.rows[node.id] = union(*(self.rows[kid] for kid in (*node.kids, *node.inner)))
        scope = Scope(self, self.over[node.id])
        if node.no_ex:
            self.gap(node.simple, f"its expressions cannot be read: {node.no_ex}")
        told = self._told(node)
        if told is not None:
            self._tell(node, scope, told)
            return
        # a foreign node may have the name of one of Spark's
        found = RULES.get(node.simple) if node.cls.startswith(_OURS) else None
        try:
            (found[0] if found else RULES["*"][0])(self, node, scope)
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            # a form of the node that the rule does not know, in some other Spark perhaps: as good as no rule
            self.gap(node.simple, f"its rule failed: {type(error).__name__}: {error}")
            RULES["*"][0](self, node, scope)

    # --- for rules

    def chooses(self, node: Node, *edges: Edges) -> None:
        """Add edges to those that choose the node's rows."""
        self.rows[node.id] = union(self.rows[node.id], *edges)

    def define(self, node: Node, number: int, value: Value) -> None:
        """Give an id its value from this node upwards."""
        known = self.env.get(number)
        if known is None:
            self.env[number] = value
        elif known is not value:
            over = dict(self.over[node.id] or {})
            over[number] = value
            self.over[node.id] = over

    def define_all(self, node: Node, numbers: Sequence[int], values: Sequence[Value]) -> None:
        """Like `define`, for many at once."""
        known = [self.env.get(number) for number in numbers]
        over: dict[int, Value] = {}
        for number, old, value in zip(numbers, known, values, strict=False):
            if old is None:
                self.env[number] = value
            elif old is not value:
                over[number] = value
        if over:
            self.over[node.id] = {**(self.over[node.id] or {}), **over}

    def inputs(self, node: Node) -> list[list[Value]]:
        """The values of the columns of each child."""
        found = []
        for kid, numbers in zip(node.kids, node.in_, strict=False):
            scope = Scope(self, self.over[kid])
            found.append([scope.column(number) for number in numbers])
        return found

    def columns(self, number: int) -> list[Value]:
        """The values of a node's columns, of a node whose columns the document tells."""
        scope = Scope(self, self.over[number])
        return [scope.column(attribute.id) for attribute in self.plan.nodes[number].out]

    def made(self, node: Node) -> list[int]:
        """The ids that the node adds to those of its children."""
        old = {number for numbers in node.in_ for number in numbers}
        return [attribute.id for attribute in node.out if attribute.id not in old]

    def datasets(self, node: Node) -> tuple[DatasetId, ...]:
        """What a leaf reads."""
        return tuple(self._inputs(node))

    def read(self, node: Node, datasets: tuple[DatasetId, ...]) -> None:
        """Define a leaf's columns as columns of datasets; of declared rows, those that were declared."""
        declared = self.declared.get(node.id)
        for attribute in node.out:
            if declared is not None and attribute.id not in declared:
                self.env[attribute.id] = NOTHING
                continue
            source = Source(node.id, datasets, (attribute.name,))
            nested = isinstance(attribute.type, dict) and attribute.type.get("type") != "udt"
            self.env[attribute.id] = (
                Field(self.sources, source) if nested else Plain(self.sources.edges(source))
            )

    def gap(self, what: str, reason: str) -> None:
        """Remember that something could not be followed."""
        self.gaps[Gap(what, reason)] = None

    # --- inside

    def _correlate(self, node: Node) -> None:
        """Visit the node's subqueries again, now that it is known what its columns are to them.

        Only what came with this node: what the plan has elsewhere too means the same there and here.
        """
        first = max(node.kids, default=-1)
        inside = {number for one in node.all_expressions() for number in subqueries(one)}
        if not inside:
            return
        before, self._outer = self._outer, self.over[node.id]
        for number in sorted({one for plan in inside for one in self.plan.below(plan)}):
            if first < number < node.id:
                self.visit(self.plan.nodes[number])
        self._outer = before

    def _overlay(self, kids: Sequence[int]) -> dict[int, Value] | None:
        merged: dict[int, Value] | None = self._outer
        for kid in kids:
            over = self.over[kid]
            if over and merged is None:
                merged = over
            elif over and merged is not None and over is not merged:
                merged = {**merged, **over}
        return merged

    def _told(self, node: Node) -> ToldColumns | None:
        if self._tells is None:
            return None
        try:
            return self._tells(node)
        except Exception as error:  # user's code: contained and told (G10)
            self.gap(node.simple, f"asked for its columns, it failed: {type(error).__name__}: {error}")
            return None

    def _tell(self, node: Node, scope: Scope, told: ToldColumns) -> None:
        for number, name, datasets in told.inputs:
            if number not in self.env:
                source = Source(node.id, datasets or self.datasets(node), (name,))
                self.env[number] = Field(self.sources, source)
        if told.outputs:
            self.told_outputs[node.id] = told.outputs
        values: dict[int, list[Value]] = {}
        for number, expressions in told.dependencies:
            values.setdefault(number, []).extend(scope.value(one) for one in expressions)
        for number, found in values.items():
            self.define(node, number, merge(found))
        for number in self.made(node):
            if number not in self.env:
                self.env[number] = NOTHING

"""Column lineage of one written dataset: the graph, the columns that are written, and the limits.

Needs no Spark: a plan document and the datasets of its leaves are enough.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from headwater.lineage.columns import expression_rules, node_rules
from headwater.lineage.columns.column_graph import (
    ColumnGraph,
    DeadlinePassed,
    Gap,
    Inputs,
    NodeColumnsOf,
    Scope,
)
from headwater.lineage.columns.edge_sets import (
    EMPTY,
    Edges,
    Transformation,
    bits,
    compose,
    number_of,
    transformation_of,
    union,
)
from headwater.lineage.columns.values import ELEMENT, KEY, VALUE, Value
from headwater.lineage.datasets.query_history import QueryHistory
from headwater.lineage.jvm.plan import Attribute, Expression, Node, Plan
from headwater.lineage.naming.names import DatasetId


class WrittenColumns(msgspec.Struct, frozen=True):
    """The columns of a plan's node under the names of the written dataset.

    `names` are the dataset's columns by position (None: the node's own; an empty name: not written). With
    `by_name` they are the columns that the dataset has; others, such as the row operation of a MERGE, are not
    written.
    """

    node: int
    names: Sequence[str] | None = None
    by_name: bool = False


def written_columns(plan: Plan, node: Node) -> WrittenColumns:
    """The columns that a command writes; of another node, its own columns."""
    if node.out or not (node.inner or node.kids):
        return WrittenColumns(node.id)
    # V2 creates have the table's name as their first child and the query as their last
    query = (node.inner or node.kids)[-1]
    if node.to:
        names = [attribute.name for attribute in node.to]
        by_name = len(names) != len(plan.nodes[query].out) or node.simple in ("ReplaceData", "WriteDelta")
        return WrittenColumns(query, names, by_name)
    return WrittenColumns(query)


_RULES = (expression_rules, node_rules)  # imported for the rules that they register
_MAX_DEPTH = 16


class ColumnSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options and limits of column lineage."""

    dataset_level: bool = True
    """Filters, joins and the like once for the dataset; otherwise in each of its fields."""
    descriptions: bool = False
    """Add the expression of a field as text."""
    nested: bool = True
    """Parts of structs, arrays and maps by path; otherwise top-level columns only."""
    max_columns: int = 10_000
    max_edges: int = 1_000_000


class InputColumn(NamedTuple):
    """An input that a field depends on, with all transformations."""

    dataset: DatasetId
    field: str
    pointer: str
    transformations: tuple[Transformation, ...]


class ColumnLineage(msgspec.Struct, kw_only=True):
    """Inputs by field (a part of a column is named by its path), inputs of all fields, gaps and omissions."""

    fields: dict[str, list[InputColumn]] = {}
    dataset: list[InputColumn] = []
    texts: dict[str, str] = {}
    gaps: list[Gap] = []
    cut: list[str] = []
    """Omissions, with the reason (G11)."""

    def __bool__(self) -> bool:
        return bool(self.fields or self.dataset or self.gaps or self.cut)


def column_lineage(
    plan: Plan,
    inputs: Inputs,
    written: WrittenColumns | Node | None = None,
    settings: ColumnSettings | None = None,
    *,
    node_columns: NodeColumnsOf | None = None,
    history: QueryHistory | None = None,
    deadline: float | None = None,
    graph: ColumnGraph | None = None,
) -> ColumnLineage:
    """The lineage of `written`: a command's node, a node's columns under other names, or the plan's root.

    Omissions because of a limit are listed in `cut`.
    """
    settings = settings or ColumnSettings()
    if plan.top is None:
        return ColumnLineage(cut=[plan.cut or "the plan has no root"])
    if graph is None:
        try:
            graph = ColumnGraph(
                plan,
                inputs,
                node_columns=node_columns,
                history=history,
                deadline=deadline,
                texts=settings.descriptions,
            ).run()
        except DeadlinePassed:
            return ColumnLineage(cut=["the deadline passed before the plan was followed to its end"])
    if not isinstance(written, WrittenColumns):
        node = written or plan.top
        written = WrittenColumns(node.id) if node.id in graph.written else written_columns(plan, node)
    return _Result(graph, settings, deadline).of(written)


_IDENTIFIER = re.compile(r"`([^`]+)`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|([A-Za-z_]\w*)(?!\w*\s*\()")


def add_generated_columns(lineage: ColumnLineage, generated: Mapping[str, str]) -> None:
    """Add columns that the table computes from its other columns, given by their SQL expressions.

    Delta computes a column that the query does not write; one that it writes keeps its own lineage.
    """
    known = {name.lower(): name for name in lineage.fields}
    for column, expression in generated.items():
        if column.lower() in known:
            continue
        used = {quoted or plain for quoted, plain in _IDENTIFIER.findall(expression)}
        fields = [known[name.lower()] for name in sorted(used) if name.lower() in known]
        if not fields:
            lineage.gaps.append(Gap("generated column", f"{column} is computed by the table: {expression}"))
        step = number_of(Transformation(True, "TRANSFORMATION"))
        found: dict[tuple[DatasetId, str, str], set[Transformation]] = {}
        for one in (one for name in fields for one in lineage.fields[name]):
            made = (transformation_of(compose(number_of(each), step)) for each in one.transformations)
            found.setdefault(one[:3], set()).update(made)
        lineage.fields[column] = [
            InputColumn(*key, tuple(sorted(kinds))) for key, kinds in sorted(found.items())
        ]


class _Result:
    """Translates edges by bit into inputs by name; sets that several fields share are translated once."""

    def __init__(self, graph: ColumnGraph, settings: ColumnSettings, deadline: float | None) -> None:
        self._graph = graph
        self._settings = settings
        self._deadline = deadline
        self._known: dict[Edges, list[InputColumn]] = {}
        self._numbers: dict[tuple[DatasetId, str, str], int] = {}
        self._names: list[tuple[DatasetId, str, str]] = []
        self._places: dict[int, list[int]] = {}
        self._inputs: dict[tuple[int, tuple[int, ...]], InputColumn] = {}
        self._left = settings.max_edges
        self._cut: dict[str, None] = {}

    def of(self, written: WrittenColumns) -> ColumnLineage:
        graph, settings = self._graph, self._settings
        columns = self._columns(written)
        rows = graph.row_edges[written.node]
        if len(columns) > settings.max_columns:
            self._cut[f"{len(columns) - settings.max_columns} of {len(columns)} columns"] = None
            columns = columns[: settings.max_columns]
        spread = EMPTY if settings.dataset_level else rows
        fields: dict[str, list[InputColumn]] = {}
        for name, attribute, value in columns:
            self._field(fields, name, attribute, value, spread, 0)
        dataset = self._named(rows) if settings.dataset_level else []
        gaps = [*graph.gaps, *([Gap("plan", graph.plan.cut)] if graph.plan.cut else [])]
        texts = _descriptions(graph, columns) if settings.descriptions else {}
        return ColumnLineage(fields=fields, dataset=dataset, texts=texts, gaps=gaps, cut=list(self._cut))

    def _columns(self, written: WrittenColumns) -> list[tuple[str, Attribute, Value]]:
        described = self._graph.written.get(written.node)
        if described:
            scope = Scope(self._graph, self._graph.overrides[written.node])
            return [(name, Attribute(number, name), scope.column(number)) for number, name in described]
        attributes = self._graph.plan.nodes[written.node].out
        values = self._graph.columns(written.node)
        if written.names is None:
            return [(a.name, a, v) for a, v in zip(attributes, values, strict=True)]
        if not written.by_name:
            return [
                (name, a, v) for name, a, v in zip(written.names, attributes, values, strict=False) if name
            ]
        wanted = dict.fromkeys(written.names)
        return [(a.name, a, v) for a, v in zip(attributes, values, strict=True) if a.name in wanted]

    def _field(
        self,
        fields: dict[str, list[InputColumn]],
        name: str,
        attribute: Attribute,
        value: Value,
        spread: Edges,
        depth: int,
    ) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._cut["the deadline passed: the fields after it are missing"] = None
            return
        edges = union(value.edges, spread)
        if len(edges) > self._left:
            self._cut[f"fields with more edges than the budget of {self._settings.max_edges} has left"] = None
            return
        self._left -= len(edges)
        fields[name] = self._named(edges)
        if not self._settings.nested or not value.deep or depth >= _MAX_DEPTH:
            return
        for part, kind in _parts(attribute.type):
            inner = Attribute(attribute.id, part, kind)
            self._field(fields, f"{name}.{part}", inner, value.part(part), spread, depth + 1)

    def _named(self, edges: Edges) -> list[InputColumn]:
        known = self._known.get(edges)
        if known is not None:
            return known
        found: dict[int, dict[int, None]] = {}  # the numbers of transformations by name, in order
        for number in sorted(edges.masks):
            for place in bits(edges.masks[number]):
                for name in self._names_of(place):
                    found.setdefault(name, {})[number] = None
        made = [self._input(name, tuple(numbers)) for name, numbers in found.items()]
        made.sort()
        self._known[edges] = made
        return made

    def _names_of(self, place: int) -> list[int]:
        """The numbers of a source's names: one for each of its datasets."""
        known = self._places.get(place)
        if known is None:
            source = self._graph.sources.all[place]
            field = ".".join(source.path) if self._settings.nested else source.path[0]
            known = self._places[place] = []
            for dataset in source.datasets:
                name = (dataset, field, source.pointer)
                if name not in self._numbers:
                    self._numbers[name] = len(self._names)
                    self._names.append(name)
                known.append(self._numbers[name])
        return known

    def _input(self, name: int, steps: tuple[int, ...]) -> InputColumn:
        key = (name, steps)
        made = self._inputs.get(key)
        if made is None:
            made = InputColumn(*self._names[name], tuple(transformation_of(number) for number in steps))
            self._inputs[key] = made
        return made


def _parts(kind: object) -> list[tuple[str, object]]:
    """The parts of a type, by name."""
    if not isinstance(kind, dict):
        return []
    if kind.get("type") == "struct":
        return [(str(field["name"]), field["type"]) for field in kind.get("fields", [])]
    if kind.get("type") == "array" and isinstance(kind.get("elementType"), dict):
        return [(ELEMENT, kind["elementType"])]
    if kind.get("type") == "map":
        return [(KEY, kind.get("keyType")), (VALUE, kind.get("valueType"))]
    return []


# --- descriptions: the expression of a column as short, SQL-like text

_LONGEST = 200
_OPERATORS = {
    "Add": "+",
    "Subtract": "-",
    "Multiply": "*",
    "Divide": "/",
    "Remainder": "%",
    "And": "AND",
    "Or": "OR",
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_WRAPPERS = {"AggregateExpression", "KnownNotNull", "AssertNotNull", "CheckOverflowInTableInsert"}


def _descriptions(graph: ColumnGraph, columns: list[tuple[str, Attribute, Value]]) -> dict[str, str]:
    """The expression of each computed column; columns that only pass through have none."""
    names: dict[int, str] = {}
    for node in graph.plan.nodes:
        names.update((attribute.id, attribute.name) for attribute in node.out)
    made = graph.texts or {}
    names.update((number, one[2]) for number, one in made.items())
    found = {}
    for name, attribute, _ in columns:
        one = made.get(attribute.id)
        hops = 0
        while one is not None and one[3][0] == "a" and hops < len(made):
            one = made.get(one[3][1])
            hops += 1
        if one is not None:
            found[name] = _text(one[3], names, 8)[:_LONGEST]
    return found


def _text(one: Expression, names: dict[int, str], depth: int) -> str:
    tag = one[0]
    if tag == "a":
        return names.get(one[1], "?")
    if tag == "l":
        return repr(one[1]) if len(one) > 1 else "…"
    if tag == "=":
        return _text(one[3], names, depth)
    if tag == "q":
        return "(subquery)"
    if tag != "f":
        return "x"
    if depth <= 0:
        return "…"
    cls, kids = one[1], [_text(kid, names, depth - 1) for kid in one[2][:16]]
    if cls in _WRAPPERS and kids:
        return kids[0]
    if cls in _OPERATORS and len(kids) == 2:
        return f"({kids[0]} {_OPERATORS[cls]} {kids[1]})"
    if cls == "GetStructField":
        return f"{kids[0]}.{one[3]}"
    name = str(one[3]) if cls.endswith(("UDF", "UDAF")) and len(one) > 3 else _snake(cls)
    return f"{name}({', '.join(kids)})"


def _snake(cls: str) -> str:
    return "".join(
        f"_{c.lower()}" if c.isupper() and at else c.lower() for at, c in enumerate(cls.rstrip("$"))
    )

"""The plan document that jvm/java/PlanWriter.java writes, and typed views on it. Nothing here needs Spark.

{"v":1, "root":N, "cut":"why it is not whole"?, "nodes":[node, …]}          in post-order; ids are positions
node: {"id", "cls",
       "kids":[ids]   children,   "inner":[ids]   a command's query where it is not a child,
       "out":[[exprId,"name",type?], …]   the columns of leaves, of nodes that make new ones, and (with types)
                                          of the root, of a command's query and of subqueries,
       "in":[[exprIds], …]   the columns of each child, where the node does not just pass them on,
       "to":[[exprId,"name"], …]   the columns of the table that a v2 command writes,
       "ex":{field of Spark's class: [expression, …] or [[expression, …], …] or a number or a text},
       "lin":{"" or field: [interfaces of OpenLineage that it implements]},
       "f":{…}   the fields that name datasets (jvm/java/NodeFields.java)
       "no_ex":"…"   why "ex" could not be written; the same for other keys}
type: Spark's own JSON of a type.

expression: ["a",exprId]  a column         ["=",exprId,"name",expression]  an alias
            ["l",value?]  a literal, with its value if that is a short text or an integer
            ["v",exprId]  a variable of a lambda
            ["q","class",node]  a subquery, its plan among the nodes
            ["f","class",[children],extra?]  anything else; extra is a field's name, a list of names, …
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

Expression = list[Any]
"""See the module docstring; kept as JSON lists, since plans have hundreds of thousands of them."""


class Attribute(msgspec.Struct, frozen=True, array_like=True):
    """A column of a node: its expression id, its name, and its type if the document has it."""

    id: int
    name: str
    type: Any = None


class Node(msgspec.Struct, kw_only=True, rename={"interfaces": "lin", "fields": "f"}):
    """A node of the plan; `kids` and `inner` are positions in the plan's `nodes`."""

    id: int
    cls: str
    kids: list[int] = []
    inner: list[int] = []
    out: list[Attribute] = []
    to: list[Attribute] = []
    in_: list[list[int]] = msgspec.field(default=[], name="in")
    ex: dict[str, Any] = {}
    interfaces: dict[str, list[str]] = {}
    fields: Any = None
    no_ex: str | None = None
    """Why `ex` could not be read; likewise the others."""
    no_out: str | None = None
    no_in: str | None = None
    no_f: str | None = None
    cut_f: str | None = None
    """What was left out of `fields`."""

    @property
    def unread(self) -> str:
        """The parts of the node that could not be read, with the reasons; empty if all could."""
        parts = {
            "columns": self.no_out,
            "expressions": self.no_ex,
            "inputs": self.no_in,
            "fields": self.no_f,
        }
        return ", ".join(f"its {part} cannot be read: {reason}" for part, reason in parts.items() if reason)

    @property
    def simple(self) -> str:
        """The class without its package and without the marks of Scala's objects and inner classes."""
        return self.cls.rpartition(".")[2].rstrip("$").rpartition("$")[2]

    def expressions(self, role: str) -> list[Any]:
        """The expressions in one field of the node; empty if there are none."""
        found = self.ex.get(role)
        return found if isinstance(found, list) else []

    def all_expressions(self) -> Iterator[Expression]:
        """Every expression of the node, whatever field it is in."""
        for found in self.ex.values():
            if isinstance(found, list):
                yield from _flat(found)


class Plan(msgspec.Struct, kw_only=True):
    """A whole analyzed plan."""

    nodes: list[Node]
    root: int
    cut: str | None = None

    @property
    def top(self) -> Node | None:
        """The root, or None if the plan was cut."""
        return self.nodes[self.root] if 0 <= self.root < len(self.nodes) else None

    def children(self, node: Node) -> Iterator[Node]:
        """Children and inner children."""
        for number in (*node.kids, *node.inner):
            yield self.nodes[number]

    def below(self, number: int) -> set[int]:
        """Ids of the nodes at and under a node, subqueries included."""
        found: set[int] = set()
        todo = [number]
        while todo:
            at = todo.pop()
            if at in found or not 0 <= at < len(self.nodes):
                continue
            found.add(at)
            node = self.nodes[at]
            todo += node.kids
            todo += node.inner
            for expression in node.all_expressions():
                todo += subqueries(expression)
        return found


def read_plan(raw: bytes | str | msgspec.Raw) -> Plan:
    """The document as a Plan; raises msgspec.DecodeError if it is none."""
    return _decoder.decode(raw)


def subqueries(expression: Sequence[Any]) -> Iterator[int]:
    """Ids of the plans inside an expression."""
    todo = [expression]
    while todo:
        one = todo.pop()
        if one[0] == "q":
            if one[2] >= 0:
                yield one[2]
        elif one[0] == "f":
            todo += one[2]
        elif one[0] == "=":
            todo.append(one[3])


def _flat(found: list[Any]) -> Iterator[Expression]:
    for one in found:
        if one and isinstance(one[0], list):
            yield from _flat(one)
        elif one:
            yield one


_decoder = msgspec.json.Decoder(Plan)

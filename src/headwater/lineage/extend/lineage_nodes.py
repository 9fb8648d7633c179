"""Plan nodes with lineage methods: the protocols, their results, and handlers for JVM classes.

Three kinds of objects can describe the lineage of a plan node:

- a node of a JVM extension that implements OpenLineage's interfaces (in any of their packages);
- a data source written in Python (`pyspark.sql.datasource.DataSource`) that has these methods itself;
- a handler registered for the name of a JVM class (`register_node`), which receives the node as a PlanNode.

Lineage methods run on lineage's own threads under a time limit. Their result replaces Headwater's own for
that node; an exception is reported in the event (G10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from headwater.lineage.extend.builders import Facet
from headwater.lineage.jvm.plan import Attribute, Expression, Node, Plan
from headwater.lineage.naming.names import DatasetId

if TYPE_CHECKING:
    from headwater.lineage.extend.builders import OpenLineageContext

__all__ = [
    "ColumnLevelLineageNode",
    "DatasetFieldLineage",
    "ExpressionDependency",
    "ExpressionDependencyWithDelegate",
    "ExpressionDependencyWithIdentifier",
    "InputDatasetField",
    "InputDatasetFieldFromDelegate",
    "InputDatasetWithDelegate",
    "InputDatasetWithFacets",
    "InputDatasetWithIdentifier",
    "InputLineageNode",
    "OlExprId",
    "OutputDatasetField",
    "OutputDatasetWithDelegate",
    "OutputDatasetWithFacets",
    "OutputDatasetWithIdentifier",
    "OutputLineageNode",
    "PlanNode",
    "node_handler",
    "register_node",
    "unregister_node",
]

Facets = Mapping[str, Facet]


class OlExprId(NamedTuple):
    """The expression id of a column in a plan."""

    expr_id: int


class PlanNode:
    """A node of an analyzed plan as handlers receive it; `jvm` is the JVM's own object."""

    def __init__(self, plan: Plan, node: Node, fetch: Callable[[int], Any] | None = None) -> None:
        self.plan = plan
        self.node = node
        self._fetch = fetch

    @property
    def cls(self) -> str:
        """The name of the JVM class."""
        return self.node.cls

    @property
    def fields(self) -> dict[str, Any]:
        """The node's fields in the form of the plan document (jvm/plan.py)."""
        return self.node.fields if isinstance(self.node.fields, dict) else {}

    @property
    def output(self) -> Sequence[Attribute]:
        """The node's columns; empty for nodes that only pass columns through."""
        return self.node.out

    @property
    def children(self) -> list[PlanNode]:
        """The nodes below, including a command's query."""
        return [PlanNode(self.plan, kid, self._fetch) for kid in self.plan.children(self.node)]

    def expressions(self, field: str) -> list[Any]:
        """The expressions in one field of the node, in the form of jvm/plan.py."""
        return self.node.expressions(field)

    @property
    def jvm(self) -> Any:
        """The node's py4j object; None after Spark has released it."""
        return self._fetch(self.node.id) if self._fetch is not None else None


# --- datasets


class InputDatasetWithFacets:
    """A dataset that is read; `input_facets` are the facets of its role."""

    facets: Facets | None
    input_facets: Facets | None


@dataclass
class InputDatasetWithIdentifier(InputDatasetWithFacets):
    """A dataset that is read, by namespace and name."""

    namespace: str
    name: str
    facets: Facets | None = None
    input_facets: Facets | None = None


@dataclass
class InputDatasetWithDelegate(InputDatasetWithFacets):
    """The datasets that another node of the plan reads: a PlanNode, a Node, or a JVM object."""

    node: Any
    facets: Facets | None = None
    input_facets: Facets | None = None


class OutputDatasetWithFacets:
    """A dataset that is written; `output_facets` are the facets of its role."""

    facets: Facets | None
    output_facets: Facets | None


@dataclass
class OutputDatasetWithIdentifier(OutputDatasetWithFacets):
    """A dataset that is written, by namespace and name."""

    namespace: str
    name: str
    facets: Facets | None = None
    output_facets: Facets | None = None


@dataclass
class OutputDatasetWithDelegate(OutputDatasetWithFacets):
    """The dataset that another node stands for, such as the relation of a command."""

    node: Any
    facets: Facets | None = None
    output_facets: Facets | None = None


# --- columns


class DatasetFieldLineage:
    """A field of a dataset and the expression id of its column in the plan."""


@dataclass
class InputDatasetField(DatasetFieldLineage):
    """A field that the node reads, of `dataset` or of the node's own inputs."""

    field: str
    expr_id: OlExprId | int
    dataset: DatasetId | None = None


@dataclass
class InputDatasetFieldFromDelegate(DatasetFieldLineage):
    """All fields that another node reads."""

    delegate: Any


@dataclass
class OutputDatasetField(DatasetFieldLineage):
    """A field that the node writes."""

    field: str
    expr_id: OlExprId | int


@dataclass
class ExpressionDependency:
    """A dependency of an output column; several of one output are merged."""

    output: OlExprId | int


@dataclass
class ExpressionDependencyWithIdentifier(ExpressionDependency):
    """A dependency on columns: one column unchanged, several as a function of all of them."""

    inputs: Iterable[OlExprId | int]


@dataclass
class ExpressionDependencyWithDelegate(ExpressionDependency):
    """A dependency on an expression: a JVM expression, or one of the plan document."""

    expression: Expression | Any


def expr_number(expr_id: OlExprId | int) -> int:
    """The number of an expression id."""
    return expr_id.expr_id if isinstance(expr_id, OlExprId) else int(expr_id)


# --- protocols


@runtime_checkable
class InputLineageNode(Protocol):
    """Describes the datasets that it reads."""

    def get_inputs(self, context: OpenLineageContext) -> Iterable[InputDatasetWithFacets]:
        """The datasets that are read."""
        ...


@runtime_checkable
class OutputLineageNode(Protocol):
    """Describes the datasets that it writes."""

    def get_outputs(self, context: OpenLineageContext) -> Iterable[OutputDatasetWithFacets]:
        """The datasets that are written."""
        ...


@runtime_checkable
class ColumnLevelLineageNode(Protocol):
    """Describes how its columns depend on each other."""

    def column_level_lineage_inputs(self, context: OpenLineageContext) -> Iterable[DatasetFieldLineage]:
        """The fields that the node itself reads."""
        ...

    def column_level_lineage_outputs(self, context: OpenLineageContext) -> Iterable[DatasetFieldLineage]:
        """The fields that the node writes; empty if it writes none."""
        ...

    def column_level_lineage_dependencies(
        self, context: OpenLineageContext
    ) -> Iterable[ExpressionDependency]:
        """The dependencies of each output column."""
        ...


# --- handlers

Handler = Callable[[PlanNode], object]
H = TypeVar("H", bound=Handler)

_handlers: dict[str, Handler] = {}


def register_node(cls: str, handler: Handler) -> None:
    """Register `handler` for nodes of a JVM class, named with or without its package.

    `handler(PlanNode)` returns an object that implements any of the protocols above. A later handler of the
    same class replaces the earlier one.
    """
    _handlers[cls] = handler


def unregister_node(cls: str) -> None:
    """Remove the handler of a class, if there is one."""
    _handlers.pop(cls, None)


def node_handler(cls: str) -> Callable[[H], H]:
    """`register_node` as a decorator."""

    def register(handler: H) -> H:
        register_node(cls, handler)
        return handler

    return register


def find_handler(cls: str) -> Handler | None:
    """The handler of a JVM class."""
    if not _handlers:
        return None
    return _handlers.get(cls) or _handlers.get(cls.rpartition(".")[2])

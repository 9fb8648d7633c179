"""Nodes that tell their own lineage: what they implement, and what they answer.

Three kinds of things can speak for a node of a plan:

- a node of a JVM extension that carries OpenLineage's interfaces (any of the packages that they have had);
- a data source written in Python (`pyspark.sql.datasource.DataSource`) that has these methods itself;
- a handler registered for the name of a JVM class (registry.py), which is given the node as a PlanNode.

Whoever speaks for a node is asked on lineage's own threads and under a time limit. What it says stands
instead of what Headwater would have said about that node; what it raises is told in the event (G10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from headwater.lineage.extend.builders import Facet
from headwater.lineage.jvm.plan import Attribute, Expression, Node, Plan
from headwater.lineage.naming.names import DatasetId

if TYPE_CHECKING:
    from headwater.lineage.extend.context import OpenLineageContext

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
]

Facets = Mapping[str, Facet]


class OlExprId(NamedTuple):
    """The id that Spark gives to a column in a plan."""

    expr_id: int


class PlanNode:
    """A node of an analyzed plan as handlers see it; the JVM's own object is behind `.jvm`."""

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
        """What is known of the object's fields, as jvm/java/NodeFields.java writes them."""
        return self.node.fields if isinstance(self.node.fields, dict) else {}

    @property
    def output(self) -> Sequence[Attribute]:
        """The node's columns, where the document tells them: not of nodes that only pass columns on."""
        return self.node.out

    @property
    def children(self) -> list[PlanNode]:
        """The nodes below, a command's query included."""
        return [PlanNode(self.plan, kid, self._fetch) for kid in self.plan.children(self.node)]

    def expressions(self, field: str) -> list[Any]:
        """The expressions in one field of the node, in the form that lineage/plan.py tells."""
        return self.node.expressions(field)

    @property
    def jvm(self) -> Any:
        """The node itself, a py4j object; None once Spark has let it go."""
        return self._fetch(self.node.id) if self._fetch is not None else None


# --- datasets


class InputDatasetWithFacets:
    """A dataset that is read, with facets of its own: `facets`, and `input_facets` for its role here."""

    def __init__(self, facets: Facets | None = None, input_facets: Facets | None = None) -> None:
        self.facets = dict(facets or {})
        self.input_facets = dict(input_facets or {})


class InputDatasetWithIdentifier(InputDatasetWithFacets):
    """… by its namespace and name."""

    def __init__(
        self, namespace: str, name: str, facets: Facets | None = None, input_facets: Facets | None = None
    ) -> None:
        super().__init__(facets, input_facets)
        self.id = DatasetId(namespace, name)


class InputDatasetWithDelegate(InputDatasetWithFacets):
    """… the one that another node of the plan reads: a PlanNode, a Node, or a JVM object."""

    def __init__(self, node: Any, facets: Facets | None = None, input_facets: Facets | None = None) -> None:
        super().__init__(facets, input_facets)
        self.node = node


class OutputDatasetWithFacets:
    """A dataset that is written, with facets of its own: `facets`, and `output_facets` for its role here."""

    def __init__(self, facets: Facets | None = None, output_facets: Facets | None = None) -> None:
        self.facets = dict(facets or {})
        self.output_facets = dict(output_facets or {})


class OutputDatasetWithIdentifier(OutputDatasetWithFacets):
    """… by its namespace and name."""

    def __init__(
        self, namespace: str, name: str, facets: Facets | None = None, output_facets: Facets | None = None
    ) -> None:
        super().__init__(facets, output_facets)
        self.id = DatasetId(namespace, name)


class OutputDatasetWithDelegate(OutputDatasetWithFacets):
    """… the one that another node stands for, as the relation of a command does."""

    def __init__(self, node: Any, facets: Facets | None = None, output_facets: Facets | None = None) -> None:
        super().__init__(facets, output_facets)
        self.node = node


# --- columns


class DatasetFieldLineage:
    """A field of a dataset, tied to a column of the plan."""


class InputDatasetField(DatasetFieldLineage):
    """A field that the node reads; of `dataset`, or of the node's own inputs."""

    def __init__(self, field: str, expr_id: OlExprId | int, dataset: DatasetId | None = None) -> None:
        self.field = field
        self.expr_id = OlExprId(_number(expr_id))
        self.dataset = dataset


class InputDatasetFieldFromDelegate(DatasetFieldLineage):
    """All fields that another node reads."""

    def __init__(self, delegate: Any) -> None:
        self.delegate = delegate


class OutputDatasetField(DatasetFieldLineage):
    """A field that the node writes, by name."""

    def __init__(self, field: str, expr_id: OlExprId | int) -> None:
        self.field = field
        self.expr_id = OlExprId(_number(expr_id))


class ExpressionDependency:
    """An output column depends on something; several of one output add up."""

    def __init__(self, output: OlExprId | int) -> None:
        self.output = OlExprId(_number(output))


class ExpressionDependencyWithIdentifier(ExpressionDependency):
    """… on columns: one as it is, several as a function of them."""

    def __init__(self, output: OlExprId | int, inputs: Iterable[OlExprId | int]) -> None:
        super().__init__(output)
        self.inputs = tuple(OlExprId(_number(one)) for one in inputs)


class ExpressionDependencyWithDelegate(ExpressionDependency):
    """… on an expression, which is looked into: a JVM expression, or one of the plan's document."""

    def __init__(self, output: OlExprId | int, expression: Any) -> None:
        super().__init__(output)
        self.expression: Expression | Any = expression


def _number(expr_id: OlExprId | int) -> int:
    return expr_id.expr_id if isinstance(expr_id, OlExprId) else int(expr_id)


# --- what speaks


@runtime_checkable
class InputLineageNode(Protocol):
    """Tells what it reads."""

    def get_inputs(self, context: OpenLineageContext) -> Iterable[InputDatasetWithFacets]:
        """The datasets that are read."""
        ...


@runtime_checkable
class OutputLineageNode(Protocol):
    """Tells what it writes."""

    def get_outputs(self, context: OpenLineageContext) -> Iterable[OutputDatasetWithFacets]:
        """The datasets that are written."""
        ...


@runtime_checkable
class ColumnLevelLineageNode(Protocol):
    """Tells how its columns depend on each other."""

    def column_level_lineage_inputs(self, context: OpenLineageContext) -> Iterable[DatasetFieldLineage]:
        """The fields that it reads itself."""
        ...

    def column_level_lineage_outputs(self, context: OpenLineageContext) -> Iterable[DatasetFieldLineage]:
        """The fields that it writes, if it writes."""
        ...

    def column_level_lineage_dependencies(
        self, context: OpenLineageContext
    ) -> Iterable[ExpressionDependency]:
        """Which output depends on what."""
        ...

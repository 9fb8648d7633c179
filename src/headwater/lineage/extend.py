"""Extending lineage in Python: what builders are, who makes them, and what they can reach.

A package offers a factory through the entry point group `headwater.lineage`, or a setting names it:

    class Factory(OpenLineageEventListenerFactory):
        def create_input_dataset_builder(self):
            return [MyTables()]

    class MyTables(AbstractInputDatasetBuilder[HadoopRDD]):
        def apply(self, event):
            return [InputDatasetBuilder("warehouse://main", event.paths[0])]

For every event of a run each builder is offered every object of the run, one at a time: QueryExecution,
ActiveJob, Stage, StageInfo, each RDD of the chains (views.py), and the Run itself. It is called for those for
which it says `is_defined_at`. All of this happens on lineage's own threads, never on Spark's or the user's. A
builder that raises, or that does not return in time, loses its own result; the event tells it as
`extractionError` (G10).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from headwater.lineage.dataset_builders import (
    DatasetBuilder,
    Facet,
    InputDatasetBuilder,
    OutputDatasetBuilder,
)
from headwater.lineage.type_arguments import type_argument

if TYPE_CHECKING:
    from headwater.lineage.context import OpenLineageContext
    from headwater.lineage.plan import Node

__all__ = [
    "AbstractDatasetFacetBuilder",
    "AbstractInputDatasetBuilder",
    "AbstractInputDatasetFacetBuilder",
    "AbstractJobFacetBuilder",
    "AbstractOutputDatasetBuilder",
    "AbstractOutputDatasetFacetBuilder",
    "AbstractRunFacetBuilder",
    "Consumer",
    "CustomFacetBuilder",
    "DatasetBuilder",
    "Facet",
    "InputDatasetBuilder",
    "OpenLineageEventListenerFactory",
    "OutputDatasetBuilder",
    "QueryPlanVisitor",
]

Consumer = Callable[[str, Facet], None]
"""Takes the key of a facet and the facet."""

T = TypeVar("T")
F = TypeVar("F")
D = TypeVar("D", bound=DatasetBuilder)


class _Partial(ABC, Generic[T]):
    """Defined for the objects of the class that stands for T; for all where T is left open."""

    def is_defined_at(self, event: object) -> bool:
        """Whether this builder wants `event`. By default: whether it is of the type argument's class."""
        classes = type_argument(type(self), _Partial)
        return classes is None or isinstance(event, classes)


class CustomFacetBuilder(_Partial[T], Generic[T, F]):
    """Makes facets of type F from objects of type T."""

    @abstractmethod
    def accept(self, event: T, consumer: Consumer) -> None:
        """Hand each facet with its key to `consumer`; none, one or several."""


class AbstractRunFacetBuilder(CustomFacetBuilder[T, Facet]):
    """Facets of the run."""


class AbstractJobFacetBuilder(CustomFacetBuilder[T, Facet]):
    """Facets of the job."""


class AbstractInputDatasetFacetBuilder(CustomFacetBuilder[T, Facet]):
    """Facets of every input of the event, in its role as an input."""


class AbstractOutputDatasetFacetBuilder(CustomFacetBuilder[T, Facet]):
    """Facets of every output of the event, in its role as an output."""


class AbstractDatasetFacetBuilder(CustomFacetBuilder[T, Facet]):
    """Facets of every dataset of the event, input or output."""


class AbstractInputDatasetBuilder(_Partial[T]):
    """Makes inputs from objects of type T. A facet meant for one of them alone is put into it here."""

    @abstractmethod
    def apply(self, event: T) -> Iterable[InputDatasetBuilder]:
        """The inputs that `event` tells of."""


class AbstractOutputDatasetBuilder(_Partial[T]):
    """Makes outputs from objects of type T."""

    @abstractmethod
    def apply(self, event: T) -> Iterable[OutputDatasetBuilder]:
        """The outputs that `event` tells of."""


class QueryPlanVisitor(ABC, Generic[D]):
    """Makes datasets from nodes of a query's analyzed plan, chosen by the names of their JVM classes.

    Whoever needs another node's datasets asks the context for them when they are needed
    (`context.inputs_of(node)`), not when the visitor is made: other factories may not have had their turn.
    """

    node_classes: ClassVar[Collection[str]] = ()
    """Names of classes, whole or without their package."""

    def is_defined_at(self, node: Node) -> bool:
        """Whether this visitor wants the node. By default: whether its class is one of `node_classes`."""
        return node.cls in self.node_classes or node.cls.rpartition(".")[2] in self.node_classes

    @abstractmethod
    def apply(self, node: Node) -> Iterable[D]:
        """The datasets that the node tells of."""


class OpenLineageEventListenerFactory:
    """Makes the builders of one extension. Made once, without arguments.

    `set_open_lineage_context` is called first, then every `create_…` method exactly once in an application,
    in no promised order: while they run, the collections of the context may still be filling. By default all
    return nothing.
    """

    def set_open_lineage_context(self, context: OpenLineageContext) -> None:
        """Take the context; builders that delegate to others keep it."""

    def create_input_dataset_query_plan_visitors(self) -> Collection[QueryPlanVisitor[InputDatasetBuilder]]:
        """Visitors that find inputs in plans."""
        return ()

    def create_output_dataset_query_plan_visitors(self) -> Collection[QueryPlanVisitor[OutputDatasetBuilder]]:
        """Visitors that find outputs in plans."""
        return ()

    def create_input_dataset_builder(self) -> Collection[AbstractInputDatasetBuilder[Any]]:
        """Builders of inputs from any object."""
        return ()

    def create_output_dataset_builder(self) -> Collection[AbstractOutputDatasetBuilder[Any]]:
        """Builders of outputs from any object."""
        return ()

    def create_input_dataset_facet_builders(self) -> Collection[CustomFacetBuilder[Any, Any]]:
        """Builders of facets for every input."""
        return ()

    def create_output_dataset_facet_builders(self) -> Collection[CustomFacetBuilder[Any, Any]]:
        """Builders of facets for every output."""
        return ()

    def create_dataset_facet_builders(self) -> Collection[CustomFacetBuilder[Any, Any]]:
        """Builders of facets for every dataset, input or output."""
        return ()

    def create_run_facet_builders(self) -> Collection[CustomFacetBuilder[Any, Any]]:
        """Builders of facets of the run."""
        return ()

    def create_job_facet_builders(self) -> Collection[CustomFacetBuilder[Any, Any]]:
        """Builders of facets of the job."""
        return ()

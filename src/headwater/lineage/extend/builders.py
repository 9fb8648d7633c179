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

import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_args, get_origin

from headwater.lineage.naming.names import DatasetId

if TYPE_CHECKING:
    from headwater.lineage.extend.context import OpenLineageContext
    from headwater.lineage.jvm.plan import Node

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
    "type_argument",
]


@lru_cache(maxsize=1024)
def type_argument(cls: type, base: type) -> tuple[type, ...] | None:
    """The classes that `cls` gives for the first parameter of the generic class `base`, however many classes
    stand between; several for a union. None where it is left open: then every object is meant."""
    found = _resolved(cls, base)
    return None if found is None else _classes(found)


def _resolved(cls: type, base: type) -> Any:
    """The argument itself: a class, a union, a TypeVar that is still open, or None."""
    if cls is base:
        parameters = getattr(cls, "__parameters__", ())
        return parameters[0] if parameters else None
    for given in _bases(cls):
        origin = get_origin(given) or given
        if not (isinstance(origin, type) and issubclass(origin, base)):
            continue
        found = _resolved(origin, base)
        if isinstance(found, TypeVar):
            parameters = list(getattr(origin, "__parameters__", ()))
            arguments = get_args(given)
            if found in parameters and parameters.index(found) < len(arguments):
                found = arguments[parameters.index(found)]
        if found is not None:
            return found
    return None


def _bases(cls: type) -> tuple[Any, ...]:
    own: tuple[Any, ...] | None = cls.__dict__.get("__orig_bases__")
    return own if own is not None else cls.__bases__


def _classes(found: Any) -> tuple[type, ...] | None:
    if isinstance(found, TypeVar):
        return _classes(found.__bound__) if found.__bound__ is not None else None
    if found is Any or found is object:
        return None
    if get_origin(found) in (typing.Union, types.UnionType):
        members = [_classes(member) for member in get_args(found)]
        if any(member is None for member in members):
            return None
        return tuple(cls for member in members if member for cls in member)
    origin = get_origin(found) or found
    return (origin,) if isinstance(origin, type) else None


Facet = Any


"""A facet class of openlineage-python, or a mapping; `_producer` and `_schemaURL` are added where missing."""


class DatasetBuilder:
    """One dataset of an event, until the event is built.

    A facet that is put into `facets` here belongs to this dataset alone; what facet builders make goes to
    every dataset of the event. `ids` are the expression ids of the plan's columns that come from, or go to,
    this dataset: they tie its numbers and its columns to it.
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        facets: Mapping[str, Facet] | None = None,
        *,
        ids: Iterable[int] = (),
        node: int | None = None,
        is_guess: bool = False,
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.facets: dict[str, Facet] = dict(facets or {})
        self.ids: set[int] = set(ids)
        self.nodes: set[int] = set() if node is None else {node}
        self.places: set[tuple[int, int]] = set()
        """Nodes as (id of the SQL execution, number of the node); known when the event is put together."""
        self.locations: set[str] = set()
        self.is_guess = is_guess
        """Whether the place is what Spark does by default, and a nested command may know it better."""
        self.is_given = False
        """Whether the program named it, and not a path or a connection: its name is told as it is."""
        self.is_conditional = False
        """Whether it is an output only if a nested command writes it: mode `ignore`."""

    @property
    def id(self) -> DatasetId:
        return DatasetId(self.namespace, self.name)

    @property
    def own_facets(self) -> dict[str, Facet]:
        """The facets of the dataset in its role, as input or as output."""
        raise NotImplementedError

    def absorb(self, other: DatasetBuilder) -> None:
        """Take over what another description of the same dataset knows; what is known already stays."""
        for name, facet in other.facets.items():
            self.facets.setdefault(name, facet)
        for name, facet in other.own_facets.items():
            self.own_facets.setdefault(name, facet)
        self.ids |= other.ids
        self.nodes |= other.nodes
        self.places |= other.places
        self.locations |= other.locations

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.namespace!r}, {self.name!r})"


class InputDatasetBuilder(DatasetBuilder):
    """A dataset that is read."""

    def __init__(
        self,
        namespace: str,
        name: str,
        facets: Mapping[str, Facet] | None = None,
        *,
        input_facets: Mapping[str, Facet] | None = None,
        ids: Iterable[int] = (),
        node: int | None = None,
        is_guess: bool = False,
    ) -> None:
        super().__init__(namespace, name, facets, ids=ids, node=node, is_guess=is_guess)
        self.input_facets: dict[str, Facet] = dict(input_facets or {})

    @property
    def own_facets(self) -> dict[str, Facet]:
        return self.input_facets


class OutputDatasetBuilder(DatasetBuilder):
    """A dataset that is written, or whose life changes: created, altered, dropped."""

    def __init__(
        self,
        namespace: str,
        name: str,
        facets: Mapping[str, Facet] | None = None,
        *,
        output_facets: Mapping[str, Facet] | None = None,
        ids: Iterable[int] = (),
        node: int | None = None,
        is_guess: bool = False,
    ) -> None:
        super().__init__(namespace, name, facets, ids=ids, node=node, is_guess=is_guess)
        self.output_facets: dict[str, Facet] = dict(output_facets or {})
        self.hidden: frozenset[str] = frozenset()
        """Columns of the query that do not arrive in the dataset."""

    @property
    def own_facets(self) -> dict[str, Facet]:
        return self.output_facets


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

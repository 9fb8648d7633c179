"""Builders of datasets and facets, the factory that creates them, and the context that holds them.

A package registers a factory under the entry point group `headwater.lineage`, or a setting names it:

    class Factory(OpenLineageEventListenerFactory):
        def create_input_dataset_builder(self):
            return [MyTables()]

    class MyTables(AbstractInputDatasetBuilder[HadoopRDD]):
        def apply(self, event):
            return [InputDatasetBuilder("warehouse://main", event.paths[0])]

For each event of a run, every builder is offered every object of the run: QueryExecution, ActiveJob, Stage,
StageInfo, each RDD of the chains (spark_objects.py), and the Run. A builder is called for the objects for
which `is_defined_at` returns true. Builders run on lineage's own threads, never on Spark's or the user's. A
builder that raises, or does not return in time, loses its own result; the event reports it in
`extractionError` (G10).
"""

from __future__ import annotations

import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_args, get_origin

from headwater.lineage.jvm.plan import Attribute
from headwater.lineage.naming.names import DatasetId

if TYPE_CHECKING:
    from pyspark import SparkContext

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
    "OpenLineageContext",
    "OpenLineageEventListenerFactory",
    "OutputDatasetBuilder",
    "QueryPlanVisitor",
]


@lru_cache(maxsize=1024)
def type_argument(cls: type, base: type) -> tuple[type, ...] | None:
    """The classes that `cls` passes as the first parameter of the generic class `base`, through any number of
    intermediate classes; several for a union, None if the parameter is left open (every object matches)."""
    found = _resolved(cls, base)
    return None if found is None else _classes(found)


def _resolved(cls: type, base: type) -> Any:
    """The argument itself: a class, a union, a TypeVar that is still open; None without one."""
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
    """A dataset of an event that is still being built; inputs and outputs are its two roles.

    Facets in `facets` belong to this dataset alone; the facets of facet builders go to every dataset of the
    event. `expr_ids` are the expression ids of the plan's columns that come from, or go to, this dataset:
    they assign statistics and column lineage to it.
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        facets: Mapping[str, Facet] | None = None,
        *,
        expr_ids: Iterable[int] = (),
        node: int | None = None,
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.facets: dict[str, Facet] = dict(facets or {})
        self.role_facets: dict[str, Facet] = {}
        """The facets of the dataset in its role: `inputFacets` or `outputFacets` of the event."""
        self.expr_ids: set[int] = set(expr_ids)
        self.nodes: set[int] = set() if node is None else {node}
        # Lineage itself sets the fields below; they are not part of the extension interface.
        self.plan_nodes: set[tuple[int, int]] = set()
        """Nodes as (id of the SQL execution, number of the node)."""
        self.locations: set[str] = set()
        """Paths that trimming has shortened to the name."""
        self.location_is_default = False
        """The location was derived from the warehouse directory; a nested command's path replaces it."""
        self.plan_version = ""
        """The version that the plan has for it: of an output the one before the write."""
        self.table_name = ""
        """The name that a table has in the reports of its format: `catalog.database.table`."""
        self.query: Any = None
        """The table's name in a query that its database runs, and the query (datasets/jdbc_query.py)."""
        self.unknown = ""
        """Why the dataset has no name; it is then reported in `extractionError` instead of sent."""
        self.named_by_program = False
        """The program declared the dataset; its name is not trimmed."""

    @property
    def id(self) -> DatasetId:
        return DatasetId(self.namespace, self.name)

    @id.setter
    def id(self, id: DatasetId) -> None:
        self.namespace, self.name = id

    def as_input(self, node: Node | None = None, columns: Sequence[Attribute] = ()) -> InputDatasetBuilder:
        """The dataset as an input that `node` reads."""
        expr_ids = [column.id for column in columns]
        made = InputDatasetBuilder(*self.id, self.facets, expr_ids=expr_ids, node=node.id if node else None)
        made.unknown, made.table_name = self.unknown, self.table_name
        made.plan_version = self.plan_version
        if self.query is not None and node is not None:
            made.queries = {node.id: self.query}
        return made

    def as_output(self, node: Node | None = None) -> OutputDatasetBuilder:
        """The dataset as an output that `node` writes."""
        made = OutputDatasetBuilder(*self.id, self.facets, node=node.id if node else None)
        made.location_is_default = self.location_is_default
        made.unknown, made.table_name = self.unknown, self.table_name
        made.plan_version = self.plan_version
        return made

    def merge_from(self, other: DatasetBuilder) -> None:
        """Add the facets and nodes of another description of the same dataset; existing facets stay."""
        self.facets = {**other.facets, **self.facets}
        self.role_facets = {**other.role_facets, **self.role_facets}
        self.expr_ids |= other.expr_ids
        self.table_name = self.table_name or other.table_name
        self.nodes |= other.nodes
        self.plan_nodes |= other.plan_nodes
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
        expr_ids: Iterable[int] = (),
        node: int | None = None,
    ) -> None:
        super().__init__(namespace, name, facets, expr_ids=expr_ids, node=node)
        self.role_facets = dict(input_facets or {})
        self.queries: dict[Any, Any] = {}
        """The queries by which nodes read the dataset; lineage itself sets them."""

    @property
    def input_facets(self) -> dict[str, Facet]:
        """The facets of the dataset as an input."""
        return self.role_facets


class OutputDatasetBuilder(DatasetBuilder):
    """A dataset that is written, created, altered or dropped."""

    def __init__(
        self,
        namespace: str,
        name: str,
        facets: Mapping[str, Facet] | None = None,
        *,
        output_facets: Mapping[str, Facet] | None = None,
        expr_ids: Iterable[int] = (),
        node: int | None = None,
    ) -> None:
        super().__init__(namespace, name, facets, expr_ids=expr_ids, node=node)
        self.role_facets = dict(output_facets or {})
        self.only_if_written = False
        """An output only if a nested command writes it: save mode `ignore`."""
        self.columns_not_written: frozenset[str] = frozenset()
        """Columns of the query that the dataset does not receive."""

    @property
    def output_facets(self) -> dict[str, Facet]:
        """The facets of the dataset as an output."""
        return self.role_facets


Consumer = Callable[[str, Facet], None]
"""Takes the key of a facet and the facet."""

T = TypeVar("T")
F = TypeVar("F")
D = TypeVar("D", bound=DatasetBuilder)


class _Partial(ABC, Generic[T]):
    """Is defined for objects of the type argument T; for every object if T is left open."""

    def is_defined_at(self, event: object) -> bool:
        """Whether the builder is called for `event`. By default: whether it is an instance of T."""
        classes = type_argument(type(self), _Partial)
        return classes is None or isinstance(event, classes)


class CustomFacetBuilder(_Partial[T], Generic[T, F]):
    """Builds facets of type F from objects of type T."""

    @abstractmethod
    def accept(self, event: T, consumer: Consumer) -> None:
        """Call `consumer` with the key and the facet, for none, one or several facets."""


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
    """Builds inputs from objects of type T. Facets for one of them alone are set here."""

    @abstractmethod
    def apply(self, event: T) -> Iterable[InputDatasetBuilder]:
        """The inputs that `event` reads."""


class AbstractOutputDatasetBuilder(_Partial[T]):
    """Builds outputs from objects of type T."""

    @abstractmethod
    def apply(self, event: T) -> Iterable[OutputDatasetBuilder]:
        """The outputs that `event` writes."""


class QueryPlanVisitor(ABC, Generic[D]):
    """Builds datasets from nodes of a query's analyzed plan, chosen by the names of their JVM classes.

    A visitor that needs another node's datasets calls `context.inputs_of(node)` in `apply`, not when it is
    created: other factories may not have been loaded then.
    """

    node_classes: ClassVar[Collection[str]] = ()
    """Names of classes, with or without their package."""

    def is_defined_at(self, node: Node) -> bool:
        """Whether the visitor is called for the node. By default: whether its class is in `node_classes`."""
        return node.cls in self.node_classes or node.cls.rpartition(".")[2] in self.node_classes

    @abstractmethod
    def apply(self, node: Node) -> Iterable[D]:
        """The datasets that the node reads or writes."""


class OpenLineageContext:
    """The builders of all factories, in nine live collections: complete once every factory is loaded."""

    def __init__(self, spark_context: SparkContext | None = None) -> None:
        self.spark_context = spark_context
        self.input_dataset_query_plan_visitors: list[QueryPlanVisitor[InputDatasetBuilder]] = []
        self.output_dataset_query_plan_visitors: list[QueryPlanVisitor[OutputDatasetBuilder]] = []
        self.input_dataset_builders: list[AbstractInputDatasetBuilder[Any]] = []
        self.output_dataset_builders: list[AbstractOutputDatasetBuilder[Any]] = []
        self.input_dataset_facet_builders: list[CustomFacetBuilder[Any, Any]] = []
        self.output_dataset_facet_builders: list[CustomFacetBuilder[Any, Any]] = []
        self.dataset_facet_builders: list[CustomFacetBuilder[Any, Any]] = []
        self.run_facet_builders: list[CustomFacetBuilder[Any, Any]] = []
        self.job_facet_builders: list[CustomFacetBuilder[Any, Any]] = []
        self._inputs_of: Callable[[Node], list[InputDatasetBuilder]] = lambda node: []
        self._outputs_of: Callable[[Node], list[OutputDatasetBuilder]] = lambda node: []

    def inputs_of(self, node: Node) -> list[InputDatasetBuilder]:
        """The datasets that a node reads, from all visitors; for visitors that delegate."""
        return self._inputs_of(node)

    def outputs_of(self, node: Node) -> list[OutputDatasetBuilder]:
        """The datasets that a node writes, from all visitors."""
        return self._outputs_of(node)

    def _connect(
        self,
        inputs_of: Callable[[Node], list[InputDatasetBuilder]],
        outputs_of: Callable[[Node], list[OutputDatasetBuilder]],
    ) -> None:
        """Connect the context to the visits of plans; for lineage itself."""
        self._inputs_of, self._outputs_of = inputs_of, outputs_of


class OpenLineageEventListenerFactory:
    """Creates the builders of one extension. Created once, without arguments.

    `set_open_lineage_context` is called first, then each `create_…` method exactly once per application, in
    no guaranteed order. While they run, the collections of the context are not yet complete. By default all
    of them return nothing.
    """

    def set_open_lineage_context(self, context: OpenLineageContext) -> None:
        """Receive the context; builders that delegate to others keep it."""

    def create_input_dataset_query_plan_visitors(self) -> Collection[QueryPlanVisitor[InputDatasetBuilder]]:
        """Visitors for inputs of plans."""
        return ()

    def create_output_dataset_query_plan_visitors(self) -> Collection[QueryPlanVisitor[OutputDatasetBuilder]]:
        """Visitors for outputs of plans."""
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

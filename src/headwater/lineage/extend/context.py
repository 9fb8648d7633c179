"""What builders can reach, and how all of them are made: once, through one door."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.errors import ExtensionError
from headwater.lineage.extend.builders import (
    AbstractInputDatasetBuilder,
    AbstractOutputDatasetBuilder,
    CustomFacetBuilder,
    DatasetBuilder,
    InputDatasetBuilder,
    OpenLineageEventListenerFactory,
    OutputDatasetBuilder,
    QueryPlanVisitor,
)
from headwater.lineage.extend.isolation import Guard, class_name
from headwater.lineage.naming.catalogs import Surroundings
from headwater.lineage.naming.names import DatasetId
from headwater.lineage.naming.normalize import NamespaceResolvers, Trimming
from headwater.lineage.runs import ExtractionError
from headwater.lineage.settings import LineageSettings

if TYPE_CHECKING:
    from pyspark import SparkContext

    from headwater.lineage.datasets.node_lineage import Asking
    from headwater.lineage.jvm.plan import Node, Plan

__all__ = ["Extensions", "OpenLineageContext", "Quick", "factories_of"]

logger = logging.getLogger(__name__)

GROUP = "headwater.lineage"
D = TypeVar("D", bound=DatasetBuilder)


class Quick:
    """A visitor whose `is_defined_at` is Headwater's own, though what it calls then is not."""


class OpenLineageContext:
    """The collections of all builders, alive: they fill while factories are asked, and are whole then."""

    def __init__(
        self, settings: LineageSettings, surroundings: Surroundings, spark_context: SparkContext | None = None
    ) -> None:
        self.settings = settings
        self.surroundings = surroundings
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
        self.plan: Plan | None = None
        """The plan whose nodes are being visited; for visitors alone."""
        self.asking: Asking | None = None
        """Asks nodes that tell their own lineage; None where there is no agent."""
        self.is_end = False
        """Whether the run that is being told has ended."""
        self._own: set[int] = set()
        # Half of the time is for others: what is ours must still fit in after somebody has hung.
        self.guard = Guard(settings.deadline_millis / 2000)
        self._trimming = Trimming(
            disabled=settings.dataset_disabled_trimmers,
            extra=settings.dataset_extra_trimmers,
            remove_pattern=settings.dataset_remove_path or "",
        )
        self._resolvers = NamespaceResolvers(settings.dataset_namespace_resolvers)

    def identify(self, dataset: DatasetId, *, is_given: bool = False) -> DatasetId:
        """The name under which a dataset is told, wherever it is told: trimmed, its namespace resolved.

        One that a program gave is its own to choose: `is_given` names are not trimmed.
        """
        trimmed = dataset if is_given else self._trimming.trim(dataset)
        return DatasetId(self._resolvers.resolve(trimmed.namespace), trimmed.name)

    def inputs_of(self, node: Node) -> list[InputDatasetBuilder]:
        """What all visitors say that a node reads; for visitors that delegate."""
        return self.visit(self.input_dataset_query_plan_visitors, [node])

    def outputs_of(self, node: Node) -> list[OutputDatasetBuilder]:
        """What all visitors say that a node writes."""
        return self.visit(self.output_dataset_query_plan_visitors, [node])

    def is_own(self, builder: object) -> bool:
        """Whether it came from Headwater itself, and may be trusted with the thread."""
        return id(builder) in self._own

    def adopt(self, builder: object) -> None:
        """Trust this one: it is Headwater's."""
        self._own.add(id(builder))

    def ask(self, builder: object, function: Callable[[], list[Any]]) -> list[Any]:
        """Call a builder, our own at once, somebody else's under guard; nothing if it fails."""
        if not self.is_own(builder):
            return self.guard.call(builder, function, [])
        try:
            return function()
        except Exception as error:
            logger.debug("A builder failed", exc_info=True)
            self.guard.errors.append(ExtractionError(class_name(builder), f"{type(error).__name__}: {error}"))
            return []

    def visit(self, visitors: Sequence[QueryPlanVisitor[D]], nodes: Sequence[Node]) -> list[D]:
        """The datasets of nodes. What an extension says of a node stands instead of what we would say."""
        found: list[D] = []
        taken: set[int] = set()
        for is_own in (False, True):
            for visitor in visitors:
                if self.is_own(visitor) is is_own:
                    found += self._visit(visitor, nodes, taken, is_own)
        return found

    def _visit(
        self, visitor: QueryPlanVisitor[D], nodes: Sequence[Node], taken: set[int], is_own: bool
    ) -> list[D]:
        if isinstance(visitor, Quick) and not any(map(visitor.is_defined_at, nodes)):
            return []  # no reason to change threads for that

        def apply() -> list[tuple[Node, list[D]]]:
            wanted = [node for node in nodes if visitor.is_defined_at(node)]
            return [
                (node, list(visitor.apply(node))) for node in wanted if not is_own or node.id not in taken
            ]

        found: list[D] = []
        for node, made in self.ask(visitor, apply):
            for each in made:
                if not each.nodes and not is_own:  # ours say which they mean, and whether any
                    each.nodes.add(node.id)
                if not each.ids and not is_own:
                    each.ids |= {column.id for column in node.out}
            if made and not is_own:
                taken.add(node.id)
            found += made
        return found


class Extensions:
    """Asks each factory for its builders, each method exactly once, and fills the context with them."""

    _METHODS = (
        ("create_input_dataset_query_plan_visitors", "input_dataset_query_plan_visitors"),
        ("create_output_dataset_query_plan_visitors", "output_dataset_query_plan_visitors"),
        ("create_input_dataset_builder", "input_dataset_builders"),
        ("create_output_dataset_builder", "output_dataset_builders"),
        ("create_input_dataset_facet_builders", "input_dataset_facet_builders"),
        ("create_output_dataset_facet_builders", "output_dataset_facet_builders"),
        ("create_dataset_facet_builders", "dataset_facet_builders"),
        ("create_run_facet_builders", "run_facet_builders"),
        ("create_job_facet_builders", "job_facet_builders"),
    )

    def __init__(
        self,
        context: OpenLineageContext,
        own: Iterable[OpenLineageEventListenerFactory],
        others: Iterable[Callable[[], OpenLineageEventListenerFactory]] = (),
    ) -> None:
        self.errors: list[ExtractionError] = []
        self.has_foreign = False
        for factory in own:
            self._fill(context, factory, is_own=True)
        for make in others:
            try:
                self._fill(context, make(), is_own=False)
                self.has_foreign = True
            except Exception as error:
                self._failed(make, error)

    def _fill(
        self, context: OpenLineageContext, factory: OpenLineageEventListenerFactory, *, is_own: bool
    ) -> None:
        factory.set_open_lineage_context(context)
        for method, collection in self._METHODS:
            try:
                made = list(getattr(factory, method)())
            except Exception as error:
                self._failed(factory, error, f".{method}")
                continue
            if is_own:
                for each in made:
                    context.adopt(each)
            getattr(context, collection).extend(made)

    def _failed(self, factory: Any, error: Exception, where: str = "") -> None:
        name = (
            class_name(factory) if not callable(factory) or isinstance(factory, type) else repr(factory)
        ) + where
        text = f"{type(error).__name__}: {error}"
        logger.warning("Lineage extension %s is not used: %s", name, text)
        self.errors.append(ExtractionError(name, text))


def factories_of(
    settings: LineageSettings,
) -> tuple[list[Callable[[], OpenLineageEventListenerFactory]], list[ExtractionError]]:
    """The factories of installed packages by entry point, then those that settings name; and what failed."""
    from headwater.extensions import load_all

    loaded, failures = load_all(GROUP)
    errors = [ExtractionError(GROUP, str(failure)) for failure in failures]
    found: list[Callable[[], OpenLineageEventListenerFactory]] = list(loaded.values())
    for name in settings.extensions:
        try:
            found.append(_import(name))
        except Exception as error:
            errors.append(ExtractionError(name, f"{type(error).__name__}: {error}"))
    for each in errors:
        logger.warning("Lineage extension %s is not used: %s", each.task, each.text)
    return found, errors


def _import(name: str) -> Callable[[], OpenLineageEventListenerFactory]:
    from importlib import import_module

    module, _, attribute = name.replace(":", ".").rpartition(".")
    found = getattr(import_module(module), attribute)
    if not callable(found):
        raise ExtensionError(f"{name} is not a class.", hint="Name a factory class by its dotted name.")
    made: Callable[[], OpenLineageEventListenerFactory] = found
    return made

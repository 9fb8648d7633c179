"""The context that extensions receive: all builders, and the datasets of plan nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.lineage.extend.builders import (
    AbstractInputDatasetBuilder,
    AbstractOutputDatasetBuilder,
    CustomFacetBuilder,
    InputDatasetBuilder,
    OutputDatasetBuilder,
    QueryPlanVisitor,
)

if TYPE_CHECKING:
    from pyspark import SparkContext

    from headwater.lineage.jvm.plan import Node

__all__ = ["OpenLineageContext"]


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

    def _set_visits(
        self,
        inputs_of: Callable[[Node], list[InputDatasetBuilder]],
        outputs_of: Callable[[Node], list[OutputDatasetBuilder]],
    ) -> None:
        """Lineage connects the context to its own walk over plans."""
        self._inputs_of, self._outputs_of = inputs_of, outputs_of

"""Datasets in the making: a name, and facets that are still being added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwater.lineage.naming.rules import DatasetId

__all__ = ["DatasetBuilder", "Facet", "InputDatasetBuilder", "OutputDatasetBuilder"]

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

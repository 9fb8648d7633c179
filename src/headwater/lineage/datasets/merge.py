"""Several descriptions of a dataset become one, under the name it is told by; nested commands are folded."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from headwater.lineage.extend.builders import DatasetBuilder, InputDatasetBuilder, OutputDatasetBuilder
from headwater.lineage.naming.names import DatasetId

if TYPE_CHECKING:
    from headwater.lineage.extend.context import OpenLineageContext

__all__ = ["merged_inputs", "merged_outputs"]

D = TypeVar("D", bound=DatasetBuilder)

# Bookkeeping that lies inside a table's own folder.
_INTERNAL = ("/_delta_log", "/_spark_metadata")


def merged_inputs(
    found: Iterable[tuple[int, InputDatasetBuilder]], context: OpenLineageContext
) -> list[InputDatasetBuilder]:
    """Each input once."""
    return _unique([each for _, each in _named(found, context)])


def merged_outputs(
    found: Iterable[tuple[int, OutputDatasetBuilder]], context: OpenLineageContext
) -> list[OutputDatasetBuilder]:
    """Each output once. `found` is outermost first: what an outer command guesses, a nested one knows."""
    named = _named(found, context)
    known = [(number, each) for number, each in named if not each.is_guess and not each.is_conditional]
    kept: list[OutputDatasetBuilder] = [each for _, each in known]
    for number, guess in named:
        if not guess.is_guess and not guess.is_conditional:
            continue
        inner = [each for other, each in known if other != number and _may_be(guess, each)]
        inner = inner or [each for other, each in known if other != number]
        if len({each.id for each in inner}) == 1:
            inner[0].absorb(guess)  # the place of the inner one, the names of the outer one
            if change := guess.facets.get("lifecycleStateChange"):
                inner[0].facets["lifecycleStateChange"] = change
        elif not guess.is_conditional:
            kept.append(guess)
    return _unique(kept)


def _named(found: Iterable[tuple[int, D]], context: OpenLineageContext) -> list[tuple[int, D]]:
    """Copies, since an event adds to them, under the names that are told."""
    made: list[tuple[int, D]] = []
    for number, each in found:
        if any(part in each.name for part in _INTERNAL):
            continue
        one = copy.copy(each)
        one.facets = dict(each.facets)
        one.ids, one.nodes, one.locations = set(each.ids), set(each.nodes), set(each.locations)
        one.places = {(number, node) for node in each.nodes}
        if isinstance(one, InputDatasetBuilder):
            one.input_facets = dict(one.input_facets)
        elif isinstance(one, OutputDatasetBuilder):
            one.output_facets = dict(one.output_facets)
        id = context.identify(DatasetId(each.namespace, each.name), is_given=each.is_given)
        if id.name != each.name:
            one.locations.add(each.name)
        one.namespace, one.name = id
        made.append((number, one))
    return made


def _may_be(guess: DatasetBuilder, known: DatasetBuilder) -> bool:
    return guess.id == known.id or bool(_names(guess) & _names(known))


def _names(dataset: DatasetBuilder) -> set[tuple[str, str]]:
    links = (dataset.facets.get("symlinks") or {}).get("identifiers", ())
    return {(str(link["namespace"]), str(link["name"])) for link in links}


def _unique(datasets: Iterable[D]) -> list[D]:
    found: dict[DatasetId, D] = {}
    for each in datasets:
        if each.id in found:
            found[each.id].absorb(each)
        else:
            found[each.id] = each
    return list(found.values())

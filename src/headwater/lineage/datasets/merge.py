"""Merges several descriptions of one dataset, under its normalized name, also those of nested commands."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from typing import TypeVar

from headwater.lineage.extend.builders import DatasetBuilder, InputDatasetBuilder, OutputDatasetBuilder
from headwater.lineage.naming.names import DatasetId
from headwater.lineage.naming.normalize import NameNormalizer

D = TypeVar("D", bound=DatasetBuilder)

# Bookkeeping files inside a table's folder.
_INTERNAL = re.compile(r"/(_delta_log|_spark_metadata)(/|\Z)")


def merged_inputs(
    found: Iterable[tuple[int, InputDatasetBuilder]], names: NameNormalizer
) -> list[InputDatasetBuilder]:
    """Each input once."""
    return _unique([each for _, each in _named(found, names)])


def merged_outputs(
    found: Iterable[tuple[int, OutputDatasetBuilder]], names: NameNormalizer
) -> list[OutputDatasetBuilder]:
    """Each output once. `found` is outermost first: a nested command's path replaces a default location.

    Only an output with the same name or the same symlink is the same table: a job may write others beside it.
    """
    named = _named(found, names)
    known = [
        (number, each) for number, each in named if not each.location_is_default and not each.only_if_written
    ]
    kept: list[OutputDatasetBuilder] = [each for _, each in known]
    for number, outer in named:
        if not outer.location_is_default and not outer.only_if_written:
            continue
        inner = [each for other, each in known if other != number and _may_be(outer, each)]
        if len({each.id for each in inner}) == 1:
            inner[0].merge_from(outer)  # the location of the inner one, the names of the outer one
            if change := outer.facets.get("lifecycleStateChange"):
                inner[0].facets["lifecycleStateChange"] = change
        elif not outer.only_if_written:
            kept.append(outer)
    return _unique(kept)


def _named(found: Iterable[tuple[int, D]], names: NameNormalizer) -> list[tuple[int, D]]:
    """Copies under normalized names; the event adds facets to them."""
    made: list[tuple[int, D]] = []
    for number, each in found:
        if each.unknown or _INTERNAL.search(each.name):
            continue
        one = copy.copy(each)
        one.facets, one.role_facets = dict(each.facets), dict(each.role_facets)
        one.expr_ids, one.nodes, one.locations = set(each.expr_ids), set(each.nodes), set(each.locations)
        one.plan_nodes = {(number, node) for node in each.nodes}
        if isinstance(one, InputDatasetBuilder):
            one.queries = {(number, node): query for node, query in one.queries.items()}
        one.id = names.normalize(each.id, trim=not each.named_by_program)
        if one.name != each.name:
            one.locations.add(each.name)
        made.append((number, one))
    return made


def _may_be(outer: DatasetBuilder, known: DatasetBuilder) -> bool:
    return outer.id == known.id or bool(_names(outer) & _names(known))


def _names(dataset: DatasetBuilder) -> set[tuple[str, str]]:
    links = (dataset.facets.get("symlinks") or {}).get("identifiers", ())
    return {(str(link["namespace"]), str(link["name"])) for link in links}


def _unique(datasets: Iterable[D]) -> list[D]:
    found: dict[DatasetId, D] = {}
    for each in datasets:
        if each.id in found:
            known = found[each.id]
            known.merge_from(each)
            if isinstance(known, InputDatasetBuilder) and isinstance(each, InputDatasetBuilder):
                known.queries |= each.queries
        else:
            found[each.id] = each
    return list(found.values())

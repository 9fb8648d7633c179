"""Column lineage as facets: `columnLineage` of the spec, and the newer explicit `lineage`."""

from __future__ import annotations

from typing import Any

from headwater.lineage.columns.edges import Transformation
from headwater.lineage.columns.lineage import ColumnLineage, InputColumn

_SPEC = "https://openlineage.io/spec/facets"
COLUMN_LINEAGE_URL = f"{_SPEC}/1-2-0/ColumnLineageDatasetFacet.json#/$defs/ColumnLineageDatasetFacet"
LINEAGE_URL = f"{_SPEC}/1-0-0/LineageFacet.json#/$defs/LineageDatasetFacet"


def column_lineage_facet(lineage: ColumnLineage, producer: str) -> dict[str, Any]:
    """The facet of the specification; gaps are in `unknown`, omissions in `cut` (G11)."""
    names = _Names(explicit=False)
    facet: dict[str, Any] = {
        "_producer": producer,
        "_schemaURL": COLUMN_LINEAGE_URL,
        "fields": {
            name: {"inputFields": names.inputs(inputs, lineage.texts.get(name, ""))}
            for name, inputs in lineage.fields.items()
        },
    }
    if lineage.dataset:
        facet["dataset"] = names.inputs(lineage.dataset, "")
    return _remarks(facet, lineage)


def explicit_lineage_facet(lineage: ColumnLineage, producer: str) -> dict[str, Any]:
    """The same edges as the facet `lineage` of a dataset, which lists sources as entities."""
    names = _Names(explicit=True)
    facet: dict[str, Any] = {
        "_producer": producer,
        "_schemaURL": LINEAGE_URL,
        "inputs": names.inputs(lineage.dataset, ""),
        "fields": {
            name: {"inputs": names.inputs(inputs, lineage.texts.get(name, ""))}
            for name, inputs in lineage.fields.items()
        },
    }
    return _remarks(facet, lineage)


def _remarks(facet: dict[str, Any], lineage: ColumnLineage) -> dict[str, Any]:
    if lineage.gaps:
        facet["unknown"] = [{"what": gap.what, "reason": gap.reason} for gap in lineage.gaps[:100]]
    if lineage.cut:
        facet["cut"] = lineage.cut
    return facet


class _Names:
    """Inputs as JSON objects; equal ones are one object, since wide tables have millions of equal edges."""

    def __init__(self, *, explicit: bool) -> None:
        self._explicit = explicit
        self._inputs: dict[tuple[InputColumn, str], dict[str, Any]] = {}
        self._lists: dict[int, list[dict[str, Any]]] = {}

    def inputs(self, inputs: list[InputColumn], text: str) -> list[dict[str, Any]]:
        if text:
            return [self._input(one, text) for one in inputs]
        known = self._lists.get(id(inputs))
        if known is None:
            known = self._lists[id(inputs)] = [self._input(one, "") for one in inputs]
        return known

    def _input(self, one: InputColumn, text: str) -> dict[str, Any]:
        key = (one, text)
        made = self._inputs.get(key)
        if made is None:
            made = {"namespace": one.dataset.namespace, "name": one.dataset.name}
            if self._explicit:
                made["type"] = "DATASET"
            made["field"] = one.field
            made["transformations"] = [_transformation(kind, text) for kind in one.transformations]
            if one.pointer:
                made["jsonPointer"] = one.pointer
            self._inputs[key] = made
        return made


def _transformation(kind: Transformation, text: str) -> dict[str, Any]:
    description = kind.note or (text if kind.subtype != "IDENTITY" else "")
    return {
        "type": "DIRECT" if kind.direct else "INDIRECT",
        "subtype": kind.subtype,
        **({"description": description} if description else {}),
        "masking": kind.masking,
    }

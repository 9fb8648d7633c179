"""Facets as dicts: producer, schema and fields.

The versions of the schemas are those of the openlineage-python that is installed.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

import attr

from headwater import __version__

PRODUCER = f"urn:headwater:lineage:{__version__}"
_CORE = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/"
SCHEMA_URL = f"{_CORE}RunEvent"
_BASES = {
    "run": "RunFacet",
    "job": "JobFacet",
    "dataset": "DatasetFacet",
    "input": "InputDatasetFacet",
    "output": "OutputDatasetFacet",
}


@lru_cache(maxsize=64)
def _schema(name: str) -> str:
    module, _, cls = name.partition(".")
    found = getattr(import_module(f"openlineage.client.generated.{module}"), cls)
    return str(found._get_schema())


def standard(name: str, /, **fields: Any) -> dict[str, Any]:
    """A facet of the specification. `name` is `module.Class` in openlineage-python; None is left out."""
    facet: dict[str, Any] = {"_producer": PRODUCER, "_schemaURL": _schema(name)}
    facet.update((key, value) for key, value in fields.items() if value is not None)
    return facet


def custom(container: str, /, **fields: Any) -> dict[str, Any]:
    """A facet outside the specification, for `run`, `job`, `dataset`, `input` or `output`."""
    facet: dict[str, Any] = {"_producer": PRODUCER, "_schemaURL": _CORE + _BASES[container]}
    facet.update((key, value) for key, value in fields.items() if value is not None)
    return facet


def as_dict(facet: Any, container: str) -> dict[str, Any]:
    """A builder's facet as a dict: a class of openlineage-python, any attrs class, or a mapping."""
    if attr.has(type(facet)):
        from openlineage.client.serde import Serde

        found: Any = Serde.to_dict(facet)
    else:
        found = dict(facet)
    found.setdefault("_producer", PRODUCER)
    found.setdefault("_schemaURL", _CORE + _BASES[container])
    return {str(key): value for key, value in found.items() if value is not None}

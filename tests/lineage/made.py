"""Small events and runs for tests that need no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openlineage.client.facet_v2 import schema_dataset
from openlineage.client.serde import Serde
from openlineage.client.uuid import generate_new_uuid

from headwater.lineage.facets.make import PRODUCER
from headwater.lineage.runs import Run, RunKind

__all__ = ["event", "run", "schema_facet"]


def event(
    state: str = "COMPLETE", *, name: str = "job", inputs: Sequence[str] = (), outputs: Sequence[str] = ()
) -> dict[str, Any]:
    """A valid event about datasets of these names."""
    return {
        "eventTime": "2026-01-01T00:00:00Z",
        "eventType": state,
        "producer": PRODUCER,
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": str(generate_new_uuid()), "facets": {}},
        "job": {"namespace": "default", "name": name, "facets": {}},
        "inputs": [{"namespace": "file", "name": each} for each in inputs],
        "outputs": [{"namespace": "file", "name": each} for each in outputs],
    }


def schema_facet(columns: int) -> dict[str, Any]:
    """A schema of so many columns."""
    fields = [
        schema_dataset.SchemaDatasetFacetFields(name=f"c{each}", type="long") for each in range(columns)
    ]
    return Serde.to_dict(schema_dataset.SchemaDatasetFacet(fields=fields, producer=PRODUCER))


def run(kind: RunKind = RunKind.SQL) -> Run:
    """A run that has just begun."""
    return Run(generate_new_uuid(), kind, 1, None)

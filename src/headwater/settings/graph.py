"""Settings of the graph of lineage."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headwater.settings.fields import Bytes, Count, doc

__all__ = ["GraphSettings"]


class GraphSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The graph of jobs, runs, datasets and columns that lineage events are folded into."""

    enabled: Annotated[
        bool | None,
        doc(
            "Fold lineage events and serve the graph; null: `headwater up` does, `headwater serve` does not."
        ),
    ] = None
    path: Annotated[str, doc("Folder of the graph; empty: `graph` in `data_dir`.")] = ""
    retention_days: Annotated[
        float,
        msgspec.Meta(gt=0),
        doc("Runs, edges and datasets that no event mentioned for so long are removed."),
    ] = 90.0
    max_runs_per_job: Annotated[Count, doc("Runs kept of one job; beyond it the oldest are removed.")] = 1_000
    max_schema_versions: Annotated[Count, doc("Schemas kept of one dataset.")] = 100
    max_facet_bytes: Annotated[Bytes, doc("Largest facet that is kept; of a larger one only its size.")] = (
        64 * 1024
    )
    batch_events: Annotated[Count, doc("Most events folded in one transaction.")] = 1_000

"""What a drawing shows of datasets: columns, failed checks, and the lines between them.

A drawing has some dozens of boxes of a graph that may have millions of columns, so edges between columns are
counted for each pair of datasets, and read one by one only where a box is open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import apsw
import msgspec
import orjson

from headwater.graph.ingest.untrusted_json import items, mapping
from headwater.graph.query.answers import Column, ColumnEdge, id_of_key, key_of_dataset
from headwater.graph.query.details import columns_of
from headwater.graph.query.trace import column_edge_counts, edges_of_datasets
from headwater.graph.store.database import rows_for

MAX_EDGES = 5_000  # of the open boxes, in each direction
MAX_OPEN_COLUMNS = 300  # of one open box


class EdgeCount(msgspec.Struct, frozen=True):
    """The number of edges from columns of one dataset to columns of another, and how many are direct."""

    source: str
    target: str
    total: int
    direct: int
    current: bool


class BoxDetails(msgspec.Struct):
    """The columns of one box. `failed_checks` are assertions about the data that failed in their last run."""

    columns: int = 0
    failed_checks: int = 0
    shown: list[Column] = []
    omitted: int = 0


class DrawingDetails(msgspec.Struct):
    """The boxes by key, the counts of edges between them, and the edges of the open ones."""

    boxes: dict[str, BoxDetails]
    counts: list[EdgeCount]
    edges: list[ColumnEdge]


_CHECKS = (
    "SELECT n.dataset, f.value FROM json_each(?1) AS j CROSS JOIN dataset_names n ON n.dataset = j.value"
    " JOIN facets f ON f.owner = n.id AND f.container IN (0, 1)"
    " AND f.key IN ('dataQualityAssertions', 'dataQualityMetrics') WHERE NOT f.deleted"
)


def drawing_details(
    connection: apsw.Connection, keys: Iterable[str], opened: Collection[str], with_columns: Collection[str]
) -> DrawingDetails:
    """The details of these datasets: of some with columns, of the opened ones with the edges at them."""
    ids = [id_of_key(key) for key in keys]
    open_ids = [id for id in ids if key_of_dataset(id) in opened]
    column_ids = [id for id in ids if key_of_dataset(id) in with_columns]
    boxes = {key_of_dataset(id): BoxDetails() for id in ids}
    for id, (known, omitted) in columns_of(connection, ids, 0).items():
        boxes[key_of_dataset(id)].columns = len(known) + omitted
    for id, (known, omitted) in columns_of(connection, column_ids, MAX_OPEN_COLUMNS).items():
        box = boxes[key_of_dataset(id)]
        box.shown, box.omitted = known, omitted
    for id, value in rows_for(connection, _CHECKS, ids):
        boxes[key_of_dataset(id)].failed_checks += failed_checks(mapping(orjson.loads(value)))
    counts = [
        EdgeCount(key_of_dataset(source), key_of_dataset(target), total, direct, bool(current))
        for source, target, total, direct, current in column_edge_counts(connection, ids)
    ]
    edges = edges_of_datasets(connection, open_ids, ids, MAX_EDGES) if open_ids else []
    return DrawingDetails(boxes, counts, edges)


def failed_checks(facet: dict[str, object]) -> int:
    """How many assertions of a facet failed."""
    return sum(each.get("success") is False for each in items(facet.get("assertions")))

"""A small shop: JSON events become a table, the table a report, and the report a mail."""

from __future__ import annotations

from typing import Any

from tests.graph.events import column_lineage, dataset, facet, flow, schema, source


def shop() -> list[dict[str, Any]]:
    """events → (load) → orders → (report) → daily → (mail, without column lineage) → letters."""
    orders = dataset(
        "orders",
        extra={"outputFacets": {"outputStatistics": facet(rowCount=10, size=1000, fileCount=2)}},
        schema=schema(id="bigint", price="double", email="string"),
        columnLineage=column_lineage(
            id=[source("events", "id")],
            price=[source("events", "amount", subtype="TRANSFORMATION")],
            email=[source("events", "mail", subtype="TRANSFORMATION", masking=True)],
        ),
    )
    daily = dataset(
        "daily",
        schema=schema(day="date", total="double"),
        columnLineage=column_lineage(
            whole=[source("orders", "id", "INDIRECT", "FILTER")],
            total=[source("orders", "price", subtype="AGGREGATION")],
            day=[source("calendar", "day")],
        ),
    )
    return [
        flow("load", ["events"], [orders], minute=1),
        flow("report", ["orders", "calendar"], [daily], minute=2),
        flow("mail", ["daily"], ["letters"], minute=3),
    ]

"""A small shop for the page: JSON events, two tables of the warehouse, and what others make of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.graph.events import facet

INCOMING = ("file", "/srv/headwater/events/incoming.tok=shop.log")
ORDERS = ("duckdb:///srv/headwater/warehouse.duckdb", "main.orders")
VIEWS = ("duckdb:///srv/headwater/warehouse.duckdb", "main.pageviews")
RATES = ("postgres://erp:5432", "finance.public.exchange_rates")
REVENUE = ("s3://shop-reports", "daily/revenue")
FUNNEL = ("s3://shop-reports", "daily/funnel")
BOARD = ("bigquery", "shop.marketing.board")

Dataset = tuple[str, str]
Origin = tuple[Dataset, str, str]  # a dataset, a column, and how: "IDENTITY", or "JOIN" for an indirect one

SCHEMAS: dict[Dataset, dict[str, str]] = {
    INCOMING: {
        "event_type": "string",
        "event_id": "string",
        "amount": "double",
        "currency": "string",
        "customer.id": "string",
        "customer.mail": "string",
        "customer.city": "string",
        "page.title": "string",
        "_timestamp": "string",
    },
    ORDERS: {
        "event_id": "VARCHAR",
        "amount": "DOUBLE",
        "currency": "VARCHAR",
        "customer_id": "VARCHAR",
        "customer_mail": "VARCHAR",
        "customer_city": "VARCHAR",
        "_timestamp": "TIMESTAMP",
    },
    VIEWS: {
        "event_id": "VARCHAR",
        "page_title": "VARCHAR",
        "customer_id": "VARCHAR",
        "_timestamp": "TIMESTAMP",
    },
    RATES: {"currency": "text", "day": "date", "to_euro": "numeric"},
    REVENUE: {"day": "date", "city": "string", "orders": "bigint", "revenue_euro": "double"},
    FUNNEL: {"day": "date", "views": "bigint", "orders": "bigint", "conversion": "double"},
    BOARD: {"day": "DATE", "revenue": "FLOAT64", "conversion": "FLOAT64"},
}


def columns(**origins: list[Origin]) -> dict[str, Any]:
    """The `columnLineage` facet."""
    return facet(
        fields={name: {"inputFields": [_origin(*each) for each in found]} for name, found in origins.items()}
    )


def _origin(dataset: Dataset, column: str, how: str) -> dict[str, Any]:
    kind = "DIRECT" if how in ("IDENTITY", "TRANSFORMATION", "AGGREGATION", "MASKED") else "INDIRECT"
    made = {"type": kind, "subtype": "TRANSFORMATION" if how == "MASKED" else how, "masking": how == "MASKED"}
    return {"namespace": dataset[0], "name": dataset[1], "field": column, "transformations": [made]}


LINEAGE = {
    ORDERS: columns(
        event_id=[(INCOMING, "event_id", "IDENTITY"), (INCOMING, "event_type", "FILTER")],
        amount=[(INCOMING, "amount", "TRANSFORMATION")],
        currency=[(INCOMING, "currency", "IDENTITY")],
        customer_id=[(INCOMING, "customer.id", "IDENTITY")],
        customer_mail=[(INCOMING, "customer.mail", "MASKED")],
        customer_city=[(INCOMING, "customer.city", "IDENTITY")],
        _timestamp=[(INCOMING, "_timestamp", "TRANSFORMATION")],
    ),
    VIEWS: columns(
        event_id=[(INCOMING, "event_id", "IDENTITY"), (INCOMING, "event_type", "FILTER")],
        page_title=[(INCOMING, "page.title", "IDENTITY")],
        customer_id=[(INCOMING, "customer.id", "IDENTITY")],
        _timestamp=[(INCOMING, "_timestamp", "TRANSFORMATION")],
    ),
    REVENUE: columns(
        day=[(ORDERS, "_timestamp", "TRANSFORMATION")],
        city=[(ORDERS, "customer_city", "IDENTITY")],
        orders=[(ORDERS, "event_id", "AGGREGATION")],
        revenue_euro=[
            (ORDERS, "amount", "AGGREGATION"),
            (RATES, "to_euro", "AGGREGATION"),
            (ORDERS, "currency", "JOIN"),
            (RATES, "currency", "JOIN"),
            (RATES, "day", "JOIN"),
        ],
    ),
    FUNNEL: columns(
        day=[(VIEWS, "_timestamp", "TRANSFORMATION")],
        views=[(VIEWS, "event_id", "AGGREGATION")],
        orders=[(ORDERS, "event_id", "AGGREGATION")],
        conversion=[(VIEWS, "event_id", "AGGREGATION"), (ORDERS, "event_id", "AGGREGATION")],
    ),
    BOARD: columns(
        day=[(REVENUE, "day", "IDENTITY")],
        revenue=[(REVENUE, "revenue_euro", "AGGREGATION")],
        conversion=[(FUNNEL, "conversion", "IDENTITY"), (FUNNEL, "day", "JOIN")],
    ),
}
JOBS = {
    "headwater.load_orders": ([INCOMING], [ORDERS], 640, 21),
    "headwater.load_pageviews": ([INCOMING], [VIEWS], 4_200, 34),
    "reports.daily_revenue": ([ORDERS, RATES], [REVENUE], 96, 78),
    "reports.daily_funnel": ([VIEWS, ORDERS], [FUNNEL], 24, 52),
    "marketing.board": ([REVENUE, FUNNEL], [BOARD], 24, 9),
}
MAIL: Dataset = ("smtp://mail", "letters")


def story(now: datetime | None = None, days: int = 12) -> Iterator[dict[str, Any]]:
    """Runs of all jobs on several days; the last run of the board fails, and a mailer reports no columns."""
    now = now or datetime.now(UTC)
    for day in range(days):
        at = now - timedelta(days=days - 1 - day, minutes=30)
        for number, (job, (inputs, outputs, rows, seconds)) in enumerate(JOBS.items()):
            begin = at + timedelta(minutes=3 * number)
            end = begin + timedelta(seconds=seconds * (1 + (day * 7 + number) % 5 / 4))
            grown = int(rows * (1 + day / 6) * (1 + (day * 5 + number * 3) % 7 / 20))
            failed = job == "marketing.board" and day == days - 1
            run = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{job} {day}"))
            yield event("START", job, run, begin)
            described = [output(each, grown, day) for each in outputs]
            error = {"errorMessage": ERROR} if failed else {}
            state = "FAIL" if failed else "COMPLETE"
            yield event(state, job, run, end, [item(each) for each in inputs], described, error)
    last = event("COMPLETE", "marketing.letters", str(uuid.uuid4()), now, [item(BOARD, with_schema=False)])
    yield last | {"outputs": [{"namespace": MAIL[0], "name": MAIL[1]}]}


def load_now() -> Iterator[dict[str, Any]]:
    """One more run of the job that loads the orders."""
    job, run, now = "headwater.load_orders", str(uuid.uuid4()), datetime.now(UTC)
    yield event("START", job, run, now - timedelta(seconds=14))
    yield event("COMPLETE", job, run, now, [item(INCOMING)], [output(ORDERS, 1_900, 12)])


ERROR = facet(
    message="The service answered 403: the account may not write to shop.marketing.",
    programmingLanguage="python",
    stackTrace='Traceback (most recent call last):\n  File "board.py", line 41, in <module>',
)


def item(dataset: Dataset, *, with_schema: bool = True) -> dict[str, Any]:
    facets = {"schema": schema(dataset)} if with_schema else {}
    return {"namespace": dataset[0], "name": dataset[1], "facets": facets}


def schema(dataset: Dataset, without: str = "") -> dict[str, Any]:
    return facet(fields=[{"name": n, "type": t} for n, t in SCHEMAS[dataset].items() if n != without])


def output(dataset: Dataset, rows: int, day: int) -> dict[str, Any]:
    # one column came later than the others
    reported = schema(dataset, "customer_city" if dataset == ORDERS and day < 4 else "")
    statistics = facet(rowCount=rows, size=rows * 218, fileCount=1 + rows // 2_000)
    return {
        "namespace": dataset[0],
        "name": dataset[1],
        "facets": {"schema": reported, "columnLineage": LINEAGE[dataset]},
        "outputFacets": {"outputStatistics": statistics},
    }


def event(
    kind: str,
    job: str,
    run: str,
    at: datetime,
    inputs: list[dict[str, Any]] | None = None,
    outputs: list[dict[str, Any]] | None = None,
    facets: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "eventType": kind,
        "eventTime": at.isoformat(),
        "producer": "https://example.com/producer",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": run, "facets": facets or {}},
        "job": {"namespace": "shop", "name": job, "facets": {}},
        "inputs": inputs or [],
        "outputs": outputs or [],
    }

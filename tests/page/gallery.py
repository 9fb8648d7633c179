"""A company for pictures of the page: a hub, a wide table, 5,000 datasets, a nightly run with SQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.graph.events import facet
from tests.page.shop import Dataset, columns, event

LAKE = "s3://company-lake"
HUB: Dataset = (LAKE, "core/customers")
WIDE: Dataset = (LAKE, "features/customer_profile_daily")
CHECKED: Dataset = ("snowflake://company.eu-west-1", "analytics.sales.daily_orders")
NIGHTLY = "nightly_sales"
SQL_JOB = "nightly_sales.build_daily_orders"
READERS, COLUMNS, DATASETS = 400, 300, 5_000
TEAMS = ("team:sales", "team:finance", "team:platform", "team:growth", "team:supply-chain")
QUERY = (
    "insert into analytics.sales.daily_orders select o.day, c.country, count(*) as orders, "
    "sum(o.amount * r.to_euro) as revenue_euro, sum(case when o.state = 'returned' then 1 else 0 end) "
    "as returned from raw.orders o join core.customers c on c.id = o.customer_id left join finance.rates r "
    "on r.currency = o.currency and r.day = o.day where o.day >= date '2026-01-01' and o.amount > 0 "
    "group by o.day, c.country having count(*) > 10 order by o.day"
)
TASKS = (  # of the nightly run: name, minute of the start, minutes, state
    ("extract_orders", 0, 11, "COMPLETE"),
    ("extract_customers", 0, 4, "COMPLETE"),
    ("extract_exchange_rates", 1, 1, "COMPLETE"),
    ("build_daily_orders", 11, 17, "COMPLETE"),
    ("check_daily_orders", 28, 2, "FAIL"),
    ("publish_dashboard", 30, 1, "ABORT"),
)
STACK = """java.lang.IllegalStateException: 1 of 3 checks failed: revenue_euro is negative in 12 rows
\tat com.company.checks.Runner.run(Runner.java:88)
\tat org.apache.spark.sql.Dataset.foreachPartition(Dataset.scala:3516)
\tat org.apache.spark.sql.Dataset.withAction(Dataset.scala:4321)
\tat java.base/java.util.concurrent.ThreadPoolExecutor.runWorker(ThreadPoolExecutor.java:1136)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: com.company.checks.Negative: revenue_euro
\tat com.company.checks.Negative.check(Negative.java:31)"""


def gallery(now: datetime | None = None) -> Iterator[dict[str, Any]]:
    """All events; the moments lie before now."""
    now = now or datetime.now(UTC)
    yield from _catalogue(now - timedelta(days=1))
    yield from _hub(now - timedelta(hours=9))
    yield _wide(now - timedelta(hours=7))
    yield from _nightly(now - timedelta(hours=3))


def run_id(name: str) -> str:
    """The id of the run of this name."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def _output(dataset: Dataset, fields: dict[str, str], rows: int, **facets: Any) -> dict[str, Any]:
    schema = facet(fields=[{"name": name, "type": type} for name, type in fields.items()])
    return {
        "namespace": dataset[0],
        "name": dataset[1],
        "facets": {"schema": schema, **facets},
        "outputFacets": {"outputStatistics": facet(rowCount=rows, size=rows * 180)},
    }


def _catalogue(at: datetime) -> Iterator[dict[str, Any]]:
    spaces = [f"s3://company-{part}" for part in ("raw", "core", "marts", "sandbox")]
    spaces += [f"postgres://{name}.company.internal:5432" for name in ("erp", "crm", "warehouse-management")]
    spaces += ["bigquery", "kafka://broker-1:9092", "snowflake://company.eu-west-1"]
    for first in range(0, DATASETS, 10):
        space = spaces[first // 10 % len(spaces)]
        team = TEAMS[first // 10 % len(TEAMS)]
        outputs = [
            _output(
                (space, f"area_{first // 100:02d}/table_{number:04d}"),
                {f"column_{place}": "bigint" for place in range(3 + number % 17)},
                number * 137,
                ownership=facet(owners=[{"name": team, "type": "OWNER"}]),
                tags=facet(tags=[{"key": "tier", "value": str(number % 3)}]),
            )
            for number in range(first, first + 10)
        ]
        job, moment = f"load_area_{first // 10:03d}", at + timedelta(seconds=first)
        yield event("START", job, run_id(job), moment)
        state = "FAIL" if first % 370 == 0 else "COMPLETE"
        yield event(state, job, run_id(job), moment + timedelta(seconds=5 + first % 90), [], outputs)


def _hub(at: datetime) -> Iterator[dict[str, Any]]:
    fields = dict.fromkeys(("id", "country", "mail"), "string")
    hub = _output(HUB, {**fields, **{f"attribute_{n:02d}": "string" for n in range(17)}}, 81_000)
    crm: Dataset = ("postgres://crm.company.internal:5432", "crm.public.customers")
    from_crm = columns(**{name: [(crm, name, "IDENTITY")] for name in fields})
    hub["facets"] |= {"columnLineage": from_crm}
    inputs = [_output(crm, fields, 9)]
    yield event("COMPLETE", "load_customers", run_id("customers"), at, inputs, [hub])
    for number in range(READERS):
        name = f"customer_segment_{number:03d}"
        lineage = columns(**{column: [(HUB, column, "IDENTITY")] for column in fields})
        owners = facet(owners=[{"name": TEAMS[number % len(TEAMS)], "type": "OWNER"}])
        made = _output((LAKE, f"marts/{name}"), fields, number * 90, columnLineage=lineage)
        if number % 7:
            made["facets"] |= {"ownership": owners}
        moment = at + timedelta(seconds=number)
        read = {"namespace": HUB[0], "name": HUB[1]}
        yield event("COMPLETE", f"build_{name}", run_id(name), moment, [read], [made])


def _wide(at: datetime) -> dict[str, Any]:
    source: Dataset = (LAKE, "features/raw_signals")
    names = [f"signal_{number:03d}_30_day_average" for number in range(COLUMNS)]
    lineage = columns(**{name: [(source, name, "AGGREGATION"), (HUB, "country", "FILTER")] for name in names})
    made = _output(WIDE, dict.fromkeys(names, "decimal(18,4)"), 2_400_000, columnLineage=lineage)
    inputs = [_output(source, dict.fromkeys(names, "double"), 9), {"namespace": HUB[0], "name": HUB[1]}]
    return event("COMPLETE", "build_profile", run_id("profile"), at, inputs, [made])


def _nightly(at: datetime) -> Iterator[dict[str, Any]]:
    whole = run_id(NIGHTLY)
    parent = {"parent": facet(run={"runId": whole}, job={"namespace": "shop", "name": NIGHTLY})}
    fields = {"day": "date", "country": "string", "orders": "bigint", "revenue_euro": "decimal(18,2)"}
    checks = facet(
        assertions=[
            {"assertion": "not_null", "success": True, "column": "day"},
            {"assertion": "row_count_between", "success": True, "expected": "100", "actual": "4312"},
            {
                "assertion": "not_negative",
                "success": False,
                "column": "revenue_euro",
                "severity": "error",
                "expected": "0 rows",
                "actual": "12 rows",
            },
        ]
    )
    metrics = facet(
        rowCount=4_312,
        bytes=918_000,
        columnMetrics={"revenue_euro": {"nullCount": 0, "min": -412.5, "max": 98_211.0}},
    )
    yield event("START", NIGHTLY, whole, at)
    for name, minute, minutes, state in TASKS:
        run, job = run_id(name), f"{NIGHTLY}.{name}"
        begin = at + timedelta(minutes=minute)
        inputs: list[dict[str, Any]] = []
        outputs: list[dict[str, Any]] = []
        facets = dict(parent)
        about: dict[str, Any] = {}
        if name == "build_daily_orders":
            inputs = [{"namespace": HUB[0], "name": HUB[1]}]
            lineage = columns(country=[(HUB, "country", "IDENTITY")], orders=[(HUB, "id", "AGGREGATION")])
            outputs = [_output(CHECKED, fields, 4_312, columnLineage=lineage)]
            about = {
                "sql": facet(query=QUERY),
                "documentation": facet(description="Orders and revenue of a day, by country, in euro."),
                "ownership": facet(owners=[{"name": "team:sales", "type": "OWNER"}]),
                "tags": facet(tags=[{"key": "tier", "value": "1"}, {"key": "schedule", "value": "nightly"}]),
                "jobType": facet(processingType="BATCH", integration="SPARK", jobType="SQL_JOB"),
            }
        elif name == "check_daily_orders":
            checked = _output(CHECKED, fields, 4_312)
            checked["inputFacets"] = {"dataQualityAssertions": checks, "dataQualityMetrics": metrics}
            inputs = [checked]
            message = STACK.partition("\n")[0]
            facets["errorMessage"] = facet(message=message, programmingLanguage="JAVA", stackTrace=STACK)
        yield event("START", job, run, begin, facets=dict(parent))
        done = event(state, job, run, begin + timedelta(minutes=minutes), inputs, outputs, facets)
        yield done | {"job": {"namespace": "shop", "name": job, "facets": about}}
    yield event("FAIL", NIGHTLY, whole, at + timedelta(minutes=31))

"""kill -9 around the commits of Redshift, BigQuery and Snowflake, on stand-ins: rows are there once (G5)."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from headwater.testing.destinations import Subject, staged_load
from tests.destinations.loading import TABLE, load_in_process, load_now

# the first test may have to install the stand-in's environment
pytestmark = [pytest.mark.long, pytest.mark.timeout(1_500)]
ROWS = 100
BEFORE, AFTER = "load.before_commit", "load.after_commit"


def place(product: str, request: pytest.FixtureRequest) -> tuple[Subject, dict[str, Any]]:
    """A subject that reads the product's tables, and the options of the process that loads."""
    if product == "redshift":
        from tests.destinations.test_redshift import RedshiftSubject

        store = request.getfixturevalue("object_store")
        redshift = RedshiftSubject(request.getfixturevalue("postgres"), store)
        url = store.url(redshift.prefix)
        options = {"url": redshift.server.url, "schema": redshift.schema, "staging_url": url}
        return redshift, {**options, "store_port": store.port}
    if product == "bigquery":
        pytest.importorskip("google.cloud.bigquery", reason="missing: pip install 'headwater[bigquery]'")
        from tests.destinations.test_bigquery import BigQuerySubject

        bigquery = BigQuerySubject(request.getfixturevalue("bigquery_emulator"))
        options = {"project": "headwater", "dataset": bigquery.dataset}
        return bigquery, {**options, "api_endpoint": bigquery.server.url}
    pytest.importorskip("snowflake.connector", reason="missing: pip install 'headwater[snowflake]'")
    from tests.destinations.test_snowflake import SnowflakeSubject

    snowflake = SnowflakeSubject(request.getfixturevalue("fakesnow"))
    options = {"account": "fakesnow", "user": "fake", "password": "snow", "database": "headwater"}
    return snowflake, {**options, "schema": snowflake.schema, "parameters": snowflake.server.parameters}


@pytest.mark.parametrize(
    ("product", "point"),
    [
        ("redshift", BEFORE),
        ("redshift", AFTER),
        ("bigquery", BEFORE),
        ("bigquery", AFTER),
        # not before: Snowflake rolls the transaction of a lost session back, fakesnow keeps it open
        ("snowflake", AFTER),
    ],
)
def test_rows_are_there_once_when_the_loader_is_killed(
    product: str, point: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    subject, options = place(product, request)
    load = staged_load(tmp_path, TABLE, [{"v": i} for i in range(ROWS)])
    died = load_in_process(product, options, load.files[0], ROWS, point)
    assert died == -signal.SIGKILL
    again = load_now(product, options, load.files[0], ROWS)
    assert (again.rows, again.already) == (ROWS, point == AFTER)
    subject.destination.connect()
    assert sorted(row["v"] for row in subject.rows("t")) == list(range(ROWS))
    subject.close()

"""Parts that tests of several stages share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.parts.cache import Missing
from tests.parts.clickhouse import ClickHouseEngine
from tests.parts.kafka_broker import KafkaBroker
from tests.parts.postgres import PostgresServer

# No test is about time: on a machine that is busy enough, everything is too slow for Hypothesis.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
# The JVMs of scripts that tests run live for seconds: what the optimising compiler does is never used.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A running Kafka broker; a test that kills it starts it again. Use a topic of your own."""
    pytest.importorskip(
        "confluent_kafka", reason="confluent-kafka is missing: pip install 'headwater[kafka]'"
    )
    try:
        broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    except Missing as missing:
        pytest.skip(str(missing))
    with broker:
        yield broker


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running Postgres; a test that stops it starts it again. Use a schema of your own."""
    pytest.importorskip("psycopg", reason="psycopg is missing: pip install 'headwater[postgres]'")
    try:
        server = PostgresServer()
    except Missing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture(scope="session")
def clickhouse() -> Iterator[ClickHouseEngine]:
    """The ClickHouse engine in this process. Use a database of your own."""
    try:
        engine = ClickHouseEngine()
    except Missing as missing:
        pytest.skip(str(missing))
    with engine:
        yield engine

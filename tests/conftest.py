"""The tiers of the suite, how its tests are shared out, and the parts that several stages use.

`make test` runs every test without the marker `long`, `make test-long` the others. Two options change what
a run means: `--full` gives the long tests the sizes that take minutes to hours each, and `--require-parts`
turns a skip into a failure, since a part that can be fetched must not be missing without a word.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

from tests.parts.cache import Missing
from tests.parts.clickhouse import ClickHouseEngine
from tests.parts.kafka_broker import KafkaBroker
from tests.parts.postgres import PostgresServer

# No test asserts a duration: on a busy machine everything is too slow for Hypothesis.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
# The JVMs of scripts that tests run live for seconds: code from the optimising compiler is never used.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

# A process can have one Spark session; lineage and pipeline configure theirs differently.
SPARK_FOLDERS = ("tests/lineage", "tests/pipeline")
# These start JVMs of their own, and run beside the others.
OWN_JVM = (
    "tests/lineage/test_cluster.py",
    "tests/lineage/test_runner.py",
    "tests/lineage/test_versions.py",
    "tests/pipeline/test_cluster.py",
    "tests/pipeline/test_spark.py",
)
# Skips that `--require-parts` accepts, by the beginning of their reason.
ACCEPTED_SKIPS = (
    "not applicable:",  # a conformance test for an ability that this product does not have
    "not published:",  # no registry has the part
    "only with --full:",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("headwater")
    group.addoption("--full", action="store_true", help="run long tests at their full size, for hours")
    group.addoption("--require-parts", action="store_true", help="fail a test whose part is missing")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return BySparkSession(config, log)


class BySparkSession(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives all tests that share a Spark session, else all tests of a file, to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = "/".join(file.split("/")[:2])
        return folder if folder in SPARK_FOLDERS and file not in OWN_JVM else file


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _require(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.outcome == "skipped":
        _require(collector.config, report)
    return report


def _require(config: pytest.Config, report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if config.getoption("--require-parts") and not reason.startswith(ACCEPTED_SKIPS):
        report.outcome = "failed"
        report.longrepr = f"a part is missing, and --require-parts was given: {reason}"


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """Whether long tests run at their full size."""
    return bool(pytestconfig.getoption("--full"))


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A running Kafka broker; a test that kills it starts it again. Each test uses its own topic."""
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
    """A running Postgres; a test that stops it starts it again. Each test uses its own schema."""
    pytest.importorskip("psycopg", reason="psycopg is missing: pip install 'headwater[postgres]'")
    try:
        server = PostgresServer()
    except Missing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture(scope="session")
def clickhouse() -> Iterator[ClickHouseEngine]:
    """The ClickHouse engine in this process. Each test uses its own database."""
    try:
        engine = ClickHouseEngine()
    except Missing as missing:
        pytest.skip(str(missing))
    with engine:
        yield engine

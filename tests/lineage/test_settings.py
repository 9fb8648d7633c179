"""Settings of lineage: three places, one rule."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from headwater.lineage.settings import LineageSettings, ParentRun, read
from tests.sources import ROOT

RUN = "01a1e2dd-20f3-783b-93f8-82d491afb988"
ROOT_RUN = "01a1e2dd-20f3-783b-93f8-82d491afb989"


def test_the_defaults_hold_when_nothing_is_set() -> None:
    assert read({}, environ={}) == LineageSettings()


def test_keys_of_spark_are_taken_when_they_are_openlineage_s() -> None:
    found = read(
        {
            "spark.openlineage.namespace": "shop",
            "spark.openlineage.jobName.appendDatasetName": "false",
            "spark.openlineage.capturedProperties": "spark.master,spark.executor.memory",
            "spark.openlineage.run.tags": "[team:data;nightly]",
            "spark.openlineage.job.owners.team": "data",
            "spark.openlineage.transport.type": "http",
            "spark.openlineage.transport.auth.apiKey": "secret",
            "spark.openlineage.headwater.deadlineMillis": "2500",
            "spark.master": "local",
        },
        environ={},
    )
    assert found.namespace == "shop"
    assert found.job_name_append_dataset_name is False
    assert found.captured_properties == ("spark.master", "spark.executor.memory")
    assert found.run_tags == ("team:data", "nightly")
    assert found.job_owners == {"team": "data"}
    assert found.transport == {"type": "http", "auth": {"apiKey": "secret"}}
    assert found.deadline_millis == 2500
    assert "secret" not in str(found.properties)
    assert found.properties["namespace"] == "shop"


def test_spark_wins_over_the_file_and_the_file_over_the_environment_when_all_are_set(tmp_path: Path) -> None:
    file = tmp_path / "openlineage.yml"
    file.write_text("namespace: of-file\nappName: of-file\nheadwater: {exitMillis: 7}\nrun: {tags: [a, b]}\n")
    environ = {
        "OPENLINEAGE_CONFIG": str(file),
        "OPENLINEAGE__NAMESPACE": "of-environment",
        "OPENLINEAGE__APP_NAME": "of-environment",
        "OPENLINEAGE__HEADWATER__EVENT_BYTES": "99",
        "OPENLINEAGE__TRANSPORT": '{"type": "console"}',
    }
    found = read({"spark.openlineage.namespace": "of-spark"}, environ=environ)
    assert (found.namespace, found.app_name) == ("of-spark", "of-file")
    assert (found.exit_millis, found.event_bytes) == (7, 99)
    assert found.run_tags == ("a", "b")
    assert found.transport == {"type": "console"}


def test_arguments_have_the_last_word_when_they_are_given() -> None:
    found = read({"spark.openlineage.namespace": "x"}, environ={}, given={"namespace": "y", "exit_millis": 1})
    assert (found.namespace, found.exit_millis) == ("y", 1)


@pytest.mark.parametrize("text", ["soon", "-1", "0", ""], ids=["word", "negative", "zero", "empty"])
def test_the_default_holds_and_a_warning_is_logged_when_a_value_is_not_valid(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = read({"spark.openlineage.headwater.deadlineMillis": text}, environ={})
    assert found.deadline_millis == LineageSettings().deadline_millis
    assert "headwater.deadlineMillis" in caplog.text


@pytest.mark.parametrize("key", ["filter.reads", "headwater.compatibility", "debug.smartMode"])
def test_a_choice_is_an_error_when_it_is_misspelt(key: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=f"{key}='al' is none of"):
        read({f"spark.openlineage.{key}": "al"}, environ={})
    environ = {f"OPENLINEAGE__{key.upper().replace('.', '__')}": "al"}
    if key == "filter.reads":
        with pytest.raises(msgspec.ValidationError, match="'al'"):
            read({}, environ=environ)
        with pytest.raises(msgspec.ValidationError, match="'al'"):
            read({}, environ={}, given={"reads": "al"})


def test_a_warning_is_logged_when_the_environment_has_a_setting_that_is_not_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        read({}, environ={"OPENLINEAGE__CIRCUIT_BREAKER__CIRCUIT_CHECK_INTERVAL_IN_MILLIS": "1"})
    assert "circuit_breaker.circuit_check_interval_in_millis is not used" in caplog.text


def test_facets_are_switched_off_and_on_when_they_are_named() -> None:
    found = read(
        {
            "spark.openlineage.facets.schema.disabled": "true",
            "spark.openlineage.facets.spark.logicalPlan.disabled": "false",
            "spark.openlineage.facets.disabled": "[columnLineage]",
        },
        environ={},
    )
    assert found.disabled_facets == {"schema", "debug", "spark_unknown", "columnLineage"}


def test_the_parent_is_known_when_its_parts_are_set() -> None:
    found = read(
        {
            "spark.openlineage.parentJobNamespace": "airflow",
            "spark.openlineage.parentJobName": "dag.task",
            "spark.openlineage.parentRunId": RUN,
        },
        environ={},
    )
    assert found.parent == ParentRun("airflow", "dag.task", RUN)
    assert found.root_parent == found.parent


def test_parent_and_root_are_known_when_one_context_says_both() -> None:
    context = (
        f'{{"run":{{"runId":"{RUN}"}},"job":{{"namespace":"a","name":"task"}},'
        f'"root":{{"run":{{"runId":"{ROOT_RUN}"}},"job":{{"namespace":"a","name":"dag"}}}}}}'
    )
    found = read({"spark.openlineage.context": context}, environ={})
    assert found.parent == ParentRun("a", "task", RUN)
    assert found.root_parent == ParentRun("a", "dag", ROOT_RUN)


@pytest.mark.parametrize("context", ["{", "[]", '{"run": 1, "job": 2}', '{"run":{}, "job":{"name":1}}'])
def test_there_is_no_parent_when_the_context_is_nonsense(context: str) -> None:
    assert read({"spark.openlineage.context": context}, environ={}).parent is None


def test_there_is_no_parent_when_its_run_is_no_uuid() -> None:
    found = read({"spark.openlineage.parentJobName": "x", "spark.openlineage.parentRunId": "1"}, environ={})
    assert found.parent is None


def test_it_is_disabled_when_openlineage_is() -> None:
    assert read({}, environ={"OPENLINEAGE_DISABLED": "true"}).disabled
    assert read({"spark.openlineage.disabled": "true"}, environ={}).disabled


def test_a_broken_file_is_logged_and_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "openlineage.yml"
    file.write_text("{")
    with caplog.at_level(logging.WARNING):
        found = read({}, environ={"OPENLINEAGE_CONFIG": str(file)})
    assert found == LineageSettings()
    assert "openlineage.yml" in caplog.text


def test_a_warning_is_logged_when_a_setting_of_openlineage_spark_is_not_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        found = read(
            {
                "spark.openlineage.circuitBreaker.type": "javaRuntime",
                "spark.openlineage.circuitBreaker.memoryThreshold": "20",
                "spark.openlineage.circuitBreaker.timeoutInSeconds": "7",
                "spark.openlineage.circuitBreaker.gcCpuThreshold": "30",
                "spark.openlineage.circuitBreaker.circuitCheckIntervalInMillis": "10",
                "spark.openlineage.metrics.type": "statsd",
                "spark.openlineage.debug.metricsDisabled": "true",
            },
            environ={},
        )
    assert (found.memory_threshold, found.deadline_millis) == (20, 7000)
    assert (found.circuit_breaker, found.gc_cpu_threshold) == ("javaRuntime", 30)
    warnings = [record.getMessage() for record in caplog.records]
    assert [line.split()[2] for line in warnings] == [
        "circuitBreaker.circuitCheckIntervalInMillis",
        "debug.metricsDisabled",
        "metrics.type",
    ]
    assert "the memory is looked at once for each plan" in warnings[0]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("colunmLineage.schemaSizeLimit", "5", "is not known; did you mean columnLineage.schemaSizeLimit"),
        ("circuitBreaker.gcCpuThreshold", "5", "it needs circuitBreaker.type=javaRuntime"),
        ("facets.schema", "off", "facets.schema is not known"),
        ("facets.schema.disabled", "off", "is neither true nor false"),
        ("nosuch.setting", "1", "nosuch.setting is not known."),
        ("filters", "x", "filters is not known."),
        ("job.name", "x", "see appName"),
    ],
)
def test_a_warning_is_logged_when_nothing_reads_a_setting(
    key: str, value: str, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        read({f"spark.openlineage.{key}": value}, environ={})
    assert expected in caplog.text


def test_nothing_is_logged_when_settings_are_read_or_belong_to_openlineage_python(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "openlineage.yml"
    file.write_text(
        "filters: [{type: exact, match: a}]\ntags: {job: []}\ndataset: {reducing_enabled: true}\n"
    )
    with caplog.at_level(logging.WARNING):
        read(
            {
                "spark.openlineage.transport.properties.acks": "all",
                "spark.openlineage.dataset.namespaceResolvers.mine.type": "hostList",
                "spark.openlineage.dataset.namespaceResolvers.mine.hosts": "[a;b]",
                "spark.openlineage.job.owners.team": "us",
                "spark.openlineage.job.documentation": "what it does",
                "spark.openlineage.facets.environment-properties.disabled": "true",
                "spark.openlineage.facets.variables": "[HOME]",
                "spark.openlineage.debugFacet": "enabled",
                "spark.openlineage.disabled": "false",
            },
            environ={"OPENLINEAGE_CONFIG": str(file), "OPENLINEAGE__FACETS__ENVIRONMENT_VARIABLES": "[A]"},
        )
    assert caplog.text == ""


def test_settings_of_openlineage_spark_are_used_when_they_have_old_or_other_names() -> None:
    found = read(
        {
            "spark.openlineage.debugFacet": "enabled",
            "spark.openlineage.facets.variables": "[HOME;PATH]",
            "spark.openlineage.vendors.iceberg.metricsReporterDisabled": "true",
            "spark.openlineage.circuitBreaker.timeoutInSeconds": "10",
            "spark.openlineage.timeout.buildDatasetsTimePercentage": "30",
            "spark.openlineage.timeout.facetsBuildingTimePercentage": "70",
        },
        environ={},
    )
    assert "debug" not in found.disabled_facets
    assert {"icebergScanReport", "icebergCommitReport"} <= found.disabled_facets
    assert found.environment_variables == ("HOME", "PATH")
    assert (found.deadline_millis, found.dataset_percent) == (7000, 30)


def test_the_deadline_of_headwater_wins_when_both_are_set() -> None:
    both = {
        "spark.openlineage.circuitBreaker.timeoutInSeconds": "7",
        "spark.openlineage.headwater.deadlineMillis": "300",
    }
    assert read(both, environ={}).deadline_millis == 300


# The fields of openlineage-spark's configuration classes.
UPSTREAM = [
    "disabled", "namespace", "appName", "applicationRunId", "context", "parentJobNamespace",
    "parentJobName", "parentRunId", "rootParentJobNamespace", "rootParentJobName", "rootParentRunId",
    "testExtensionProvider", "capturedProperties", "transport.type", "transport.url", "facets.disabled",
    "facets.variables", "facets.custom_environment_variables", "debugFacet",
    "dataset.removePath.pattern", "dataset.namespaceResolvers", "dataset.disabledTrimmers",
    "dataset.extraTrimmers", "jobName.appendDatasetName", "jobName.replaceDotWithUnderscore",
    "job.owners", "job.tags", "job.namespace", "job.name", "run.tags",
    "columnLineage.datasetLineageEnabled", "columnLineage.schemaSizeLimit", "filter.allowedSparkNodes",
    "filter.deniedSparkNodes", "filter.rddEventsDisabled", "debug.smart", "debug.smartMode",
    "debug.metricsDisabled", "debug.payloadSizeLimitInKilobytes", "debug.logPlanAsJson", "metrics",
    "vendors.iceberg.metricsReporterDisabled", "timeout.buildDatasetsTimePercentage",
    "timeout.facetsBuildingTimePercentage", "circuitBreaker.type", "circuitBreaker.gcCpuThreshold",
    "circuitBreaker.timeoutInSeconds", "circuitBreaker.circuitCheckIntervalInMillis",
]  # fmt: skip


@pytest.mark.parametrize("key", UPSTREAM)
def test_a_setting_of_openlineage_spark_is_on_the_page_and_known_when_it_is_set(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    page = (ROOT / "docs" / "switching-from-openlineage-spark.md").read_text(encoding="utf-8")
    assert f"`{key}" in page
    with caplog.at_level(logging.WARNING), suppress(msgspec.ValidationError):
        read({f"spark.openlineage.{key}": "7"}, environ={})
    assert "is not known" not in caplog.text

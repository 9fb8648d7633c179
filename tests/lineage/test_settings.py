"""Settings of lineage: three places, one rule."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest

from headwater.lineage.settings import LineageSettings, ParentRun, read

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


def test_a_choice_is_an_error_when_it_is_misspelt(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert read({}, environ={"OPENLINEAGE__FILTER__READS": "al"}).reads == "all"
    assert "filter.reads='al' is not used" in caplog.text
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
                "spark.openlineage.circuitBreaker.gcCpuThreshold": "10",
                "spark.openlineage.timeout.buildDatasetsTimePercentage": "30",
            },
            environ={},
        )
    assert (found.memory_threshold, found.deadline_millis) == (20, 7000)
    warnings = [record.getMessage() for record in caplog.records]
    assert [line.split()[2] for line in warnings] == [
        "circuitBreaker.gcCpuThreshold",
        "timeout.buildDatasetsTimePercentage",
    ]
    assert "memoryThreshold and timeoutInSeconds" in warnings[0]


def test_the_deadline_of_headwater_wins_when_both_are_set() -> None:
    both = {
        "spark.openlineage.circuitBreaker.timeoutInSeconds": "7",
        "spark.openlineage.headwater.deadlineMillis": "300",
    }
    assert read(both, environ={}).deadline_millis == 300

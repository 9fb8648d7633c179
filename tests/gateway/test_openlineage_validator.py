"""The validator, case by case: what people get wrong, what is a warning, and what an answer may contain."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from headwater.gateway.openlineage_validator import Validation, Validator
from tests.gateway.openlineage_corpus import BASE, definitions, events, replaced

STRICT = Validator(strict=True)
LENIENT = Validator()
PLAIN = events()
RUN, JOB, DATASET = PLAIN["run"], PLAIN["job"], PLAIN["dataset"]
MISSING = object()


def changed(event: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The event with one value replaced, or left out when the value is MISSING."""
    steps = tuple(int(step) if step.isdigit() else step for step in path.split("/")[1:])
    if value is not MISSING:
        return dict(replaced(event, steps, value))
    parent: Any = event
    for step in steps[:-1]:
        parent = parent[step]
    return dict(replaced(event, steps[:-1], {key: item for key, item in parent.items() if key != steps[-1]}))


REJECTED = [
    pytest.param(RUN, "/schemaURL", MISSING, "", "required", "`schemaURL` is missing", id="no-schema-url"),
    pytest.param(RUN, "/producer", MISSING, "", "required", "`producer` is missing", id="no-producer"),
    pytest.param(RUN, "/eventTime", MISSING, "", "required", "a date and time with offset", id="no-time"),
    pytest.param(
        RUN, "/eventTime", "2024-05-01T10:00:00", "/eventTime", "format:date-time", "offset", id="no-offset"
    ),
    pytest.param(
        RUN, "/eventTime", "2024-05-01 10:00:00Z", "/eventTime", "format:date-time", "got", id="blank-for-t"
    ),
    pytest.param(RUN, "/inputs", None, "/inputs", "type", "got null; leave the field out", id="null-inputs"),
    pytest.param(RUN, "/eventType", None, "/eventType", "enum", "got null", id="null-event-type"),
    pytest.param(RUN, "/run/facets", None, "/run/facets", "type", "expected an object", id="null-facets"),
    pytest.param(RUN, "/run/facets", {"a": None}, "/run/facets/a", "type", "an object", id="null-facet"),
    pytest.param(RUN, "/eventType", "start", "/eventType", "enum", '"START"', id="lower-case-event-type"),
    pytest.param(
        RUN,
        "/run/runId",
        "01890a5dac96774bbcceb302099a8057",
        "/run/runId",
        "format:uuid",
        "dashes",
        id="no-dashes",
    ),
    pytest.param(
        RUN,
        "/run/runId",
        "{01890a5d-ac96-774b-bcce-b302099a8057}",
        "/run/runId",
        "format:uuid",
        "a UUID",
        id="braces",
    ),
    pytest.param(RUN, "/run/runId", "run-1", "/run/runId", "format:uuid", 'got "run-1"', id="no-uuid"),
    pytest.param(
        JOB,
        "/job/facets",
        {"mine": {"_producer": "https://example.com"}},
        "/job/facets/mine",
        "required",
        "`_schemaURL` is missing",
        id="custom-facet-without-schema-url",
    ),
    pytest.param(
        DATASET,
        "/dataset/facets",
        {"dataQualityMetrics": {**BASE, "rowCount": 1}},
        "/dataset/facets/dataQualityMetrics",
        "required",
        "`columnMetrics` is missing",
        id="metrics-without-columns",
    ),
    pytest.param(
        RUN,
        "/outputs/0/outputFacets",
        {"outputStatistics": {**BASE, "rowCount": True}},
        "/outputs/0/outputFacets/outputStatistics/rowCount",
        "type",
        "expected a whole number, got true",
        id="row-count-true",
    ),
    pytest.param(
        RUN,
        "/outputs/0/outputFacets",
        {"outputStatistics": {**BASE, "rowCount": "1"}},
        "/outputs/0/outputFacets/outputStatistics/rowCount",
        "type",
        'expected a whole number, got "1"',
        id="row-count-text",
    ),
    pytest.param(
        RUN,
        "/run/facets",
        {"executionParameters": {**BASE, "parameters": [{"key": "k", "unit": "s"}]}},
        "/run/facets/executionParameters/parameters/0/unit",
        "additionalProperties",
        "unknown key; allowed here: `description`, `key`, `name`, `value`",
        id="unknown-key-in-parameter",
    ),
    pytest.param(
        JOB,
        "/job/facets",
        {
            "jobType": {
                **BASE,
                "processingType": "STREAMING",
                "integration": "FLINK",
                "emissionPattern": {"eventTrigger": "P", "eventContentMode": "C", "windowDuration": 0},
            }
        },
        "/job/facets/jobType/emissionPattern/windowDuration",
        "minimum",
        "expected at least 1, got 0",
        id="window-of-zero",
    ),
    pytest.param(
        JOB,
        "/job/facets",
        {"lineage": {**BASE, "entries": [{"type": "JOB", "namespace": "n"}]}},
        "/job/facets/lineage/entries/0",
        "dependentRequired",
        "`name` is missing; it has to be there because `namespace` is",
        id="namespace-without-name",
    ),
    pytest.param(
        JOB,
        "/job/facets",
        {"lineage": {**BASE, "entries": [{"type": "TABLE"}]}},
        "/job/facets/lineage/entries/0/type",
        "enum",
        'expected one of "DATASET", "JOB", got "TABLE"',
        id="unknown-entry-type",
    ),
]


@pytest.mark.parametrize(
    "validator", [pytest.param(STRICT, id="strict"), pytest.param(LENIENT, id="lenient")]
)
@pytest.mark.parametrize(("event", "at", "value", "path", "rule", "reason"), REJECTED)
def test_event_is_refused_with_path_and_reason_when_a_rule_is_broken(
    event: dict[str, Any], at: str, value: Any, path: str, rule: str, reason: str, validator: Validator
) -> None:
    verdict = validator.check(changed(event, at, value))
    assert not verdict.ok
    (violation,) = verdict.errors
    assert (violation.path, violation.rule) == (path, rule)
    assert reason in violation.reason
    assert "oneOf" not in violation.reason


ACCEPTED = [
    pytest.param(RUN, "/eventType", MISSING, id="no-event-type"),
    pytest.param(RUN, "/somethingElse", {"any": None}, id="unknown-top-level-key"),
    pytest.param(RUN, "/job", {"namespace": "", "name": ""}, id="empty-names"),
    pytest.param(RUN, "/eventTime", "2024-05-01T10:00:00.123456789Z", id="nanoseconds"),
    pytest.param(RUN, "/eventTime", "2024-05-01t10:00:00z", id="lower-case-t-and-z"),
    pytest.param(RUN, "/run/runId", "01890A5D-AC96-774B-BCCE-B302099A8057", id="upper-case-uuid"),
    pytest.param(
        RUN,
        "/outputs/0/outputFacets",
        {"outputStatistics": {**BASE, "rowCount": 1.0}},
        id="whole-float-for-integer",
    ),
    pytest.param(
        RUN,
        "/outputs/0/facets",
        {"outputStatistics": {**BASE, "rowCount": "many"}},
        id="standard-facet-in-wrong-container",
    ),
    pytest.param(RUN, "/schemaURL", "urn:any:uri", id="any-uri-as-schema-url"),
    pytest.param(RUN, "/run/facets", {"mine": {**BASE, "deep": [[{}]]}}, id="custom-facet"),
    pytest.param(DATASET, "/run", {"not": "looked at"}, id="run-and-dataset-without-job"),
    pytest.param(RUN, "/dataset", None, id="dataset-beside-run-and-job"),
    pytest.param(JOB, "/eventType", None, id="event-type-in-job-event"),
]


@pytest.mark.parametrize(
    "validator", [pytest.param(STRICT, id="strict"), pytest.param(LENIENT, id="lenient")]
)
@pytest.mark.parametrize(("event", "at", "value"), ACCEPTED)
def test_event_is_accepted_when_the_official_schema_does_not_mind(
    event: dict[str, Any], at: str, value: Any, validator: Validator
) -> None:
    verdict = validator.check(changed(event, at, value))
    assert (verdict.errors, verdict.warnings) == ((), ())


@pytest.mark.parametrize(
    "body",
    [None, True, 1, 1.5, "text", [], [RUN]],
    ids=["null", "true", "int", "float", "text", "empty", "array"],
)
def test_whole_body_is_refused_when_it_is_not_an_object(body: object) -> None:
    verdict = LENIENT.check(body)
    assert (verdict.kind, [error.rule for error in verdict.errors]) == ("", ["type"])
    assert verdict.errors[0].path == ""


@pytest.mark.parametrize(
    ("event", "kind"), [(RUN, "run"), (JOB, "job"), (DATASET, "dataset")], ids=["run", "job", "dataset"]
)
def test_verdict_is_shared_when_the_event_is_fine(event: dict[str, Any], kind: str) -> None:
    verdict = LENIENT.check(event)
    assert verdict.ok
    assert verdict.kind == kind
    assert verdict is STRICT.check(dict(event))


def test_missing_parts_are_named_when_an_event_has_no_kind() -> None:
    verdict = LENIENT.check({"producer": "unknown"})
    assert verdict.kind == ""
    assert [error.rule for error in verdict.errors] == ["kind", "required", "required"]
    assert [(warning.path, warning.rule) for warning in verdict.warnings] == [("/producer", "format:uri")]
    assert [error.rule for error in STRICT.check({"producer": "unknown"}).errors][-1] == "format:uri"


@pytest.mark.parametrize("key", ["run", "eventType"])
def test_event_counts_as_run_event_when_it_has_only_that_key(key: str) -> None:
    base = changed(changed(RUN, "/job", MISSING), "/run", MISSING)
    verdict = STRICT.check(changed(base, f"/{key}", RUN[key]))
    assert verdict.kind == "run"
    assert "`job` is missing; expected an object" in [error.reason for error in verdict.errors]


def test_event_is_refused_when_job_and_dataset_are_both_right_and_run_is_missing() -> None:
    verdict = STRICT.check({**JOB, **DATASET})
    assert (verdict.kind, [error.rule for error in verdict.errors]) == ("", ["kind"])
    assert "`job` and `dataset` without `run`" in verdict.errors[0].reason
    assert LENIENT.check({**JOB, **DATASET}) == verdict


@pytest.mark.parametrize(
    ("broken", "kind"), [("dataset", "job"), ("job", "dataset")], ids=["wrong-dataset", "wrong-job"]
)
def test_event_is_accepted_when_only_one_of_job_and_dataset_is_right(broken: str, kind: str) -> None:
    event = {**JOB, **DATASET, broken: None}
    assert STRICT.check(event) == LENIENT.check(event) == Validation(kind)


def test_both_are_explained_when_neither_job_nor_dataset_is_right() -> None:
    verdict = LENIENT.check({**JOB, "job": 1, "dataset": 2, "eventTime": "now"})
    reported = [(error.path, error.rule) for error in verdict.errors]
    assert reported == [
        ("", "kind"),
        ("/eventTime", "format:date-time"),
        ("/job", "type"),
        ("/dataset", "type"),
    ]


def test_one_kind_is_chosen_with_warnings_when_only_it_is_tolerable() -> None:
    event = {**JOB, "dataset": None, "producer": "me"}
    assert [warning.path for warning in LENIENT.check(event).warnings] == ["/producer"]
    assert LENIENT.check(event).kind == "job"
    assert not STRICT.check(event).ok
    assert not LENIENT.check({**event, **DATASET, "producer": "me"}).ok


def test_uri_is_a_warning_when_not_strict() -> None:
    event = changed(RUN, "/inputs/0/facets", {"dataSource": {**BASE, "name": "file", "uri": "file"}})
    verdict = LENIENT.check(event)
    assert verdict.ok
    (warning,) = verdict.warnings
    assert (warning.path, warning.rule) == ("/inputs/0/facets/dataSource/uri", "format:uri")
    assert warning.reason == 'expected an absolute URI, such as https://example.com/producer, got "file"'
    assert STRICT.check(event) == Validation("run", (warning,))


def test_warnings_stay_beside_errors_when_an_event_has_both() -> None:
    verdict = LENIENT.check({**RUN, "producer": "me", "eventType": "DONE"})
    assert [error.path for error in verdict.errors] == ["/eventType"]
    assert [warning.path for warning in verdict.warnings] == ["/producer"]


@pytest.mark.parametrize(
    ("event", "at", "key"),
    [
        pytest.param(JOB, "/job/facets", "sql", id="job-facet"),
        pytest.param(DATASET, "/dataset/facets", "columnLineage", id="dataset-facet"),
        pytest.param(RUN, "/outputs/0/facets", "anything", id="custom-facet"),
        pytest.param(RUN, "/run/facets", "errorMessage", id="run-facet"),
        pytest.param(RUN, "/inputs/0/inputFacets", "dataQualityMetrics", id="input-facet"),
        pytest.param(RUN, "/outputs/0/outputFacets", "subset", id="output-facet"),
    ],
)
def test_facet_may_lack_its_fields_when_it_is_deleted(event: dict[str, Any], at: str, key: str) -> None:
    deleted = changed(event, at, {key: {"_deleted": True}})
    verdict = LENIENT.check(deleted)
    assert verdict.ok
    assert {(warning.path, warning.rule) for warning in verdict.warnings} == {(f"{at}/{key}", "required")}
    assert STRICT.check(deleted).errors == verdict.warnings
    for nearly in (False, 1, "true", None):
        assert not LENIENT.check(changed(event, at, {key: {"_deleted": nearly}})).ok


def test_fields_that_are_there_are_still_checked_when_a_facet_is_deleted() -> None:
    facets = {"sql": {"_deleted": True, "query": 5}, "ownership": {"_deleted": True, "owners": [{}]}}
    verdict = LENIENT.check(changed(JOB, "/job/facets", facets))
    assert [(error.path, error.rule) for error in verdict.errors] == [
        ("/job/facets/ownership/owners/0", "required"),
        ("/job/facets/sql/query", "type"),
    ]


def test_same_key_is_checked_by_container_when_two_containers_know_it() -> None:
    metrics = {"dataQualityMetrics": {**BASE, "columnMetrics": {}, "captureDate": "yesterday"}}
    as_dataset = LENIENT.check(changed(RUN, "/inputs/0/facets", metrics))
    as_input = LENIENT.check(changed(RUN, "/inputs/0/inputFacets", metrics))
    assert [error.path for error in as_dataset.errors] == ["/inputs/0/facets/dataQualityMetrics/captureDate"]
    assert as_input.ok


def test_schema_file_is_fresh_when_derived_again() -> None:
    root = Path(__file__).resolve().parents[2]
    text = (root / "src/headwater/gateway/openlineage_schema.json").read_text()
    if f'openlineage-python {version("openlineage-python")}"' not in text:
        pytest.skip("not applicable: the schema file was derived from another version of openlineage-python")
    script = root / "scripts/derive_openlineage_schema.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_check_fails_and_a_run_repairs_it_when_the_schema_file_is_stale(tmp_path: Path) -> None:
    script = tmp_path / "scripts/derive_openlineage_schema.py"
    target = tmp_path / "src/headwater/gateway/openlineage_schema.json"
    for folder in (script.parent, target.parent):
        folder.mkdir(parents=True)
    script.write_text((Path(__file__).resolve().parents[2] / "scripts" / script.name).read_text())
    target.write_text("{}")
    codes = [
        subprocess.run([sys.executable, script, *arguments], capture_output=True, check=False).returncode
        for arguments in (["--check"], [], ["--check"])
    ]
    assert codes == [1, 0, 0]
    assert "RunEvent" in target.read_text()


def test_schema_file_holds_only_rules_when_read() -> None:
    known = {"$ref", "type", "format", "enum", "const", "minimum", "items", "properties", "required"}
    known |= {"additionalProperties", "allOf", "if", "then", "not", "dependentRequired", "$comment"}
    todo: list[Any] = list(definitions.values())
    seen: set[str] = set()
    while todo:
        schema = todo.pop()
        seen |= set(schema)
        todo += [schema[key] for key in ("items", "if", "then", "not") if key in schema]
        todo += schema.get("properties", {}).values()
        todo += schema.get("allOf", [])
        if isinstance(schema.get("additionalProperties"), dict):
            todo.append(schema["additionalProperties"])
    assert seen <= known


def test_sidecar_stays_light_when_the_validator_is_imported() -> None:
    code = "import sys, headwater.gateway.openlineage_validator as o; o.Validator(); print(list(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "headwater.gateway.openlineage_validator" in done.stdout
    for heavy in ("openlineage.client", "'attr'", "pyarrow", "pandas", "duckdb", "pyspark"):
        assert heavy not in done.stdout

"""Large files are parsed once: planned by a sample, and staged again only if the sample lacked something."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from headwater.destinations.duckdb import DuckDBDestination
from headwater.destinations.table import ROW
from headwater.pipeline.batch import cycle
from headwater.pipeline.load_report import Report
from headwater.pipeline.spark.session import SPLIT_BYTES
from headwater.pipeline.steps import parse_events
from headwater.pipeline.steps.batch_schema import batch_columns
from headwater.pipeline.steps.fit_table import fit_table
from headwater.pipeline.steps.mapping import map_fields
from headwater.pipeline.steps.parse_events import FieldCollector, find_fields
from headwater.pipeline.steps.project import project
from headwater.pipeline.steps.read_lines import LINE, read_lines
from headwater.settings import DestinationSettings, MappingSettings
from tests.pipeline.rig import BROWSER_KEY, Rig

SAMPLE = 5
KNOWN = [
    {"id": number, "text": f"t{number}", "o": {"x": number / 4, "z": number / 8}}
    for number in range(SAMPLE * 4)
]
LATER: dict[str, list[Any]] = {
    "nothing": [],
    "a field": [{"late": 1}],
    "an object": [{"o": {"late": {"y": 1}}}],
    "a fraction": [{"id": 0.5}],
    "a text": [{"o": {"x": "much"}}],
    "a malformed line": [b'{"id": 1, "evil": 2', b"[]", b""],
    "a repeated key": [b'{"id": 1, "id": 2}'],
    "fractions beside a repeated key": [
        b'{"id": 1, "id": 2, "o": {"x": 0.25, "z": 0.12345678901234568}}',
        b'{"id": 1, "id": 2, "o": {"x": 0.12345678901234568, "z": 0.5}}',
    ],
    "a long number": [b'{"o": {"x": 0.99999999999999999999}}'],
    "a browser": [{"api_key": BROWSER_KEY, "source_ip": "8.8.8.8"}],
    "a key of other letters": [{"ID": 3}],
}


@pytest.fixture
def sampled(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """All files are large, and few lines of each split are a sample."""
    monkeypatch.setattr(cycle, "SMALL_BYTES", 0)
    monkeypatch.setattr(parse_events, "SAMPLE_LINES", SAMPLE)
    rig.spark.conf.set("spark.sql.files.maxPartitionBytes", 1024 * 1024)
    yield rig
    rig.spark.conf.set("spark.sql.files.maxPartitionBytes", SPLIT_BYTES)


def loaded(rig: Rig, report: Report, id: str) -> Any:
    assert report.is_complete, report.errors
    [done] = [each for each in report.files[0].destinations if each.destination == id]
    counts = (done.events, done.rows, done.rejected, done.pairs[0].unmapped)
    rejects = sorted((bytes(each.event or b""), each.error) for each in rig.rejects(id))
    return rig.types(id=id), rig.rows(id=id), counts, rejects


@pytest.mark.parametrize("name", LATER)
def test_the_table_is_that_of_two_passes_when_the_sample_lacks_what_comes_later(
    sampled: Rig, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    events = [*KNOWN, *LATER[name], *KNOWN[:3]]
    found = []
    for id, size in (("one", 0), ("two", 1 << 20)):
        monkeypatch.setattr(cycle, "SMALL_BYTES", size)
        sampled.file(events)
        found.append(loaded(sampled, sampled.cycle(sampled.settings({"id": id})), id))
    assert found[0] == found[1]
    # the table is known now, and what it lacks comes again
    for id, size in (("one", 0), ("two", 1 << 20)):
        monkeypatch.setattr(cycle, "SMALL_BYTES", size)
        sampled.file([*LATER[name], {"id": 1}, *LATER["a fraction"]])
        found.append(loaded(sampled, sampled.cycle(sampled.settings({"id": id})), id))
    assert found[2] == found[3]


def test_fields_are_collected_when_the_driver_evaluates_rows_that_it_has(rig: Rig) -> None:
    texts = ['{"a": 1, "o": {"b": "x"}}', '{"a": 2.5}', "{torn"]
    lines = rig.spark.createDataFrame(pa.table({LINE: texts, ROW: pa.array([0, 1, 2], pa.int64())}))
    wanted, capabilities = find_fields(lines), DuckDBDestination.capabilities
    columns = batch_columns(map_fields(wanted.root, MappingSettings()), capabilities)
    settings = DestinationSettings(id="dwh", type="duckdb")
    fit = fit_table(wanted.root, columns, None, settings, capabilities)
    collector = FieldCollector(lines)
    rows = project(lines, fit, collector=collector)
    plan = rows._jdf.queryExecution().optimizedPlan().toString()
    assert "parse_events" not in plan, "the optimizer has evaluated it"
    assert rows.toArrow().num_rows == 2
    found = collector.fields()
    types = {name: each.json_types for name, each in found.root.children.items()}
    assert types == {name: each.json_types for name, each in wanted.root.children.items()}
    assert found.malformed > 0


def test_lines_are_parsed_in_one_job_when_the_sample_has_all_fields(sampled: Rig) -> None:
    rng = random.Random(1)
    sampled.file([{"id": rng.randrange(100), "pad": "x" * 50_000} for _ in range(60)])
    # the sample, and the pass
    assert sampled.jobs_of(lambda: sampled.cycle()) == 2
    assert sampled.sql("SELECT count(*), min(length(pad)) FROM events") == [(60, 50_000)]


@pytest.mark.usefixtures("codegen")
def test_generated_code_takes_values_from_the_event_itself_when_rows_are_projected(sampled: Rig) -> None:
    lines = read_lines(sampled.spark, sampled.file(KNOWN))
    wanted, capabilities = find_fields(lines), DuckDBDestination.capabilities
    columns = batch_columns(map_fields(wanted.root, MappingSettings()), capabilities)
    settings = DestinationSettings(id="dwh", type="duckdb")
    rows = project(lines, fit_table(wanted.root, columns, None, settings, capabilities))
    plan = rows._jdf.queryExecution().executedPlan().toString().splitlines()
    stages = {line.partition("*(")[2].partition(")")[0] for line in plan if "Project" in line}
    assert stages == {"1"}, "the event would be copied before its values are read"
    assert rows.selectExpr("sum(o_x)", "sum(o_z)", "max(text)").toArrow().to_pylist() == [
        {"sum(o_x)": 47.5, "sum(o_z)": 23.75, "max(text)": "t9"}
    ]

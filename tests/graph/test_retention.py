"""Rows beyond the retention limits are removed, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.clock import ManualClock
from headwater.graph.ingest.untrusted_json import micros
from headwater.graph.query.query import GraphQuery
from headwater.graph.store.database import GraphDatabase
from headwater.settings import GraphSettings
from tests.graph.events import (
    column_lineage,
    content,
    dataset,
    dataset_event,
    encoded,
    flow,
    run_event,
    run_id,
    schema,
    source,
    symlinks,
)


def clock_at(text: str) -> ManualClock:
    at = micros(text)
    assert at is not None
    return ManualClock(at / 1e6)


def dated(event: dict[str, Any], day: int) -> dict[str, Any]:
    return event | {"eventTime": f"2026-03-{day:02d}T00:00:00Z"}


def cleaned_up(
    folder: Path, events: list[Any], now: str = "2026-03-30T00:00:00Z", **settings: Any
) -> GraphQuery:
    graph = GraphDatabase(folder, GraphSettings(**settings), clock=clock_at(now))
    graph.ingest(encoded(events))
    graph.clean_up()
    graph.close()
    return GraphQuery(folder)


def chain(job: str, origin: str, target: str) -> dict[str, Any]:
    item = dataset(
        target,
        schema=schema(x="int"),
        columnLineage=column_lineage(x=[source(origin, "y")]),
        symlinks=symlinks(("hive", f"{target}_table")),
    )
    return flow(job, [origin], [item])


def test_what_no_event_mentions_any_more_is_gone_when_it_is_too_old(tmp_path: Path) -> None:
    old, new = dated(chain("j", "a", "b"), 1), dated(chain("k", "c", "d"), 29)
    cleaned_up(tmp_path / "both", [old, new], retention_days=10).close()
    cleaned_up(tmp_path / "new", [new], retention_days=10).close()
    both, only = content(tmp_path / "both"), content(tmp_path / "new")
    assert both == only
    with GraphQuery(tmp_path / "both") as query:
        assert query.search("hive b_table") == []


def test_the_graph_is_whole_again_when_what_was_collected_comes_back(tmp_path: Path) -> None:
    old, new = dated(chain("j", "a", "b"), 1), dated(chain("k", "c", "d"), 29)
    graph = GraphDatabase(
        tmp_path / "x", GraphSettings(retention_days=10), clock=clock_at("2026-03-30T00:00:00Z")
    )
    graph.ingest(encoded([old, new]))
    graph.clean_up()
    graph.ingest(encoded([old]))
    graph.close()
    cleaned_up(tmp_path / "y", [old, new], retention_days=90).close()
    assert content(tmp_path / "x") == content(tmp_path / "y")


def test_nothing_goes_when_all_events_are_from_last_year(tmp_path: Path) -> None:
    events = [dated(chain("j", "a", "b"), 1), dated(chain("k", "c", "d"), 5)]
    with cleaned_up(tmp_path, events, now="2027-06-01T00:00:00Z", retention_days=10) as query:
        assert query.dataset("db", "a").readers[0].name == "j"


def test_nothing_goes_when_an_event_claims_to_be_from_the_future(tmp_path: Path) -> None:
    future = dated(chain("j", "a", "b"), 1) | {"eventTime": "2999-01-01T00:00:00Z"}
    with cleaned_up(tmp_path, [dated(chain("k", "c", "d"), 25), future], retention_days=10) as query:
        assert query.dataset("db", "c").readers[0].name == "k"


def test_the_oldest_runs_go_when_a_job_has_too_many(tmp_path: Path) -> None:
    events = [run_event(minute=minute, run=minute, outputs=["t"]) for minute in range(1, 8)]
    events.append(run_event(minute=0, run=99, job="other"))
    with cleaned_up(tmp_path, events, now="2026-01-02T00:00:00Z", max_runs_per_job=3) as query:
        assert [run.id for run in query.runs("jobs", "job")] == [run_id(7), run_id(6), run_id(5)]
        assert len(query.runs("jobs", "other")) == 1
        assert len(query.statistics("db", "t")) == 3


def test_the_oldest_schemas_go_when_there_are_too_many(tmp_path: Path) -> None:
    events = [dataset_event(dataset("t", schema=schema(**{f"c{i}": "int"})), i) for i in range(9)]
    with cleaned_up(tmp_path, events, now="2026-01-02T00:00:00Z", max_schema_versions=2) as query:
        versions = query.dataset("db", "t").versions
        assert [version.columns[0].name for version in versions] == ["c8", "c7"]


def test_an_alias_stays_when_only_its_other_name_is_mentioned(tmp_path: Path) -> None:
    item = dataset("path", symlinks=symlinks(("hive", "table")))
    events = [dated(dataset_event(item), 1), dated(dataset_event(dataset("path")), 29)]
    with cleaned_up(tmp_path, events, retention_days=10) as query:
        assert query.dataset("hive", "table").name == "path"


def test_inputs_stay_current_when_the_run_that_reported_them_is_collected(tmp_path: Path) -> None:
    events = [
        run_event("START", run=1, minute=0, inputs=["x"]),
        run_event("RUNNING", run=1, minute=1, inputs=["y"]),
        run_event("COMPLETE", run=1, minute=2, outputs=["z"]),
        run_event("START", run=2, minute=5),  # names no datasets
    ]
    with cleaned_up(tmp_path, events, now="2026-01-02T00:00:00Z", max_runs_per_job=1) as query:
        assert len(query.runs("jobs", "job")) == 1
        found = query.neighbourhood("db", "z", direction="up")
        assert {node.name for node in found.datasets} == {"x", "y", "z"}
        assert {edge.current for edge in found.edges} == {True}

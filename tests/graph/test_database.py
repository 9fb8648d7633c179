"""The file of the graph: migrations, damage, one writer, hostile events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from headwater.errors import HeadwaterError, LogLocked, LogTooNew
from headwater.graph.query.query import GraphQuery
from headwater.graph.store.database import FILE, GraphDatabase
from headwater.graph.store.schema import MIGRATIONS, RENAMED
from headwater.log.queue.sqlite import migrate
from headwater.settings import GraphSettings
from tests.graph.events import (
    content,
    dataset,
    dataset_event,
    encoded,
    facet,
    flow,
    graph_of,
    run_event,
    schema,
    source,
)


def test_the_position_is_kept_with_the_batch_when_reopened(tmp_path: Path) -> None:
    graph = GraphDatabase(tmp_path)
    assert graph.position == 0
    graph.ingest(encoded([flow("j", ["a"], ["b"])]), 7)
    graph.close()
    graph = GraphDatabase(tmp_path)
    assert graph.position == 7
    graph.close()


def test_a_second_writer_is_refused_when_one_is_open(tmp_path: Path) -> None:
    graph = GraphDatabase(tmp_path)
    with pytest.raises(LogLocked):
        GraphDatabase(tmp_path)
    graph.close()


def test_the_file_is_set_aside_and_a_new_one_created_when_it_is_damaged(tmp_path: Path) -> None:
    graph_of(tmp_path, [flow("j", ["a"], ["b"])]).close()
    path = tmp_path / FILE
    path.write_bytes(b"no database at all" * 1000)
    with graph_of(tmp_path, [flow("j", ["c"], ["d"])]) as query:
        assert query.dataset("db", "c").name == "c"
    assert len(list((tmp_path / "damaged").iterdir())) >= 1


def test_a_newer_file_is_refused_and_left_alone_when_opened(tmp_path: Path) -> None:
    graph_of(tmp_path, [flow("j", ["a"], ["b"])]).close()
    connection = apsw.Connection(str(tmp_path / FILE))
    connection.pragma("user_version", 99)
    connection.close()
    with pytest.raises(LogTooNew):
        GraphDatabase(tmp_path)
    with pytest.raises(LogTooNew):
        GraphQuery(tmp_path)


def test_tables_have_their_new_names_when_a_file_of_version_1_is_opened(tmp_path: Path) -> None:
    graph_of(tmp_path, [flow("j", ["a"], ["b"])]).close()
    before = content(tmp_path)
    connection = apsw.Connection(str(tmp_path / FILE))
    for table in ("link_statements", "separations"):  # which it did not have
        connection.execute(f"DROP TABLE {table}")
    connection.execute("ALTER TABLE run_datasets RENAME COLUMN reported_at TO told_at")
    for old, new in RENAMED.items():
        connection.execute(f"ALTER TABLE {new} RENAME TO {old}")
    connection.pragma("user_version", 1)
    connection.close()
    with pytest.raises(HeadwaterError, match="earlier release"):
        GraphQuery(tmp_path)
    GraphDatabase(tmp_path).close()
    assert content(tmp_path) == before


def test_each_older_version_is_brought_up_to_date_when_opened(tmp_path: Path) -> None:
    for version in range(len(MIGRATIONS)):
        folder = tmp_path / str(version)
        folder.mkdir()
        connection = apsw.Connection(str(folder / FILE))
        connection.pragma("journal_mode", "wal")
        migrate(connection, MIGRATIONS[:version], folder / FILE)
        connection.close()
        with graph_of(folder, [flow("j", ["a"], ["b"])]) as query:
            assert query.dataset("db", "a").readers[0].name == "j"


def test_it_says_what_to_type_when_there_is_no_graph(tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError) as refused:
        GraphQuery(tmp_path)
    assert "headwater lineage import" in refused.value.hint


HOSTILE: list[Any] = [
    None,
    [],
    "text",
    {},
    {"eventTime": 5},
    {"eventTime": "yesterday", "job": {"namespace": "a", "name": "b"}},
    {"eventTime": "2026-01-01T00:00:00Z"},
    {"eventTime": "2026-01-01T00:00:00Z", "job": {"namespace": None, "name": 5}, "run": {"runId": []}},
    {"eventTime": "2026-01-01T00:00:00Z", "dataset": {"namespace": "a"}},
]
ODD: list[Any] = [
    run_event() | {"inputs": {"a": 1}, "outputs": [None, 5, {"namespace": "x"}, dataset("ok")]},
    run_event() | {"run": {"runId": "not a uuid", "facets": {"parent": {"run": 5, "job": []}}}},
    run_event() | {"eventType": "EXPLODE"},
    run_event(
        outputs=[dataset("t", schema=facet(fields="x"), columnLineage=facet(fields=[1]), symlinks=facet())]
    ),
    run_event(outputs=[dataset("t", schema=facet(fields=[1, {"name": 2}, {"name": "ok", "type": []}]))]),
    run_event(outputs=[dataset("t", columnLineage=facet(fields={"a": {"inputFields": [{"name": 1}, 5]}}))]),
    run_event(
        outputs=[dataset("t", lineage=facet(inputs=5, fields={"x": 5}), symlinks=facet(identifiers=[3]))]
    ),
    run_event(job_facets={"lineage": facet(entries=[5, {"type": "JOB"}, {"type": "DATASET"}])}),
    run_event(
        outputs=[
            dataset(
                "t",
                extra={"outputFacets": {"outputStatistics": facet(rowCount=10**30, size=-1, fileCount=True)}},
            )
        ]
    ),
    run_event() | {"eventTime": "0001-01-01T00:00:00+14:00"},
    run_event() | {"eventTime": "9999-12-31T23:59:60Z"},
    run_event() | {"eventTime": "2026-01-01t00:00:00.123456789z"},
]


@pytest.mark.parametrize("event", HOSTILE, ids=range(len(HOSTILE)))
def test_an_event_is_skipped_and_counted_when_it_is_invalid(tmp_path: Path, event: Any) -> None:
    graph = GraphDatabase(tmp_path)
    assert graph.ingest(encoded([event, flow("j", ["a"], ["b"])]))[:2] == (2, 1)
    assert graph.ingest([b"{", b"\xff\xfe", b""])[:2] == (3, 3)
    graph.close()
    assert len(content(tmp_path)["jobs"]) == 1


@pytest.mark.parametrize("event", ODD, ids=range(len(ODD)))
def test_the_rest_is_ingested_when_parts_of_an_event_have_the_wrong_type(tmp_path: Path, event: Any) -> None:
    graph = GraphDatabase(tmp_path)
    assert graph.ingest(encoded([event]))[:2] == (1, 0)
    graph.close()
    with GraphQuery(tmp_path) as query:
        assert query.job("jobs", "job").name == "job"
        assert len(query.runs()) == 1


NAMES = [
    "'; DROP TABLE names; --",
    'quo"te',
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "a:b:c",
    "a/b/c",
    "",
    "null\0byte",
    "\u202eright to left",
    "line\nbreak",
    "x" * 100_000,
    "%_%",
    "🦆" * 100,
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_is_only_data_when_it_is_hostile(tmp_path: Path, name: str) -> None:
    reported = dataset(
        "t", schema=schema(**{name: name}), columnLineage=facet(fields={name: {"inputFields": []}})
    )
    event = run_event(
        job=name,
        inputs=[dataset(name, name, documentation=facet(description=name))],
        outputs=[reported],
        run_facets={name: facet(x=name)},
    )
    event["outputs"][0]["facets"]["columnLineage"]["fields"][name]["inputFields"] = [source(name, name)]
    with graph_of(tmp_path, [event]) as query:
        found = query.neighbourhood("db", "t", depth=1, columns=True)
        (job,) = found.jobs
        assert job.name == name or len(name) > 2000
        upstream = next(node for node in found.datasets if node.distance == -1)
        assert query.dataset(upstream.namespace, upstream.name).readers[0].key == job.key
        column = query.dataset("db", "t").columns[0].name
        assert len(query.trace("db", "t", column).column_edges) == 1
        query.search(name[:50])
        query.search(f'"{name[:50]}" OR * NEAR(')
        assert len(query.runs("jobs", job.name)) == 1


def test_a_long_name_stays_apart_from_another_when_both_are_cut(tmp_path: Path) -> None:
    events = [dataset_event(dataset("x" * 5000 + end)) for end in "ab"]
    graph_of(tmp_path, events).close()
    assert len(content(tmp_path)["dataset_names"]) == 2


def test_only_the_size_is_kept_when_a_facet_is_too_large(tmp_path: Path) -> None:
    item = dataset("t", huge=facet(text="x" * 5000), deep=json.loads("[" * 0 + json.dumps(facet(x=1))))
    with graph_of(tmp_path, [dataset_event(item)], GraphSettings(max_facet_bytes=2000)) as query:
        facets = query.dataset("db", "t").facets
        assert b"_omitted" in bytes(facets["huge"])
        assert b"_omitted" not in bytes(facets["deep"])


def test_a_deep_facet_is_omitted_when_its_event_is_ingested(tmp_path: Path) -> None:
    deep = (
        b'{"eventTime": "2026-01-01T00:00:00Z", "job": {"namespace": "a", "name": "b", "facets": {"x": {"y": '
    )
    deep += b"[" * 900 + b"]" * 900 + b"}}}}"
    graph = GraphDatabase(tmp_path)
    assert graph.ingest([deep])[:2] == (1, 0)
    graph.close()
    with GraphQuery(tmp_path) as query:
        assert b"_omitted" in bytes(query.job("a", "b").facets["x"])

"""What a limit leaves out: each direction has its share, and the latest mentions come first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError
from headwater.graph.ingest.import_files import read_events
from headwater.graph.store import retention
from headwater.graph.store.database import GraphDatabase
from headwater.settings import GraphSettings
from tests.graph.events import column_lineage, dataset, encoded, flow, graph_of, run_event, schema, source

WIDE = [
    *(flow(f"in{number}", [f"source{number}"], ["hub"], minute=number) for number in range(12)),
    *(flow(f"out{number}", ["hub"], [f"target{number}"], minute=20 + number) for number in range(3)),
]


def test_downstream_is_shown_when_upstream_would_fill_the_limit(tmp_path: Path) -> None:
    with graph_of(tmp_path, WIDE) as query:
        found = query.neighbourhood("db", "hub", depth=3, limit=10)
        impact = query.impact("db", "hub", limit=10)
    names = {node.name: node.distance for node in found.datasets}
    assert {name for name, distance in names.items() if distance == 1} == {"target0", "target1", "target2"}
    # of the sources, those that events mentioned last
    assert {name for name, distance in names.items() if distance == -1} == {
        f"source{number}" for number in range(6, 12)
    }
    assert found.truncated
    assert found.omitted.datasets == 6
    assert not impact.truncated


def test_a_trace_shows_both_directions_when_one_would_fill_the_limit(tmp_path: Path) -> None:
    hub = dataset(
        "hub",
        schema=schema(x="int"),
        columnLineage=column_lineage(x=[source(f"source{number}", "y") for number in range(30)]),
    )
    target = dataset("target", columnLineage=column_lineage(z=[source("hub", "x")]))
    with graph_of(tmp_path, [flow("in", [], [hub]), flow("out", ["hub"], [target])]) as query:
        trace = query.trace("db", "hub", "x", limit=10)
    distances = [node.distance for node in trace.columns]
    assert distances.count(1) == 1
    assert distances.count(-1) == 8
    assert trace.omitted.columns == 22


def test_a_dataset_beyond_several_gaps_has_its_least_distance_when_impact_is_asked(tmp_path: Path) -> None:
    made = dataset("b", columnLineage=column_lineage(x=[source("a", "x")]))
    events = [
        flow("columns", ["a"], [made]),
        flow("gap1", ["a"], ["c"]),
        flow("gap2", ["b"], ["d"]),
        flow("on1", ["c"], ["d"]),
        flow("on2", ["d"], ["e"]),
    ]
    with graph_of(tmp_path, events) as query:
        found = query.impact("db", "a", "x")
    assert {each.name: each.distance for each in found.datasets} == {"b": 1, "c": 1, "d": 2, "e": 3}


def test_every_word_counts_when_some_are_short(tmp_path: Path) -> None:
    events = [flow(f"load{n}", [], [f"shop.orders_v{n}"]) for n in (1, 2)]
    with graph_of(tmp_path, events) as query:
        assert [each.name for each in query.search("v2 orders")] == ["shop.orders_v2"]
        assert query.search("v3 orders") == []


def test_the_closest_is_found_when_more_match_than_are_read(tmp_path: Path) -> None:
    events = [
        flow("load", [], [f"archive.orders_{n:04d}_old" for n in range(900)]),
        flow("x", [], ["shop.orders"]),
    ]
    with graph_of(tmp_path, events) as query:
        assert query.search("orders", limit=1)[0].name == "shop.orders"
        assert query.search("orders", namespace="elsewhere") == []


def test_no_transaction_is_larger_than_a_piece_when_much_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PIECE", 3)
    events = [run_event(minute=n, run=n, job=f"job{n % 2}", outputs=[dataset("t")]) for n in range(20)]
    events += [
        run_event(minute=30 + n, run=50 + n, outputs=[dataset("t", schema=schema(**{f"c{n}": "int"}))])
        for n in range(8)
    ]
    graph = GraphDatabase(tmp_path, GraphSettings(max_runs_per_job=2, max_schema_versions=1), durable=False)
    graph.ingest(encoded(events))
    pieces = list(retention.clean_up(graph._connection, graph._settings, 2_000_000_000_000_000))
    assert sum(pieces) >= 16 + 6 + 7
    assert graph._connection.execute("SELECT count(*) FROM versions").fetchall() == [(1,)]
    assert graph._connection.execute("SELECT count(*) FROM schemas").fetchall() == [(1,)]
    assert graph._connection.execute(
        "SELECT max(n) FROM (SELECT count(*) AS n FROM runs GROUP BY job)"
    ).fetchall() == [(2,)]
    graph.close()
    assert max(pieces) <= 7  # a version of one name may take several rows


def test_an_array_of_events_is_read_when_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "events.json").write_text(json.dumps(WIDE, indent=2))
    bodies = list(read_events(tmp_path / "events.json"))
    assert [json.loads(body) for body in bodies] == WIDE
    (tmp_path / "broken.json").write_text("[{]")
    with pytest.raises(HeadwaterError, match="neither a JSON array nor JSON lines"):
        list(read_events(tmp_path / "broken.json"))


def test_passwords_of_uris_are_not_stored_when_events_have_them(tmp_path: Path) -> None:
    facet = {
        "_producer": "p",
        "_schemaURL": "s",
        "uri": "postgresql://etl:hunter2@db:5432/shop?password=hunter2&ssl=1",
        "jdbc": "jdbc:snowflake://x.example/?user=a;password=hunter2;db=b",
        "plain": "see https://example.com/a:b@c and http://example.com/?q=1",
    }
    item = dataset("t", "mysql://root:hunter2@db:3306", storage=facet)
    with graph_of(tmp_path, [flow("j", [], [item])]) as query:
        found = query.dataset("mysql://root:***@db:3306", "t")
    stored = json.loads(bytes(found.facets["storage"]))
    assert stored["uri"] == "postgresql://etl:***@db:5432/shop?password=***&ssl=1"
    assert stored["jdbc"] == "jdbc:snowflake://x.example/?user=a;password=***;db=b"
    assert stored["plain"] == facet["plain"]
    for path in tmp_path.iterdir():
        assert b"hunter2" not in path.read_bytes()

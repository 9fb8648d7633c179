"""Links between names have a producer, and can be undone by it and by a user."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import HeadwaterError
from headwater.graph.query.names import NotFound
from headwater.graph.query.query import GraphQuery
from headwater.graph.store.aliases import MAX_NAMES
from headwater.graph.store.database import FILE, GraphDatabase
from headwater.graph.store.ids import dataset_id
from headwater.graph.store.separated_names import reunite, separate
from tests.graph.events import content, dataset, dataset_event, encoded, flow, graph_of, run_event, symlinks


def reported(
    name: str, *others: str, by: str = "jobs", minute: int = 0, run: int = 1, **facets: Any
) -> dict[str, Any]:
    """A job of the namespace `by` reads a dataset, which lists these aliases."""
    item = dataset(name, symlinks=symlinks(*(("db", other) for other in others)) | facets)
    event = run_event(minute=minute, run=run, inputs=[item])
    event["job"]["namespace"] = by
    return event


def names_of(query: GraphQuery, name: str) -> set[str]:
    found = query.dataset("db", name)
    return {found.name, *(alias.name for alias in found.aliases)}


def ids(*names: str) -> tuple[int, ...]:
    return tuple(dataset_id("db", name) for name in names)


def test_foreign_datasets_part_again_when_the_producer_that_linked_them_no_longer_does(
    tmp_path: Path,
) -> None:
    events = [
        flow("load", ["raw"], ["orders"]),
        flow("pay", ["bank"], ["salaries"]),
        reported("decoy", "orders", "salaries", by="evil", minute=1),
    ]
    with graph_of(tmp_path, events) as query:
        assert names_of(query, "orders") == {"decoy", "orders", "salaries"}
        links = query.dataset("db", "orders").links
        assert [(link.name.name, link.alias.name, link.producers) for link in links] == [
            ("decoy", "orders", ["namespace:evil"]),
            ("decoy", "salaries", ["namespace:evil"]),
        ]
    with graph_of(tmp_path, [reported("decoy", by="evil", minute=2)]) as query:
        assert names_of(query, "orders") == {"orders"}
        assert names_of(query, "salaries") == {"salaries"}
        assert query.dataset("db", "orders").links == []


def test_a_link_stays_when_another_producer_does_not_list_it(tmp_path: Path) -> None:
    events = [reported("path", "table", by="etl"), reported("path", by="other", minute=5)]
    for number, order in enumerate(permutations(events)):
        with graph_of(tmp_path / str(number), order) as query:
            assert names_of(query, "path") == {"path", "table"}


def test_a_dataset_event_is_of_its_producer_when_it_links(tmp_path: Path) -> None:
    event = dataset_event(dataset("path", symlinks=symlinks(("db", "table"))))
    with graph_of(tmp_path, [event]) as query:
        assert query.dataset("db", "path").links[0].producers == ["producer:https://example.com/producer"]


def test_names_stay_apart_when_a_user_unlinked_them_whatever_producers_say(tmp_path: Path) -> None:
    graph_of(tmp_path, [reported("path", "table", "view"), flow("j", ["table"], ["report"])]).close()
    separate(tmp_path, *ids("path", "table"))
    with graph_of(tmp_path, [reported("path", "table", "view", minute=3)]) as query:
        assert names_of(query, "path") == {"path", "view"}
        assert names_of(query, "table") == {"table"}
        (pair,) = query.dataset("db", "table").separations
        assert (pair.kept.name, pair.apart.name) == ("path", "table")
        # also by another name
    with graph_of(tmp_path, [reported("decoy", "path", "table", by="evil", minute=4)]) as query:
        assert "table" not in names_of(query, "path")
    assert reunite(tmp_path, *ids("table", "path"))
    assert not reunite(tmp_path, *ids("table", "path"))
    with GraphQuery(tmp_path) as query:
        assert names_of(query, "path") == {"path", "table", "view", "decoy"}


def test_the_links_of_the_name_stay_when_it_is_unlinked_from_another(tmp_path: Path) -> None:
    events = [reported("a", "b"), reported("c", "b", run=2), reported("c", "d", "b", run=3, minute=1)]
    graph_of(tmp_path, events).close()
    separate(tmp_path, *ids("a", "c"))
    with GraphQuery(tmp_path) as query:
        assert names_of(query, "a") == {"a", "b"}
        assert names_of(query, "c") == {"c", "d"}


def test_unlinked_names_stay_apart_when_a_damaged_graph_is_rebuilt(tmp_path: Path) -> None:
    events = [reported("path", "table")]
    graph_of(tmp_path, events).close()
    separate(tmp_path, *ids("path", "table"))
    connection = apsw.Connection(str(tmp_path / FILE))
    connection.execute("DROP TABLE runs")  # the writer finds this when it opens the file
    connection.close()
    with graph_of(tmp_path, events) as query:
        assert list((tmp_path / "damaged").iterdir())
        assert names_of(query, "path") == {"path"}


def test_names_are_unlinked_beside_the_process_that_ingests(tmp_path: Path) -> None:
    graph = GraphDatabase(tmp_path)
    graph.ingest(encoded([reported("path", "table")]))
    for minute in range(1, 20):
        separate(tmp_path, *ids("path", "table"))
        graph.ingest(encoded([reported("path", "table", minute=minute)]))
        with GraphQuery(tmp_path) as query:
            assert names_of(query, "path") == {"path"}
        assert reunite(tmp_path, *ids("path", "table"))
        with GraphQuery(tmp_path) as query:
            assert names_of(query, "path") == {"path", "table"}
    graph.close()


def test_a_name_is_itself_when_a_person_types_it(tmp_path: Path) -> None:
    with graph_of(tmp_path, [reported("path", "table"), flow("j", [dataset("t", "x"), "t"], [])]) as query:
        assert query.resolve_name("table") == dataset_id("db", "table")
        assert query.resolve_name("db table") == dataset_id("db", "table")
        with pytest.raises(NotFound, match="No name"):
            query.resolve_name("nothing")
        with pytest.raises(NotFound, match="2 names") as refused:
            query.resolve_name("t")
        assert "db t; x t" in refused.value.hint


def downgrade(folder: Path) -> None:
    """Make the file one of version 2, as the release before wrote it."""
    connection = apsw.Connection(str(folder / FILE))
    connection.execute("DROP TABLE link_statements")
    connection.execute("DROP TABLE separations")
    connection.pragma("user_version", 2)
    connection.close()


def test_stored_links_hold_until_a_producer_sends_the_facet_when_a_file_of_version_2_is_opened(
    tmp_path: Path,
) -> None:
    graph_of(tmp_path, [reported("path", "table"), reported("other", "alias", run=2)]).close()
    downgrade(tmp_path)
    with pytest.raises(HeadwaterError, match="earlier release"):
        separate(tmp_path, *ids("path", "table"))
    with graph_of(tmp_path, []) as query:
        assert names_of(query, "path") == {"path", "table"}
        assert query.dataset("db", "path").links[0].producers == [""]
    with graph_of(tmp_path, [reported("path", minute=9)]) as query:
        assert names_of(query, "path") == {"path"}
        assert names_of(query, "other") == {"other", "alias"}
    separate(tmp_path, *ids("other", "alias"))
    with GraphQuery(tmp_path) as query:
        assert names_of(query, "other") == {"other"}


def test_a_pinned_schema_is_freed_when_a_file_of_version_2_is_opened(tmp_path: Path) -> None:
    graph_of(tmp_path, [flow("j", [], ["t"])]).close()
    downgrade(tmp_path)
    far = 253_402_300_799_000_000  # the year 9999
    connection = apsw.Connection(str(tmp_path / FILE))
    connection.execute("UPDATE dataset_names SET last_at = ?", (far,))
    connection.execute("UPDATE runs SET state_at = ?", (far,))
    connection.close()
    GraphDatabase(tmp_path).close()
    rows = content(tmp_path)
    assert max(row[5] for row in rows["dataset_names"]) < far
    assert max(row[4] for row in rows["runs"]) < far


def test_nothing_is_merged_when_links_connect_more_names_than_a_dataset_may_have(tmp_path: Path) -> None:
    chain = [reported(f"n{n:05d}", f"n{n + 1:05d}") for n in range(MAX_NAMES - 1)]
    with graph_of(tmp_path, chain) as query:
        assert len(names_of(query, "n00000")) == MAX_NAMES
    with graph_of(tmp_path, [reported("n99999", "n00500")]) as query:
        assert names_of(query, "n00000") == {"n00000"}
        assert names_of(query, "n00500") == {"n00500"}
    with graph_of(tmp_path, [reported("n99999", minute=1)]) as query:
        assert len(names_of(query, "n00900")) == MAX_NAMES


NAMES = st.sampled_from("abcdef")
LINKS = st.builds(
    lambda name, others, by, minute: reported(name, *others, by=by, minute=minute),
    NAMES,
    st.lists(NAMES, max_size=3),
    st.sampled_from(["x", "y"]),
    st.integers(0, 3),
)


@given(st.data(), st.lists(LINKS, min_size=1, max_size=8), st.lists(st.tuples(NAMES, NAMES), max_size=3))
@settings(max_examples=40, deadline=None)
def test_unlinked_names_are_never_one_dataset_and_order_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    events: list[dict[str, Any]],
    pairs: list[tuple[str, str]],
) -> None:
    found = []
    pairs = [(kept, apart) for kept, apart in pairs if kept != apart]
    everything = [flow("all", list("abcdef"), []), *events]
    for steps in ([*everything, *pairs], data.draw(st.permutations([*everything, *pairs]))):
        folder = tmp_path_factory.mktemp("graph")
        graph = GraphDatabase(folder, durable=False)
        for step in steps:
            if isinstance(step, tuple):
                separate(folder, *ids(*step))
            else:
                graph.ingest(encoded([step]))
        graph.close()
        rows = content(folder)
        rows["separations"] = [row[:2] for row in rows["separations"]]
        found.append(rows)
        of = {row[0]: row[3] for row in rows["dataset_names"]}
        for pair in pairs:
            assert of[ids(*pair)[0]] != of[ids(*pair)[1]]
    assert found[0] == found[1]

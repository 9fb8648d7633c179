"""The catalogue: namespaces, and pages of datasets and jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.graph.query.catalogue import CatalogueKind
from headwater.graph.query.names import NotFound
from headwater.graph.query.query import GraphQuery
from tests.graph.events import dataset, facet, graph_of, run_event, schema

NAMES = [f"table_{number:03d}" for number in range(23)]


@pytest.fixture(scope="module")
def query(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphQuery]:
    folder: Path = tmp_path_factory.mktemp("catalogue")
    owned = facet(owners=[{"name": "team:shop", "type": "MAINTAINER"}, {"name": "ann"}])
    tags = facet(tags=[{"key": "pii", "value": "true"}, {"key": "tier", "value": "gold"}])
    described = dataset(
        "orders v2", "warehouse", schema=schema(id="INT", price="INT"), ownership=owned, tags=tags
    )
    described["outputFacets"] = {"outputStatistics": facet(rowCount=1_900)}
    events = [
        run_event("COMPLETE", minute=number, run=number, job="many", outputs=[dataset(name, "lake")])
        for number, name in enumerate(NAMES)
    ]
    events += [
        run_event("COMPLETE", minute=40, run=40, job="load", outputs=[described]),
        run_event("FAIL", minute=41, run=41, job="report", inputs=[dataset("orders v2", "warehouse")]),
    ]
    # what no standard allows, but some producer sends
    odd = dataset("odd", "warehouse", ownership=facet(owners=["ann", 1]), tags=facet(tags={"pii": ["x"]}))
    events += [
        run_event("FAIL", minute=41, run=42, job="report", outputs=[odd]),
        run_event("START", minute=42, run=43, job="slow"),
    ]
    graph_of(folder, events).close()
    with GraphQuery(folder) as query:
        yield query


def test_namespaces_have_their_numbers_when_they_are_listed(query: GraphQuery) -> None:
    found = {each.name: (each.datasets, each.jobs) for each in query.namespaces()}
    assert found["lake"] == (23, 0)
    assert found["warehouse"] == (2, 0)
    assert sum(jobs for _, jobs in found.values()) == 4


@pytest.mark.parametrize("sort", ["name", "updated"])
def test_pages_have_each_dataset_once_when_they_are_followed(query: GraphQuery, sort: str) -> None:
    names, after = list[str](), ""
    while True:
        page = query.catalogue(namespace="lake", sort=sort, after=after, limit=5)  # type: ignore[arg-type]
        assert page.total == 23
        names += [entry.name for entry in page.entries]
        if page.next_after is None:
            break
        after = page.next_after
    assert names == (NAMES if sort == "name" else NAMES[::-1])


def test_an_entry_has_owners_tags_rows_and_its_last_write_when_they_are_known(query: GraphQuery) -> None:
    (entry,) = query.catalogue(q="orders v2").entries
    assert entry.owners == ["team:shop", "ann"]
    assert entry.tags == ["pii", "tier: gold"]
    assert (entry.rows, entry.columns, entry.writers, entry.readers) == (1_900, 2, 1, 1)
    assert entry.state == "COMPLETE"


def test_all_words_must_match_when_a_name_is_searched(query: GraphQuery) -> None:
    assert query.catalogue(q="orders v2").total == 1
    assert query.catalogue(q="orders v3").total == 0
    assert query.catalogue(q="TABLE 01").total == 11


def test_only_failing_jobs_are_listed_when_they_are_selected(query: GraphQuery) -> None:
    page = query.catalogue("job", state="failed")
    assert [entry.name for entry in page.entries] == ["report"]
    assert page.entries[0].state == "FAIL"
    assert query.catalogue("job").total == 4


@pytest.mark.parametrize("after", ["x", "[]", "[1, 2]", '["a"]'])
def test_a_page_by_name_is_refused_when_it_begins_nowhere(query: GraphQuery, after: str) -> None:
    with pytest.raises(NotFound, match="No page begins there"):
        query.catalogue(after=after)


@pytest.mark.parametrize(
    "after", ['["a", "b"]', "[1]", "[99999999999999999999, 1]", "[1, -99999999999999999999]"]
)
def test_a_page_by_time_is_refused_when_it_begins_nowhere(query: GraphQuery, after: str) -> None:
    with pytest.raises(NotFound, match="No page begins there"):
        query.catalogue(sort="updated", after=after)


@pytest.mark.parametrize(
    ("kind", "filters", "names"),
    [
        ("dataset", {"owner": "ann"}, ["orders v2"]),
        ("dataset", {"owner": "an"}, []),
        ("dataset", {"tag": "pii"}, ["orders v2"]),
        ("dataset", {"tag": "tier"}, ["orders v2"]),
        ("dataset", {"tag": "tier: gold"}, ["orders v2"]),
        ("dataset", {"tag": "tier: silver"}, []),
        ("dataset", {"owner": "ann", "tag": "pii", "state": "complete"}, ["orders v2"]),
        ("dataset", {"owner": "ann", "state": "failed"}, []),
        ("dataset", {"q": "odd"}, ["odd"]),
        ("dataset", {"state": "failed"}, ["odd"]),
        ("job", {"state": "running"}, ["slow"]),
        ("job", {"state": "complete"}, ["load", "many"]),
        ("job", {"owner": "ann"}, []),
    ],
)
def test_entries_are_filtered_when_owner_tag_or_state_is_given(
    query: GraphQuery, kind: CatalogueKind, filters: dict[str, Any], names: list[str]
) -> None:
    assert [entry.name for entry in query.catalogue(kind, **filters).entries] == names


def test_namespaces_are_found_by_a_part_of_their_name(query: GraphQuery) -> None:
    assert [each.name for each in query.namespaces(q="AREH")] == ["warehouse"]
    assert query.namespaces(q="%") == []

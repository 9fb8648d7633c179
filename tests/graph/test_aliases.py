"""Names that are one dataset, whenever the symlink arrives."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

from tests.graph.events import (
    column_lineage,
    dataset,
    dataset_event,
    flow,
    graph_of,
    schema,
    source,
    symlinks,
)


def linked(name: str, *others: str, minute: int = 0, **more: Any) -> dict[str, Any]:
    facet = symlinks(*(("hive", other) for other in others)) | more
    return dataset_event(dataset(name, symlinks=facet), minute)


def test_two_datasets_become_one_when_the_symlink_is_learnt_last(tmp_path: Path) -> None:
    events = [
        flow("write", ["raw"], [dataset("path", schema=schema(a="int"))], minute=1),
        flow("read", [dataset("table", "hive")], ["report"], minute=2),
    ]
    with graph_of(tmp_path, events) as query:
        assert len(query.neighbourhood("db", "path", depth=9).datasets) == 2
    with graph_of(tmp_path, [linked("path", "table", minute=3)]) as query:
        found = query.neighbourhood("hive", "table", depth=9)
        assert {node.name for node in found.datasets} == {"raw", "path", "report"}
        detail = query.dataset("hive", "table")
        assert (detail.name, [alias.name for alias in detail.aliases]) == ("path", ["table"])
        assert [job.name for job in detail.readers] == ["read"]
        assert [column.name for column in detail.columns] == ["a"]


def test_columns_of_both_names_are_one_when_traced(tmp_path: Path) -> None:
    reported = dataset(
        "report", columnLineage=column_lineage(x=[source("table", "a") | {"namespace": "hive"}])
    )
    made = dataset("path", columnLineage=column_lineage(a=[source("raw", "r")]))
    events = [flow("read", [], [reported]), flow("write", ["raw"], [made]), linked("path", "table")]
    with graph_of(tmp_path, events) as query:
        found = query.trace("db", "report", "x", direction="up")
        assert [node.column for node in found.columns] == ["x", "a", "r"]


def test_the_same_name_stands_for_all_when_links_come_in_any_order(tmp_path: Path) -> None:
    events = [linked("b", "t"), linked("a", "t", "u"), linked("c", "u")]
    found = set()
    for number, order in enumerate(permutations(events)):
        with graph_of(tmp_path / str(number), order) as query:
            detail = query.dataset("hive", "t")
            found.add((detail.name, tuple(alias.name for alias in detail.aliases)))
    assert found == {("a", ("b", "c", "t", "u"))}


def test_names_part_again_when_the_link_is_deleted(tmp_path: Path) -> None:
    events = [linked("a", "t", minute=1), linked("a", "t", minute=2, _deleted=True)]
    with graph_of(tmp_path, events) as query:
        assert query.dataset("db", "a").aliases == []
        assert query.dataset("hive", "t").name == "t"


def test_a_symlink_to_itself_changes_nothing_when_reported(tmp_path: Path) -> None:
    item = dataset("a", symlinks=symlinks(("db", "a")))
    with graph_of(tmp_path, [dataset_event(item)]) as query:
        assert query.dataset("db", "a").aliases == []

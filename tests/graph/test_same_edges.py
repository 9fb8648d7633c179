"""Page, terminal, our API and the API of Marquez give the same edges, on the events of real Spark jobs."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from headwater.cli.lineage.text_tree import column_tree, dataset_tree, draw
from headwater.graph.marquez.endpoints import ENDPOINTS
from headwater.graph.query.answers import is_part
from headwater.graph.query.query import GraphQuery
from headwater.graph.store.database import GraphDatabase
from tests.graph.events import column_lineage, dataset, encoded, flow, graph_of, schema, source
from tests.page.client import PageClient, page_client

CASES = Path(__file__).parents[1] / "cases" / "lineage"
Name = tuple[str, str]
Pairs = set[tuple[Any, Any]]


def recorded() -> list[dict[str, Any]]:
    """The runs that tests/cases/lineage records of Spark, as OpenLineage events."""
    events = []
    for number, path in enumerate(sorted(CASES.glob("*.json"))):
        for run in json.loads(path.read_text()):
            if "outputs" in run or "inputs" in run:
                inputs = [_dataset(each) for each in run.get("inputs", ())]
                outputs = [_dataset(each) for each in run.get("outputs", ())]
                events.append(flow(f"{run['job']} {path.stem}", inputs, outputs, minute=number))
    return events


def _dataset(case: dict[str, Any]) -> dict[str, Any]:
    namespace, _, name = case["dataset"].partition(" ")
    fields = {}
    for field, sources in case.get("columnLineage", {}).items():
        texts = [each for each in sources if isinstance(each, str)]
        found = [re.fullmatch(r"(\S+):([^\s:]+)(?: .*)?", each) for each in texts]
        fields[field] = [
            {"namespace": namespace, "name": match[1], "field": match[2]} for match in found if match
        ]
    facets = {"columnLineage": column_lineage(**fields)} if fields else {}
    return {"namespace": namespace, "name": name, "facets": facets}


# As in the events of Marquez' seed: a source that is in no input of the job, only in `columnLineage`.
SEED = [
    flow(
        "etl_delivery_7_days",
        ["public.delivery"],
        [
            dataset(
                "public.delivery_7_days",
                schema=schema(order_id="INTEGER", category_id="INTEGER"),
                columnLineage=column_lineage(
                    order_id=[source("public.delivery", "order_id")],
                    category_id=[source("public.menu_items", "id")],
                ),
            )
        ],
    )
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageClient]:
    with page_client(tmp_path_factory.mktemp("same"), [*recorded(), *SEED]) as client:
        yield client


@pytest.fixture(scope="module")
def query(client: PageClient) -> Iterator[GraphQuery]:
    with GraphQuery(client.settings.graph_dir) as query:
        yield query


MARQUEZ = {endpoint.path: function for endpoint, function in ENDPOINTS}


def names_of(query: GraphQuery) -> list[Name]:
    return [(each.namespace, each.name) for each in query.search("", kinds=("dataset",), limit=5_000)]


def of_api(query: GraphQuery, name: Name) -> tuple[set[Name], Pairs]:
    found = query.neighbourhood(*name, direction="up", depth=1, columns=True)
    names = {node.key: (node.namespace, node.name) for node in found.datasets}
    columns = {
        ((*names[edge.source], edge.source_column), (*names[edge.target], edge.target_column))
        for edge in found.column_edges
        if names[edge.target] == name and names[edge.source] != name
    }
    return {(node.namespace, node.name) for node in found.datasets if node.distance == -1}, columns


def of_terminal(query: GraphQuery, name: Name) -> set[Name]:
    found = query.neighbourhood(*name, direction="up", depth=1)
    lines = [click.unstyle(line) for line in draw(dataset_tree(found, "up"))]
    jobs = {(node.namespace, node.name) for node in found.jobs}
    leaves = [re.sub(r"^[│├└─ ]+", "", line).split("  ") for line in lines]
    return {(leaf[1], leaf[0]) for leaf in leaves} - jobs


def columns_of_terminal(query: GraphQuery, name: Name, column: str) -> set[Any]:
    """The sources of a column in the tree of its trace, without those of the same dataset."""
    found = query.trace(*name, column, direction="up", depth=1)
    lines = [click.unstyle(leaf.text).split("  ") for leaf in column_tree(found, "up")]
    sources = {(line[2], line[1], line[0]) for line in lines if not line[0].startswith("? ")}
    return {
        (space, text, None if field == "(whole dataset)" else field)
        for space, text, field in sources
        if (space, text) != name
    }


def of_marquez(query: GraphQuery, name: Name) -> tuple[set[Name], Pairs]:
    graph = MARQUEZ["/api/v1/lineage"](query, f"dataset:{name[0]}:{name[1]}", 1)["graph"]
    nodes = {node["id"]: node for node in graph}
    own = nodes[f"dataset:{name[0]}:{name[1]}"]
    origins = {edge["origin"] for edge in own["inEdges"]}
    of_jobs = {
        edge["origin"] for job in origins if job.startswith("job:") for edge in nodes[job]["inEdges"]
    } | {origin for origin in origins if origin.startswith("dataset:")}
    datasets = {(nodes[id]["data"]["namespace"], nodes[id]["data"]["name"]) for id in of_jobs} - {name}
    found = query.dataset(*name)
    if not found.columns:
        return datasets, set()
    answer = MARQUEZ["/api/v1/column-lineage"](query, f"dataset:{name[0]}:{name[1]}", 1)["graph"]
    columns = {
        (
            (field["namespace"], field["dataset"], field["field"]),
            (*name, node["data"]["field"]),
        )
        for node in answer
        if (node["data"]["namespace"], node["data"]["dataset"]) == name
        for field in node["data"]["inputFields"]
        if (field["namespace"], field["dataset"]) != name
    }
    return datasets, columns


def of_page(client: PageClient, name: Name) -> tuple[set[Name], Pairs]:
    """The lines of the drawing, with all rows of the dataset."""
    from headwater.page.urls import link

    answer = client.get(link("lineage", namespace=name[0], name=name[1], direction="up", depth=1, open="all"))
    assert answer.status_code == 200
    keys = {
        match[1]: tuple(html.unescape(match[2]).split(" ", 1))
        for match in re.finditer(
            r'<a class="head item"[^>]* data-key="(\w+)"[^>]*><title>(.*?)</title>', answer.text
        )
    }
    own = next(key for key, pair in keys.items() if pair == name)
    datasets: set[Name] = set()
    columns: Pairs = set()
    for tag in re.findall(r'<path class="edge [^>]*data-a=[^>]*>', answer.text):
        ends = dict(re.findall(r'data-(\w+)="([^"]*)"', tag))
        if ends["b"] == own and ends["a"] != own:
            space, text = keys[ends["a"]]
            datasets.add((space, text))
            if ends["ac"] or ends["bc"]:
                source_column, target_column = html.unescape(ends["ac"]), html.unescape(ends["bc"])
                columns.add(((space, text, source_column or None), (*name, target_column or None)))
    return datasets, columns


def test_all_answers_have_the_same_edges_when_the_events_are_real(
    client: PageClient, query: GraphQuery
) -> None:
    names = names_of(query)
    assert len(names) > 30
    edges = column_pairs = 0
    for name in names:
        datasets, columns = of_api(query, name)
        for column in query.dataset(*name).columns:
            expected = {source for source, target in columns if is_part(column.name, target[2])}
            assert columns_of_terminal(query, name, column.name) == expected
        whole = {pair for pair in columns if None in (pair[0][2], pair[1][2])}
        assert of_terminal(query, name) == datasets
        marquez_datasets, marquez_columns = of_marquez(query, name)
        assert marquez_datasets == datasets
        assert marquez_columns == columns - whole  # Marquez has no edges of whole datasets
        page_datasets, page_columns = of_page(client, name)
        assert page_datasets == datasets
        assert page_columns == columns
        edges += len(datasets)
        column_pairs += len(columns)
    assert edges > 30
    assert column_pairs > 60


def test_a_source_is_an_input_when_only_column_lineage_names_it(query: GraphQuery) -> None:
    job = query.job("jobs", "etl_delivery_7_days")
    assert {node.name for node in job.inputs} == {"public.delivery", "public.menu_items"}
    (menu,) = [node for node in job.inputs if node.name == "public.menu_items"]
    assert menu.readers == 1
    found = query.impact("db", "public.menu_items")
    assert [(each.name, each.distance) for each in found.datasets] == [("public.delivery_7_days", 1)]


def test_known_column_sources_become_inputs_when_a_file_of_version_3_is_opened(tmp_path: Path) -> None:
    graph_of(tmp_path, SEED).close()
    graph = GraphDatabase(tmp_path)
    graph._connection.execute("DELETE FROM job_datasets WHERE direction = 1")
    graph._connection.pragma("user_version", 3)
    graph.close()
    GraphDatabase(tmp_path).close()
    with GraphQuery(tmp_path) as query:
        inputs = query.job("jobs", "etl_delivery_7_days").inputs
    assert {node.name for node in inputs} == {"public.delivery", "public.menu_items"}


def test_the_sources_stay_when_a_batch_repeats_a_facet(tmp_path: Path) -> None:
    graph = GraphDatabase(tmp_path, durable=False)
    for minute in range(3):
        graph.ingest(encoded([SEED[0] | {"eventTime": f"2026-01-01T00:{minute:02d}:00Z"}]))
    graph.close()
    with GraphQuery(tmp_path) as query:
        found = query.neighbourhood("db", "public.delivery_7_days", direction="up", depth=1)
    assert {edge.current for edge in found.edges} == {True}

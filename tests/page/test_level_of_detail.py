"""Large graphs: collapsed boxes, stacks of siblings, groups by namespace, and jobs as boxes."""

from __future__ import annotations

import gzip
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.graph.store.database import GraphDatabase
from headwater.page.lineage_graph.level_of_detail import MAX_BOXES, SIBLINGS
from headwater.page.urls import link
from tests.graph.events import column_lineage, dataset, encoded, flow, schema, source
from tests.page.client import Answer, PageClient, page_client

COLUMNS = [f"c{number}" for number in range(20)]
READERS = 400


def hub() -> Iterator[dict[str, Any]]:
    """A dataset with 20 columns and 400 readers, each with all columns of it."""
    of_hub = schema(**dict.fromkeys(COLUMNS, "int"))
    yield flow("fill", ["raw"], [dataset("hub", schema=of_hub)], minute=1)
    for number in range(READERS):
        edges = column_lineage(**{column: [source("hub", column)] for column in COLUMNS})
        made = dataset(f"marts/r{number:03d}", schema=of_hub, columnLineage=edges)
        yield flow(f"reader {number}", ["hub"], [made], minute=2 + number % 50)
    yield flow("beyond", ["marts/r349", "marts/r399"], ["far"], minute=59)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageClient]:
    with page_client(tmp_path_factory.mktemp("hub"), hub()) as client:
        yield client


def show(client: PageClient, **parameters: str) -> Answer:
    answer = client.get(link("lineage", **{"namespace": "db", "name": "hub"} | parameters))
    assert answer.status_code == 200, answer.text
    return answer


def boxes(answer: Answer) -> list[str]:
    return [html.unescape(name) for name in re.findall(r'class="dataset.*?aria-label="([^"]*)"', answer.text)]


def test_a_hub_is_a_small_page_when_it_has_400_readers(client: PageClient) -> None:
    answer = show(client)
    assert len(answer.content) < 100_000
    assert "20 columns · 400 readers" in answer.text
    assert f"{READERS - SIBLINGS} more" in answer.text
    assert answer.text.count('<g class="dataset') == 1 + 1 + SIBLINGS + 1  # raw, hub, readers, a stack
    assert 'class="row' not in answer.text
    height = float(re.findall(r'viewBox="0 0 [\d.]+ ([\d.]+)"', answer.text)[-1])
    assert height < 1_500


def test_a_page_is_compressed_when_the_client_accepts_it(client: PageClient) -> None:
    address = link("lineage", namespace="db", name="hub")
    plain = client.get(address)
    packed = client.get(address, accept_encoding="br, gzip;q=0.8")
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.content) < len(plain.content) / 5
    assert gzip.decompress(packed.content) == plain.content
    for refused in ("gzip;q=0", "gzip;q=0.0", "br", "identity"):
        assert "content-encoding" not in client.get(address, accept_encoding=refused).headers


def test_a_drawing_is_the_current_one_when_the_graph_changes(tmp_path: Path) -> None:
    with page_client(tmp_path, [flow("one", ["a"], ["b"], minute=1)]) as client:
        assert 'aria-label="c"' not in show(client, name="a").text
        graph = GraphDatabase(client.settings.graph_dir, durable=False)
        graph.ingest(encoded([flow("two", ["a"], ["c"], minute=2)]))
        graph.close()
        assert 'aria-label="c' in show(client, name="a").text


def test_a_stack_is_a_list_when_it_is_opened(client: PageClient) -> None:
    stack = html.unescape(re.findall(r'data-key="(d\w+:down)"', show(client).text)[0])
    listed = show(client, stack=stack).text
    assert listed.count("<li data-text=") == 250
    assert "Shown: 250 of 392." in listed
    first = re.findall(r'href="([^"]*show=d[0-9a-f]+[^"]*)" aria-label="Add (\S+) ', listed)[0]
    added = client.get(html.unescape(first[0])).text
    assert f'aria-label="{first[1]}"' in added
    assert "391 more" in added


def test_lines_lead_to_columns_when_a_box_is_opened(client: PageClient) -> None:
    closed = show(client).text
    assert closed.count(" data-ac=") == 1 + SIBLINGS + 1
    assert 'data-ac="c1"' not in closed
    key = re.findall(r'centre"[^>]*data-key="(\w+)"', closed)[0]
    opened_text = show(client, open=key).text
    assert opened_text.count('class="row item') == len(COLUMNS)
    assert 'data-ac="c1"' in opened_text


def test_only_traced_rows_are_shown_when_a_column_is_traced(client: PageClient) -> None:
    traced = show(client, column="c1").text
    assert set(re.findall(r'data-column="(\w+)"', traced)) == {"c1"}
    assert "reader" in traced.partition('id="panel"')[2]
    assert len(traced) < 100_000


def test_a_namespace_is_one_stack_when_boxes_are_grouped(client: PageClient) -> None:
    text = show(client, group="1").text
    assert text.count('<g class="dataset') == 3
    assert "400 in this namespace" in text


def test_jobs_are_boxes_when_the_switch_is_on(client: PageClient) -> None:
    text = show(client, jobs="1").text
    assert 'aria-label="Job fill"' in text
    assert text.count("jobbox") >= SIBLINGS
    around_job = client.get(link("lineage", kind="job", namespace="jobs", name="fill")).text
    assert 'class="dataset jobbox centre"' in around_job


def test_neighbours_beyond_the_depth_are_shown_when_a_box_is_expanded(client: PageClient) -> None:
    closed = show(client).text
    more = [html.unescape(address) for address in re.findall(r'class="expand item" href="([^"]*)"', closed)]
    assert more
    assert any('aria-label="far"' in client.get(address).text for address in more)
    assert 'aria-label="far"' not in closed


def test_a_screen_is_bounded_when_everything_is_opened(client: PageClient) -> None:
    text = show(client, depth="5", open="all").text
    assert text.count('<g class="dataset') <= MAX_BOXES + 2


def test_a_trace_and_an_impact_are_tables_when_they_are_exported(client: PageClient) -> None:
    named = {"namespace": "db", "name": "hub", "column": "c1"}
    rows = client.get(link("trace_csv", **named)).text.splitlines()
    assert rows[0] == "direction,distance,namespace,dataset,column,kinds,masked,jobs"
    assert "downstream,1,db,marts/r000,c1,identity,,reader 0" in rows
    answer = client.get(link("impact_csv", **named))
    assert answer.headers["content-type"].startswith("text/csv")
    assert len(answer.text.splitlines()) == READERS + 2  # and what lies beyond a job without column lineage
    shown = client.get(link("impact", **named)).text
    assert "<b>401</b> datasets affected" in shown
    assert "<b>2</b> steps away" in shown


def test_no_cell_is_a_formula_when_a_name_begins_like_one(tmp_path: Path) -> None:
    made = dataset("=cmd()", columnLineage=column_lineage(a=[source("t", "b")]))
    with page_client(tmp_path, [flow("@job", ["t"], [made], minute=1)]) as client:
        text = client.get(link("impact_csv", namespace="db", name="t")).text
        assert "'=cmd()" in text
        assert ",'@job" in text

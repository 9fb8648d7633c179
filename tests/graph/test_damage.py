"""A graph with damaged pages: queries say so, and the writer begins another one (G9)."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import HeadwaterError, LogUnavailable
from headwater.graph.query.query import GraphQuery
from headwater.graph.store.database import FILE, GraphDatabase
from tests.graph.events import encoded, graph_of
from tests.graph.shop import shop
from tests.log.page_damage import damaged

QUERIES: tuple[Callable[[GraphQuery], Any], ...] = (
    lambda query: query.summary(),
    lambda query: query.search("o"),
    lambda query: query.catalogue("dataset"),
    lambda query: query.dataset("db", "orders"),
    lambda query: query.neighbourhood("db", "orders"),
    lambda query: query.trace("db", "orders", "id"),
    lambda query: query.runs(),
    lambda query: [query.run_tree(run.id) for run in query.runs()],
    lambda query: [query.run(run.id) for run in query.runs()],
    lambda query: [query.job(job.namespace, job.name) for job in query.search("", kinds=["job"])],
    lambda query: query.catalogue("job"),
    lambda query: query.namespaces(),
    lambda query: query.statistics("db", "orders"),
    lambda query: query.impact("db", "orders", "id"),
    lambda query: query.compare("db", "orders", 0, 2**50),
    lambda query: query.neighbourhood("db", "orders", columns=True, all_jobs=True),
)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    graph_of(folder, shop()).close()
    return folder / FILE


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=6, max_size=12))
def test_queries_name_the_damage_and_events_are_ingested_when_pages_are_damaged(
    graph: Path, tmp_path_factory: pytest.TempPathFactory, damage: bytes
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    (folder / FILE).write_bytes(damaged(graph.read_bytes(), damage))
    for ask in QUERIES:
        with contextlib.suppress(HeadwaterError), GraphQuery(folder) as query:
            msgspec.json.encode(ask(query))
    database = GraphDatabase(folder, durable=False)
    for _ in range(2):  # the first may meet the damage
        with contextlib.suppress(LogUnavailable):
            database.ingest(encoded(shop()), 4)
            break
    assert database.position == 4
    database.close()
    shutil.rmtree(folder)


def test_a_query_reads_the_new_graph_when_the_old_one_was_damaged(tmp_path: Path) -> None:
    bodies = encoded(shop())
    graph_of(tmp_path, shop()).close()
    path = tmp_path / FILE
    content = path.read_bytes()
    path.write_bytes(content[:8192] + bytes(len(content) - 8192))
    with GraphQuery(tmp_path) as query:
        with pytest.raises(LogUnavailable, match=r"is damaged") as raised:
            query.search("orders")
        assert f"rm {path}*" in raised.value.hint
        database = GraphDatabase(tmp_path, durable=False)
        assert database.position == 0
        database.ingest(bodies[:1], 2)
        assert query.summary().jobs == 1
        database.close()


def test_the_writer_begins_a_new_graph_when_it_meets_damage(tmp_path: Path) -> None:
    bodies = encoded(shop())
    database = GraphDatabase(tmp_path, durable=False)
    database.ingest(bodies, 4)
    database._connection.pragma("wal_checkpoint", "TRUNCATE")
    database._connection.pragma("shrink_memory")
    path = tmp_path / FILE
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(bytes(len(content) - 8192))
    with pytest.raises(LogUnavailable, match="was damaged"):
        database.ingest(bodies, 5)
    assert database.position == 0
    database.ingest(bodies, 4)
    assert database.position == 4
    database.close()
    with GraphQuery(tmp_path) as query:
        assert query.summary().jobs == 3


def test_a_query_names_the_damage_when_a_value_cannot_be_interpreted(tmp_path: Path) -> None:
    graph_of(tmp_path, shop()).close()
    with contextlib.closing(apsw.Connection(str(tmp_path / FILE))) as connection:
        connection.execute("UPDATE schemas SET fields = x'c1'")
    with (
        GraphQuery(tmp_path) as query,
        pytest.raises(LogUnavailable, match=r"cannot be interpreted") as raised,
    ):
        query.dataset("db", "orders")
    assert "rm " in raised.value.hint


def test_a_new_graph_keeps_the_readable_separations_when_others_are_damaged(tmp_path: Path) -> None:
    graph_of(tmp_path, shop()).close()
    path = tmp_path / FILE
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("DROP TABLE separations")
        connection.execute("CREATE TABLE separations(kept, apart, at)")
        connection.execute("INSERT INTO separations VALUES (1, 2, 3), (1, 2, 3), (4, 5, NULL), ('a', 5, 6)")
        query = "SELECT rootpage FROM sqlite_schema WHERE name = 'runs'"
        (root,) = next(iter(connection.execute(query)))
    assert isinstance(root, int)
    content = bytearray(path.read_bytes())
    content[(root - 1) * 8192 : root * 8192] = b"\xff" * 8192
    path.write_bytes(content)
    again = GraphDatabase(tmp_path, durable=False)
    assert again.position == 0
    assert again._connection.execute("SELECT * FROM separations").fetchall() == [(1, 2, 3)]
    again.close()


def test_a_new_graph_is_begun_when_the_position_is_no_number(tmp_path: Path) -> None:
    graph_of(tmp_path, shop()).close()
    with contextlib.closing(apsw.Connection(str(tmp_path / FILE))) as connection:
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('position', 'x')")
    database = GraphDatabase(tmp_path, durable=False)
    assert database.position == 0
    database.close()

"""Clients take turns in the pool, and a question ends with its client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import HeadwaterError
from headwater.gateway.gateway import Gateway
from headwater.graph.http.query_pool import MAX_WAITING, WORKERS, QueryPool, problem_of
from headwater.graph.query.budget import Budget
from headwater.graph.query.query import ClientGone, GraphQuery, QueryTimeout, QueryTooLarge
from headwater.http.request import Request
from headwater.http.response import Response
from headwater.log.queue.sqlite import select
from headwater.page.lineage_graph.layout import Link, arrange
from tests.gateway.running import Running, get, read_all, statuses, wait_until
from tests.graph.events import flow, graph_of

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


class Asked:
    """A server whose `/ask` runs a question that a test gives, and the errors that ended questions."""

    def __init__(self, folder: Path) -> None:
        self.question: Callable[[GraphQuery], Any] = lambda query: None
        self.started: list[str] = []
        self.errors: list[HeadwaterError] = []
        graph_of(folder / "graph", [flow("j", ["a"], ["b"])]).close()
        self._clients: list[socket.socket] = []
        self.pool = QueryPool(folder / "graph", limit_seconds=3600.0)
        self.running = Running(folder, prepare=self._serve)

    def _serve(self, gateway: Gateway) -> None:
        async def handle(request: Request) -> None:
            def ask(query: GraphQuery) -> None:
                self.started.append(request.path_parameters["name"])
                self.question(query)

            try:
                await self.pool.run(request, ask)
                request.respond(Response(200, b"{}"))
            except HeadwaterError as error:
                self.errors.append(error)
                request.respond(problem_of(error).response())

        gateway.router.add("GET", "/ask/{name}", handle, needs_no_key=True)

    def client(self, name: str, address: str = "127.0.0.1") -> socket.socket:
        """A client of this address that has sent its question."""
        found = socket.create_connection(
            ("127.0.0.1", self.running.gateway.port), timeout=60, source_address=(address, 0)
        )
        self._clients.append(found)
        found.sendall(get(f"/ask/{name}", "Connection: close"))
        return found

    def close(self) -> None:
        self.pool.close()
        for client in self._clients:
            client.close()


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    asked = Asked(tmp_path)
    with asked.running:
        yield asked
        asked.close()


def endless(query: GraphQuery) -> None:
    with query.reading() as connection:
        select(connection, ENDLESS)


def many_statements(query: GraphQuery) -> None:
    with query.reading() as connection:
        while True:
            select(connection, "SELECT 1 FROM jobs LIMIT 1")


def endless_layout(query: GraphQuery) -> None:
    while True:
        arrange([10.0] * 50, [Link(n, 1, n + 1, 1) for n in range(49)], work=query.work)


@pytest.mark.parametrize("question", [endless, many_statements, endless_layout])
def test_a_question_ends_when_its_client_leaves(asked: Asked, question: Callable[[GraphQuery], None]) -> None:
    asked.question = question
    client = asked.client("one")
    wait_until(lambda: asked.started == ["one"])
    client.close()
    wait_until(lambda: len(asked.errors) == 1, 60)
    assert isinstance(asked.errors[0], ClientGone)


def test_a_question_never_starts_when_its_client_left_before_its_turn(asked: Asked) -> None:
    done = threading.Event()
    asked.question = lambda query: done.wait(60)
    waiting = asked.client("first")
    wait_until(lambda: asked.started == ["first"])
    clients = [asked.client(f"left{n}") for n in range(5)]
    last = asked.client("last")
    wait_until(lambda: asked.running.connections == 7)
    for client in clients:
        client.close()
    last_reads = threading.Thread(target=read_all, args=(last,))
    last_reads.start()
    # a socket that is closed shows as the end of its stream, which the server reads in its loop
    wait_until(lambda: asked.running.get("/healthz").status_code == 200)
    done.set()
    assert statuses(read_all(waiting)) == [200]
    last_reads.join(60)
    assert asked.started == ["first", "last"]
    assert len(asked.errors) == 5
    assert all(isinstance(error, ClientGone) for error in asked.errors)


def test_another_client_is_served_when_one_asks_without_end(asked: Asked) -> None:
    done = threading.Event()
    asked.question = lambda query: done.wait(60) if len(asked.started) < WORKERS else None
    busy = [asked.client("busy") for _ in range(10)]
    wait_until(lambda: len(asked.started) == WORKERS - 1)
    assert statuses(read_all(asked.client("other", "127.0.0.2"))) == [200]
    assert asked.started.count("busy") == WORKERS - 1
    done.set()
    for client in busy:
        assert statuses(read_all(client)) == [200]


def test_clients_take_turns_when_all_threads_are_busy(asked: Asked) -> None:
    done = threading.Event()
    asked.question = lambda query: done.wait(60)
    clients = [asked.client("a1"), asked.client("b1", "127.0.0.2")]
    wait_until(lambda: len(asked.started) == 2)
    for name, address in [(f"a{n}", "127.0.0.1") for n in range(2, 6)] + [("c1", "127.0.0.3")]:
        clients.append(asked.client(name, address))
        wait_until(lambda: asked.running.connections == len(clients))
    wait_until(lambda: asked.running.get("/healthz").status_code == 200)
    done.set()
    for client in clients:
        assert statuses(read_all(client)) == [200]
    assert asked.started.index("c1") <= 3  # not behind everything that the first client sent before


def test_it_is_refused_when_one_client_has_too_many_questions_waiting(asked: Asked) -> None:
    done = threading.Event()
    asked.question = lambda query: done.wait(60)
    clients = [asked.client("q") for _ in range(MAX_WAITING + 1)]
    wait_until(lambda: asked.running.connections == MAX_WAITING + 1)
    wait_until(lambda: asked.running.get("/healthz").status_code == 200)
    refused = read_all(asked.client("q"))
    assert statuses(refused) == [503]
    assert b"too_many_queries" in refused
    done.set()
    for client in clients:
        assert statuses(read_all(client)) == [200]


def test_a_question_ends_when_it_reads_too_many_rows_or_bytes(tmp_path: Path) -> None:
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9000000)"
    rows, large = f"{numbers} SELECT i FROM n", f"{numbers} SELECT zeroblob(1000000) FROM n"
    with graph_of(tmp_path, []) as query:
        for statement, reason in ((rows, "1,000,000 rows"), (large, "64 MiB")):
            with pytest.raises(QueryTooLarge, match=reason), query.reading() as connection:
                select(connection, statement)
        with query.reading() as connection:  # and the connection still works
            assert select(connection, "SELECT count(*) FROM jobs") == [(0,)]


def test_all_queries_of_a_question_share_one_budget(tmp_path: Path) -> None:
    graph_of(tmp_path, [flow("j", ["a"], ["b"])]).close()
    with GraphQuery(tmp_path, limit_seconds=0.0) as query, query.bounded() as budget:
        with pytest.raises(QueryTimeout):
            query.summary()
        assert isinstance(budget, Budget)
        with pytest.raises(QueryTimeout):
            budget.check()

"""Runs queries in threads, and turns their errors into HTTP problems."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from headwater.errors import HeadwaterError
from headwater.graph.query.names import NotFound
from headwater.graph.query.query import GraphQuery, QueryTimeout
from headwater.http.endpoint import Endpoint
from headwater.http.request import Request
from headwater.http.response import Problem, Response
from headwater.http.router import Handler

WORKERS = 2  # queries at once; more would only take CPU from the intake of events
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

T = TypeVar("T")


def problem_of(error: HeadwaterError) -> Problem:
    """The HTTP problem that states the error of a query."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, NotFound):
        return Problem(404, "not_found", error.text, hint=error.hint)
    if isinstance(error, QueryTimeout):
        return Problem(503, "too_long", error.text, hint=error.hint, headers={"Retry-After": "1"})
    headers = {"Retry-After": "5"}
    return Problem(503, "graph_unavailable", error.text, hint=error.hint, retryable=True, headers=headers)


class QueryPool:
    """Threads with a read connection each, so that queries do not block the gateway's event loop (G7)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._local = threading.local()
        self._open: list[GraphQuery] = []
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="graph-query")

    def handler(self, endpoint: Endpoint, function: Callable[..., Any]) -> Handler:
        """The handler of an endpoint: it sends the result of the function as JSON."""

        async def handle(request: Request) -> None:
            arguments = endpoint.arguments(request)
            try:
                content = await self.run(lambda query: msgspec.json.encode(function(query, **arguments)))
                response = Response(200, content, headers=HEADERS)
            except HeadwaterError as error:
                response = problem_of(error).response()
            request.respond(response)

        return handle

    async def run(self, question: Callable[[GraphQuery], T]) -> T:
        """The result of the function, run in one of the threads; its errors are raised here."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: question(self._query()))

    def _query(self) -> GraphQuery:
        if (query := getattr(self._local, "query", None)) is None:
            query = self._local.query = GraphQuery(self._folder)
            with self._lock:
                self._open.append(query)
        assert isinstance(query, GraphQuery)
        return query

    def close(self) -> None:
        """Finish the running queries and close the connections."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for query in self._open:
            query.close()

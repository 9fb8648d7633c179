"""Runs queries in threads, and turns their errors into HTTP problems."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from headwater.errors import HeadwaterError
from headwater.graph.query.budget import LIMIT_SECONDS
from headwater.graph.query.names import NotFound
from headwater.graph.query.query import ClientGone, GraphQuery, QueryTimeout, QueryTooLarge
from headwater.http.request import Request
from headwater.http.response import Problem, Response
from headwater.http.routing.endpoint import Endpoint
from headwater.http.routing.router import Handler

WORKERS = 2  # queries at once; more would only take CPU from the intake of events
MAX_WAITING = 64  # queries of one client
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
    if isinstance(error, QueryTooLarge):
        return Problem(503, "too_large", error.text, hint=error.hint)
    if isinstance(error, ClientGone):
        return Problem(503, "client_gone", error.text, hint="Keep the connection open until the answer.")
    headers = {"Retry-After": "5"}
    return Problem(503, "graph_unavailable", error.text, hint=error.hint, retryable=True, headers=headers)


class _Question(NamedTuple):
    """A function that waits for a thread, and the request whose client waits for it."""

    ask: Callable[[GraphQuery], Any]
    request: Request
    client: str
    answer: asyncio.Future[Any]


class QueryPool:
    """Threads with a read connection each, so that queries do not block the gateway's event loop (G7).

    Clients take turns, and one client never occupies all threads. A question whose client has left does not
    start, or ends at the next check of its budget.
    """

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = WORKERS,
        limit_seconds: float = LIMIT_SECONDS,
        client_of: Callable[[Request], str] | None = None,
    ) -> None:
        self.folder = folder
        self._limit_seconds = limit_seconds
        self.client_of = client_of or (lambda request: request.peer)
        self._local = threading.local()
        self._open: list[GraphQuery] = []
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="graph-query")
        self._workers = workers
        # Used in the loop's thread alone.
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Question]] = {}  # by client, in the order of their turns
        self._is_closed = False

    def handler(self, endpoint: Endpoint, function: Callable[..., Any]) -> Handler:
        """The handler of an endpoint: it sends the result of the function as JSON."""

        async def handle(request: Request) -> None:
            arguments = endpoint.arguments(request)
            try:
                content = await self.run(
                    request, lambda query: msgspec.json.encode(function(query, **arguments))
                )
                response = Response(200, content, headers=HEADERS)
            except HeadwaterError as error:
                response = problem_of(error).response()
            request.respond(response)

        return handle

    async def run(self, request: Request, ask: Callable[[GraphQuery], T]) -> T:
        """The result of the function, run in one of the threads; its errors are raised here."""
        client = self.client_of(request)
        waiting = self._waiting.setdefault(client, deque())
        if len(waiting) >= MAX_WAITING:
            raise Problem(
                503,
                "too_many_queries",
                f"{MAX_WAITING} queries of this client are waiting.",
                hint="Send fewer at once.",
                headers={"Retry-After": "1"},
            )
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiting.append(_Question(ask, request, client, answer))
        self._start()
        return await answer

    def _start(self) -> None:
        """Start questions while threads are free."""
        while not self._is_closed and self._running.total() < self._workers:
            if (question := self._next()) is None:
                return
            self._running[question.client] += 1
            done = asyncio.get_running_loop().run_in_executor(self._pool, self._answer, question)
            done.add_done_callback(lambda done, question=question: self._finish(question, done))  # type: ignore[misc]

    def _next(self) -> _Question | None:
        most = max(1, self._workers - 1)
        for client in list(self._waiting):
            if self._running[client] >= most:
                continue
            questions = self._waiting.pop(client)
            while questions:
                question = questions.popleft()
                if question.answer.done():
                    continue
                if question.request.is_abandoned:
                    question.answer.set_exception(ClientGone("The client has left before its turn."))
                    continue
                if questions:
                    self._waiting[client] = questions  # now the last: clients take turns
                return question
        return None

    def _finish(self, question: _Question, done: asyncio.Future[Any]) -> None:
        self._running[question.client] -= 1
        if self._running[question.client] <= 0:
            del self._running[question.client]
        if not question.answer.done():
            if done.cancelled():
                question.answer.cancel()
            elif (error := done.exception()) is not None:
                question.answer.set_exception(error)
            else:
                question.answer.set_result(done.result())
        self._start()

    def _answer(self, question: _Question) -> Any:
        query = self._query()
        with query.bounded(lambda: question.request.is_abandoned) as budget:
            budget.check()
            return question.ask(query)

    def _query(self) -> GraphQuery:
        if (query := getattr(self._local, "query", None)) is None:
            query = self._local.query = GraphQuery(self.folder, limit_seconds=self._limit_seconds)
            with self._lock:
                self._open.append(query)
        assert isinstance(query, GraphQuery)
        return query

    def close(self) -> None:
        """Finish the running queries and close the connections."""
        self._is_closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)
        for query in self._open:
            query.close()

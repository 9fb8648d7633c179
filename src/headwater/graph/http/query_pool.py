"""Runs queries in threads, and turns their errors into HTTP problems."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from headwater.errors import HeadwaterError
from headwater.graph.query.names import NotFound
from headwater.graph.query.query import GraphQuery, QueryTimeout
from headwater.http.request import Request
from headwater.http.response import Problem, Response

__all__ = ["Answer", "Parameters", "QueryPool", "segments"]

WORKERS = 2  # queries at once; more would only take CPU from the intake of events
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
MAX_PARAMETERS = 50

C = TypeVar("C", bound=str)
T = TypeVar("T")


class Parameters:
    """The query parameters of a request; 400 for one that is missing or cannot be read."""

    def __init__(self, request: Request) -> None:
        try:
            self._values = parse_qs(request.query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
        except ValueError:
            raise _bad("There are too many query parameters.") from None

    def get(self, name: str, default: str | None = None) -> str:
        """The text of a parameter; without a default it is required."""
        found = self._values.get(name)
        if found is None:
            if default is None:
                raise _bad(f"The query parameter `{name}` is missing.")
            return default
        return found[-1]

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number from 0 to `most`."""
        text = self.get(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= most):
            raise _bad(f"`{name}` must be a whole number from 0 to {most}.")
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        """`true` or `false`, in any case."""
        text = self.get(name, str(default)).lower()
        if text not in ("true", "false"):
            raise _bad(f"`{name}` must be `true` or `false`.")
        return text == "true"

    def choice(self, name: str, default: C, *others: C) -> C:
        """One of some words."""
        text = self.get(name, default)
        for word in (default, *others):
            if text == word:
                return word
        raise _bad(f"`{name}` must be one of {', '.join((default, *others))}.")

    def choices(self, name: str, known: tuple[str, ...]) -> tuple[str, ...]:
        """Any of some words, as the parameter given several times; all of them where it is not given."""
        found = tuple(self._values.get(name, known))
        for word in found:
            if word not in known:
                raise _bad(f"`{name}` must be one of {', '.join(known)}.")
        return found


def _bad(text: str) -> Problem:
    return Problem(400, "bad_request", text, hint="docs/http.md and /openapi.json name the parameters.")


def segments(request: Request, prefix: str) -> list[str]:
    """The decoded parts of the path below a prefix; a part may hold slashes that came encoded."""
    target = request.target.decode("latin-1")
    if not target.startswith("/"):
        target = urlsplit(target).path
    path = target.partition("?")[0]
    return [unquote(part) for part in path.removeprefix(prefix).split("/")]


Answer = Callable[[GraphQuery, Request], Any]


class QueryPool:
    """Threads with a read connection each, so that queries do not block the gateway's event loop (G7)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._local = threading.local()
        self._open: list[GraphQuery] = []
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="graph-query")

    def handler(self, answer: Answer) -> Callable[[Request], Any]:
        """A handler for a route that sends the result of the function as JSON."""

        async def handle(request: Request) -> None:
            loop = asyncio.get_running_loop()
            request.respond(await loop.run_in_executor(self._pool, self._answer, answer, request))

        return handle

    async def run(self, question: Callable[[GraphQuery], T]) -> T:
        """The result of the function, run in one of the threads; its errors are raised here."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: question(self._query()))

    def _answer(self, answer: Answer, request: Request) -> Response:
        try:
            found = answer(self._query(), request)
        except Problem as problem:
            return problem.response()
        except NotFound as error:
            return Problem(404, "not_found", error.text, hint=error.hint).response()
        except QueryTimeout as error:
            busy = Problem(503, "too_long", error.text, hint=error.hint, headers={"Retry-After": "1"})
            return busy.response()
        except HeadwaterError as error:
            headers = {"Retry-After": "5"}
            return Problem(
                503, "graph_unavailable", error.text, hint=error.hint, retryable=True, headers=headers
            ).response()
        return Response(200, msgspec.json.encode(found), headers=HEADERS)

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

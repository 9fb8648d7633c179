"""Routes: which function serves which method and path.

Later stages add theirs with `Routes.add`; the wire need not know.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from headwater.http.request import Request
from headwater.http.response import Problem, Response

__all__ = ["Admit", "Handler", "Route", "Routes"]

Handler = Callable[[Request], Coroutine[Any, Any, None] | None]
Admit = Callable[[Request], Response | None]


class Route(NamedTuple):
    """Who serves a request. `is_open`: without an API key, too.

    `admit` is asked when the headers are there, before the body is read: its answer, if it has one, is final.
    """

    path: str
    handler: Handler
    is_open: bool
    admit: Admit | None = None


class Routes:
    """The table. A path either is in it or is not: no patterns, so a lookup is one dictionary access.

    `described` and `schemas` are what stages that add routes add to the OpenAPI description.
    """

    def __init__(self) -> None:
        self._paths: dict[str, dict[str, Route]] = {}
        self._targets: dict[bytes, dict[str, Route]] = {}
        self._trees: dict[bytes, dict[str, Route]] = {}
        self.described: dict[str, Any] = {}
        self.schemas: dict[str, Any] = {}

    def add(
        self, method: str, path: str, handler: Handler, *, is_open: bool = False, admit: Admit | None = None
    ) -> None:
        """Serve `method path` by a function that answers now or later, or by a coroutine function."""
        methods = self._paths.setdefault(path, {})
        methods[method] = Route(path, handler, is_open, admit)
        self._targets[path.encode()] = methods

    def add_tree(self, method: str, prefix: str, handler: Handler, *, admit: Admit | None = None) -> None:
        """Serve all paths below the prefix that are not served otherwise; without an API key.

        The handler reads the rest from `Request.target`: there an encoded slash differs from a real one.
        """
        self._trees.setdefault(prefix.encode(), {})[method] = Route(prefix, handler, True, admit)

    def _below(self, target: bytes) -> dict[str, Route] | None:
        return next((found for prefix, found in self._trees.items() if target.startswith(prefix)), None)

    @property
    def paths(self) -> set[str]:
        """All paths that are served."""
        return set(self._paths)

    def find(self, request: Request) -> Route | Response:
        """The route of a request, or the answer that it gets instead: 404, 405, or what OPTIONS asks for."""
        methods = self._targets.get(request.target)
        if methods is None:
            methods = self._paths.get(request.path) or self._below(request.target)
        if methods is None:
            known = ", ".join(sorted(self._paths))
            return Problem(
                404, "not_found", "Nothing is served at this path.", hint=f"Known paths: {known}."
            ).response()
        route = methods.get("GET" if request.method == "HEAD" else request.method)
        if route is not None:
            return route
        allowed = ", ".join(sorted({*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}))
        if request.method == "OPTIONS":
            return Response(204, headers={"Allow": allowed})
        return Problem(
            405,
            "method_not_allowed",
            "This path is not served by this method.",
            hint=f"Use {allowed}.",
            headers={"Allow": allowed},
        ).response()

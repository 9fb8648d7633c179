"""Finds the handler of a method and path; answers 404, 405 and OPTIONS."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple
from urllib.parse import unquote

from headwater.http.request import Request
from headwater.http.response import Problem, Response
from headwater.http.routing.endpoint import Endpoint

Handler = Callable[[Request], Coroutine[Any, Any, None] | None]
BeforeBody = Callable[[Request], Response | None]


class Route(NamedTuple):
    """The handler of a method and path.

    `before_body` is called when the headers have arrived. If it returns a response, the request is answered
    with it, and its body is not kept. A probe is served also beyond the limits of connections.
    """

    path: str
    handler: Handler
    needs_no_key: bool
    before_body: BeforeBody | None = None
    is_probe: bool = False


Methods = dict[str, Route]


class Router:
    """The table of routes. A path without `{name}` is found by one dictionary access."""

    def __init__(self) -> None:
        self.endpoints: list[Endpoint] = []
        self._targets: dict[bytes, Methods] = {}
        self._paths: dict[str, Methods] = {}
        self._templates: dict[str, tuple[list[str], Methods]] = {}

    def add(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        needs_no_key: bool = False,
        before_body: BeforeBody | None = None,
        is_probe: bool = False,
    ) -> None:
        """Serve a route that OpenAPI does not describe. The handler is a function or a coroutine function."""
        if "{" in path:
            methods = self._templates.setdefault(path, (path.split("/"), {}))[1]
        else:
            methods = self._paths.setdefault(path, {})
            self._targets[path.encode()] = methods
        methods[method] = Route(path, handler, needs_no_key, before_body, is_probe)

    def serve(
        self,
        endpoint: Endpoint,
        handler: Handler,
        *,
        before_body: BeforeBody | None = None,
        checks_keys: bool = False,
        is_probe: bool = False,
    ) -> None:
        """Serve a declared endpoint.

        It needs an API key if `key` is among its security schemes, unless its `before_body` checks keys.
        """
        self.endpoints.append(endpoint)
        self.add(
            endpoint.method,
            endpoint.path,
            handler,
            needs_no_key=checks_keys or "key" not in endpoint.security,
            before_body=before_body,
            is_probe=is_probe,
        )

    @property
    def paths(self) -> set[str]:
        """All paths that are served."""
        return {*self._paths, *self._templates}

    def find(self, request: Request) -> Route | Response:
        """Return the route of a request, or the response to send instead."""
        methods = self._targets.get(request.target)
        if methods is None:
            methods = self._paths.get(request.path) or self._match_template(request)
        if methods is None:
            known = ", ".join(sorted(self.paths))
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
            "This path does not support this method.",
            hint=f"Use {allowed}.",
            headers={"Allow": allowed},
        ).response()

    def _match_template(self, request: Request) -> Methods | None:
        raw_path = request.raw_path
        length = raw_path.count("/") + 1
        candidates = [found for found in self._templates.values() if len(found[0]) == length]
        if not candidates:
            return None  # also a path of thousands of segments
        # Split before decoding: an encoded slash belongs to its segment.
        segments = [unquote(segment) for segment in raw_path.split("/")]
        for template, methods in candidates:
            if all(
                expected == segment or expected.startswith("{")
                for expected, segment in zip(template, segments, strict=True)
            ):
                request.path_parameters = {
                    expected[1:-1]: segment
                    for expected, segment in zip(template, segments, strict=True)
                    if expected.startswith("{")
                }
                return methods
        return None

"""The routes of the page: its views, what their scripts fetch, and its forms."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec

from headwater.errors import HeadwaterError, RejectNotFound
from headwater.graph.http.query_pool import QueryPool
from headwater.graph.query.answers import SearchResult
from headwater.graph.query.names import NotFound
from headwater.graph.query.query import GraphQuery, QueryTimeout
from headwater.http.request import Request
from headwater.http.response import Problem, Response
from headwater.http.router import Router
from headwater.log.rejects.rejects import Rejects
from headwater.page.access import PageAccess, own_path
from headwater.page.live import LiveStreams
from headwater.page.parameters import Parameters
from headwater.page.templates import (
    HEADERS,
    assets,
    document,
    download,
    file,
    last_segment,
    parent_path,
    redirect,
    render,
    strip_control_characters,
)
from headwater.page.urls import PATHS, link
from headwater.page.views.dataset import dataset_view
from headwater.page.views.event_tail import EventTail
from headwater.page.views.job import job_view
from headwater.page.views.lineage import lineage_view, trace_values
from headwater.page.views.rejects import reject_view, rejects_view
from headwater.page.views.run import run_view, runs_view
from headwater.page.views.search import search_view
from headwater.page.views.system import SystemStatus, system_view
from headwater.page.views.view import View

MAX_FORM_BYTES = 64 * 1024
WRONG_TOKEN_SECONDS = 1.0  # before the answer to a wrong token


class ViewSources(NamedTuple):
    """The sources that views read besides the graph."""

    status: SystemStatus
    rejects: Rejects


MakeView = Callable[[ViewSources, GraphQuery, Parameters], View]

VIEWS: dict[str, MakeView] = {
    "system": lambda sources, query, parameters: system_view(sources.status, query),
    "rejects": lambda sources, query, parameters: rejects_view(sources.rejects, parameters),
    "reject": lambda sources, query, parameters: reject_view(sources.rejects, parameters),
    "runs": lambda sources, query, parameters: runs_view(query, parameters),
    "run": lambda sources, query, parameters: run_view(query, parameters),
    "job": lambda sources, query, parameters: job_view(query, parameters),
    "dataset": lambda sources, query, parameters: dataset_view(query, parameters),
    "search": lambda sources, query, parameters: search_view(query, parameters),
}
VIEWS_WITHOUT_UPDATES = ("reject", "search")
LIVE_VIEWS = tuple(name for name in VIEWS if name not in VIEWS_WITHOUT_UPDATES)


class Page:
    """All routes of the page."""

    def __init__(
        self,
        pool: QueryPool,
        access: PageAccess,
        sources: ViewSources,
        make_tail: Callable[[], EventTail],
        *,
        live: LiveStreams | None = None,
        wrong_token_seconds: float = WRONG_TOKEN_SECONDS,
    ) -> None:
        self._pool = pool
        self._access = access
        self._sources = sources
        self._make_tail = make_tail
        self._wrong_token_seconds = wrong_token_seconds
        self.live = live or LiveStreams()

    def add(self, routes: Router) -> None:
        """Add the routes of the page."""
        for name in VIEWS:
            self._add_view(routes, name, self._view(name))
        self._add_view(routes, "lineage", self._lineage)
        self._add_view(routes, "events", self._events)
        for name, handler in (
            ("trace", self._trace),
            ("svg", self._svg),
            ("suggest", self._suggest),
            ("live", self._live),
            ("live_events", self._live_events),
        ):
            routes.add("GET", PATHS[name], handler, needs_no_key=True, before_body=self._access.data)
        for name, handler in (("replay", self._replay), ("drop", self._drop), ("sign_out", self._sign_out)):
            routes.add("POST", PATHS[name], handler, needs_no_key=True, before_body=self._access.change)
        routes.add("GET", PATHS["sign_in"], self._sign_in_form, needs_no_key=True)
        routes.add("POST", PATHS["sign_in"], self._sign_in, needs_no_key=True, before_body=self._access.form)
        for path, (content_type, content) in assets().items():
            routes.add("GET", path, _constant(file(content, content_type)), needs_no_key=True)

    def _add_view(self, routes: Router, name: str, handler: Callable[[Request], Any]) -> None:
        routes.add("GET", PATHS[name], handler, needs_no_key=True, before_body=self._access.page)

    # --- views ---------------------------------------------------------------------------------------

    def _view(self, name: str) -> Callable[[Request], Awaitable[None]]:
        make = VIEWS[name]

        async def handle(request: Request) -> None:
            def page(query: GraphQuery) -> Response:
                parameters = Parameters(request)
                view = make(self._sources, query, parameters)
                live_path = f"{PATHS['live']}?{request.query}&view={name}" if name in LIVE_VIEWS else None
                done, count = parameters.get("done", ""), parameters.get("count", "")
                return self._document(view, live_path=live_path, done=done, count=count)

            request.respond(await self._page(page))

        return handle

    async def _lineage(self, request: Request) -> None:
        def page(query: GraphQuery) -> Response:
            parameters = Parameters(request)
            if parameters.get("name", ""):
                return self._document(lineage_view(query, parameters))
            newest = query.search("", kinds=("dataset",), limit=1)
            if newest:
                return redirect(link("lineage", namespace=newest[0].namespace, name=newest[0].name))
            return self._document(search_view(query, parameters))

        request.respond(await self._page(page))

    async def _events(self, request: Request) -> None:
        view = View("events.html", "Events", "events", {})
        request.respond(await self._page(lambda query: self._document(view)))

    def _document(
        self, view: View, *, status: int = 200, live_path: str | None = None, done: str = "", count: str = ""
    ) -> Response:
        text = render(
            "base.html",
            view=view,
            live_path=live_path,
            done=done if done in ("replay", "drop") else "",
            count=int(count) if count.isascii() and count.isdecimal() and len(count) < 12 else 0,
            open_rejects=self._sources.status.open_rejects(),
            has_token=self._access.has_token,
            **view.values,
        )
        return document(status, text)

    async def _page(self, make: Callable[[GraphQuery], Response]) -> Response:
        """The response of a function that runs in a query thread; errors become pages."""
        try:
            return await self._pool.run(make)
        except Exception as error:
            page = _error_page(error)
        return await self._error_document(page, "")

    async def _error_document(self, error: ErrorPage, section: str) -> Response:
        view = View("error.html", error.title, section, {"error": error})
        return await asyncio.to_thread(self._document, view, status=error.status)

    # --- what scripts fetch --------------------------------------------------------------------------

    async def _trace(self, request: Request) -> None:
        """The rows and lines of a traced column, and the panel that lists its columns."""

        def answer(query: GraphQuery) -> Response:
            values = trace_values(query, Parameters(request))
            trace = values["trace"]
            shown = strip_control_characters  # as in the drawing, whose attributes the script compares
            content = {
                "columns": [(node.dataset, shown(node.column or "")) for node in trace.columns]
                if trace
                else [],
                "edges": [
                    (
                        edge.source,
                        shown(edge.source_column or ""),
                        edge.target,
                        shown(edge.target_column or ""),
                    )
                    for edge in (trace.column_edges if trace else ())
                ],
                "panel": render("parts/trace_panel.html", **values),
            }
            return _json(content)

        request.respond(await self._fetched(answer))

    async def _svg(self, request: Request) -> None:
        def answer(query: GraphQuery) -> Response:
            values = lineage_view(query, Parameters(request)).values
            text = render("export.svg", **values)
            name = "".join(c if c.isascii() and c.isalnum() else "-" for c in last_segment(values["name"]))
            return download(text.encode("utf-8", "replace"), "image/svg+xml", f"lineage-{name[:60]}.svg")

        request.respond(await self._fetched(answer))

    async def _suggest(self, request: Request) -> None:
        def answer(query: GraphQuery) -> Response:
            results = search_view(query, Parameters(request)).values["results"]
            return _json([_suggestion(result) for result in results])

        request.respond(await self._fetched(answer))

    async def _live(self, request: Request) -> None:
        parameters = Parameters(request)
        name = parameters.choice("view", LIVE_VIEWS[0], *LIVE_VIEWS[1:])

        def text(query: GraphQuery) -> str:
            view = VIEWS[name](self._sources, query, parameters)
            return render(view.template, **view.values)

        async def make() -> str:
            try:
                return await self._pool.run(text)
            except HeadwaterError as error:
                return render("error.html", error=_error_page(error))

        await self.live.send_view(request, make)

    async def _live_events(self, request: Request) -> None:
        await self.live.send_events(request, self._make_tail())

    async def _fetched(self, make: Callable[[GraphQuery], Response]) -> Response:
        try:
            return await self._pool.run(make)
        except Exception as error:
            page = _error_page(error)
            return Problem(page.status, page.code, page.title, hint=page.hint).response()

    # --- forms ---------------------------------------------------------------------------------------

    async def _replay(self, request: Request) -> None:
        rejects = self._sources.rejects
        await self._change(request, "replay", lambda ids, stage: sum(rejects.request_replay(ids, stage)))

    async def _drop(self, request: Request) -> None:
        await self._change(request, "drop", self._sources.rejects.drop)

    async def _change(
        self, request: Request, name: str, change: Callable[[list[int], str | None], int]
    ) -> None:
        form = _form(request)
        ids = [int(id) for id in form.get("id", ()) if id.isascii() and id.isdecimal() and len(id) < 18]
        stage = form.get("stage", [""])[-1] or None
        shown_stage = form.get("shown_stage", [""])[-1] or None
        try:
            count = await asyncio.to_thread(change, ids, stage) if ids or stage else 0
        except HeadwaterError as error:
            request.respond(await self._error_document(_error_page(error), "rejects"))
            return
        request.respond(redirect(link("rejects", stage=shown_stage, done=name, count=count)))

    def _sign_in_form(self, request: Request) -> None:
        following = own_path(Parameters(request).get("next", "/"))
        request.respond(self._sign_in_document(200, following, is_wrong=False))

    def _sign_in_document(self, status: int, following: str, *, is_wrong: bool) -> Response:
        values = {"following": following, "is_wrong": is_wrong, "has_token": self._access.has_token}
        return document(status, render("sign_in.html", **values))

    async def _sign_in(self, request: Request) -> None:
        form = _form(request)
        following = own_path(form.get("next", ["/"])[-1])
        if self._access.accepts_token(form.get("token", [""])[-1].strip()):
            request.respond(redirect(following, {"Set-Cookie": self._access.cookie()}))
            return
        await asyncio.sleep(self._wrong_token_seconds)
        request.respond(self._sign_in_document(401, following, is_wrong=True))

    async def _sign_out(self, request: Request) -> None:
        request.respond(redirect(link("sign_in"), {"Set-Cookie": self._access.expired_cookie()}))


class ErrorPage(NamedTuple):
    """An error as the page shows it."""

    status: int
    code: str
    title: str
    hint: str


def _error_page(error: Exception) -> ErrorPage:
    if isinstance(error, Problem):
        return ErrorPage(error.status, error.code, error.text, error.hint or "")
    if isinstance(error, (NotFound, RejectNotFound)):
        return ErrorPage(404, "not_found", error.text, error.hint or "")
    if isinstance(error, QueryTimeout):
        return ErrorPage(503, "too_long", error.text, error.hint or "")
    if isinstance(error, HeadwaterError):
        return ErrorPage(503, "unavailable", error.text, error.hint or "")
    raise error


def _suggestion(result: SearchResult) -> dict[str, str]:
    is_column = result.column is not None
    place = f"{result.name} · {result.namespace}" if is_column else parent_path(result.namespace, result.name)
    view = "job" if result.kind == "job" else "lineage"
    return {
        "kind": result.kind,
        "title": strip_control_characters(result.column or last_segment(result.name)),
        "place": strip_control_characters(place),
        "href": link(view, namespace=result.namespace, name=result.name, column=result.column),
    }


def _json(content: Any) -> Response:
    return Response(200, msgspec.json.encode(content), headers={**HEADERS, "Cache-Control": "no-store"})


def _form(request: Request) -> dict[str, list[str]]:
    if len(request.body) > MAX_FORM_BYTES or request.headers.get("content-encoding"):
        raise Problem(413, "too_large", "The form is too large.", hint="Select fewer rows.")
    try:
        return parse_qs(request.body.decode(), keep_blank_values=True, max_num_fields=1_000)
    except ValueError:
        raise Problem(400, "bad_form", "The form is invalid.", hint="Use the form of the page.") from None


def _constant(answer: Response) -> Callable[[Request], None]:
    def handle(request: Request) -> None:
        request.respond(answer)

    return handle

"""The routes of the page: its views, the data that their scripts fetch, and its forms."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec

from headwater.errors import HeadwaterError, RejectNotFound
from headwater.graph.http.query_pool import QueryPool, problem_of
from headwater.graph.query.answers import SearchResult
from headwater.graph.query.query import ClientGone, GraphQuery
from headwater.graph.store.ids import dataset_id
from headwater.graph.store.separated_names import reunite, separate
from headwater.http.request import Request
from headwater.http.response import Problem, Response
from headwater.http.routing.router import Handler, Router
from headwater.log.rejects.rejects import Rejects
from headwater.page.access import PageAccess, own_path
from headwater.page.live import LiveStreams
from headwater.page.templates import (
    IMMUTABLE_HEADERS,
    NO_STORE_HEADERS,
    assets,
    document,
    last_segment,
    parent_path,
    redirect,
    render,
    strip_control_characters,
)
from headwater.page.urls import PATHS, link
from headwater.page.views.catalogue import catalogue_view
from headwater.page.views.compare import compare_view
from headwater.page.views.dataset import dataset_view
from headwater.page.views.event_tail import EventTail
from headwater.page.views.home import home_view
from headwater.page.views.impact import impact_csv, impact_view, trace_csv
from headwater.page.views.jobs import job_view, run_view, runs_view
from headwater.page.views.lineage import lineage_view, search_view
from headwater.page.views.rejects import reject_view, rejects_view
from headwater.page.views.system import SystemStatus, system_view
from headwater.page.views.view import Parameters, View

MAX_FORM_BYTES = 64 * 1024
DONE = ("replay", "drop", "unlink", "relink")  # changes that the next page reports


class ViewSources(NamedTuple):
    """The sources that views read besides the graph."""

    status: SystemStatus
    rejects: Rejects


MakeView = Callable[[ViewSources, GraphQuery, Parameters], View]

VIEWS: dict[str, MakeView] = {
    "home": lambda sources, query, parameters: home_view(sources.status, sources.rejects, query, parameters),
    "catalogue": lambda sources, query, parameters: catalogue_view(sources.status, query, parameters),
    "system": lambda sources, query, parameters: system_view(sources.status, query),
    "rejects": lambda sources, query, parameters: rejects_view(
        sources.status, sources.rejects, query, parameters
    ),
    "reject": lambda sources, query, parameters: reject_view(sources.rejects, query, parameters),
    "runs": lambda sources, query, parameters: runs_view(sources.status, query, parameters),
    "run": lambda sources, query, parameters: run_view(query, parameters),
    "compare": lambda sources, query, parameters: compare_view(query, parameters),
    "impact": lambda sources, query, parameters: impact_view(query, parameters),
    "job": lambda sources, query, parameters: job_view(query, parameters),
    "dataset": lambda sources, query, parameters: dataset_view(query, parameters),
    "search": lambda sources, query, parameters: search_view(query, parameters),
    "events": lambda sources, query, parameters: View("events.html", "Events", "events", {}),
}
VIEWS_WITHOUT_UPDATES = (
    "compare",
    "catalogue",
    "impact",
    "reject",
    "search",
    "events",
)  # `events.js` updates the events
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
    ) -> None:
        self._pool = pool
        self._access = access
        self._sources = sources
        self._make_tail = make_tail
        self.live = live or LiveStreams()

    def add(self, routes: Router) -> None:
        """Add the routes of the page."""
        for name in VIEWS:
            self._add_view(routes, name, self._view(name))
        self._add_view(routes, "lineage", self._lineage)
        for name, handler in (
            ("trace_csv", self._fetched(trace_csv)),
            ("impact_csv", self._fetched(impact_csv)),
            ("svg", self._fetched(_svg)),
            ("suggest", self._fetched(_suggestions)),
            ("live", self._live),
            ("live_events", self._live_events),
        ):
            routes.add("GET", PATHS[name], handler, needs_no_key=True, before_body=self._access.data)
        for name, handler in (
            ("replay", self._replay),
            ("drop", self._drop),
            ("unlink", self._unlink),
            ("relink", self._relink),
            ("sign_out", self._sign_out),
        ):
            routes.add("POST", PATHS[name], handler, needs_no_key=True, before_body=self._access.change)
        routes.add("GET", PATHS["sign_in"], self._sign_in_form, needs_no_key=True)
        routes.add("POST", PATHS["sign_in"], self._sign_in, needs_no_key=True, before_body=self._access.form)
        for path, (content_type, content) in assets().items():
            file = Response(200, content, content_type=content_type, headers=IMMUTABLE_HEADERS)
            routes.add("GET", path, partial(Request.respond, response=file), needs_no_key=True)

    def _add_view(self, routes: Router, name: str, handler: Callable[[Request], Any]) -> None:
        routes.add("GET", PATHS[name], handler, needs_no_key=True, before_body=self._access.page)

    # --- views ---------------------------------------------------------------------------------------

    def _view(self, name: str) -> Callable[[Request], Awaitable[None]]:
        make = VIEWS[name]

        async def handle(request: Request) -> None:
            def page(query: GraphQuery) -> Response:
                parameters = Parameters(request, self._access.scheme)
                view = make(self._sources, query, parameters)
                live_path = f"{PATHS['live']}?{request.query}&view={name}" if name in LIVE_VIEWS else None
                done, count = parameters.get("done", ""), parameters.get("count", "")
                return self._document(view, request, live_path=live_path, done=done, count=count)

            request.respond(await self._page(request, page))

        return handle

    async def _lineage(self, request: Request) -> None:
        def page(query: GraphQuery) -> Response:
            parameters = Parameters(request)
            if parameters.get("name", ""):
                return self._document(lineage_view(query, parameters), request)
            return redirect(link("catalogue"))  # a graph needs a centre

        request.respond(await self._page(request, page))

    def _document(
        self,
        view: View,
        request: Request,
        *,
        status: int = 200,
        live_path: str | None = None,
        done: str = "",
        count: str = "",
    ) -> Response:
        text = render(
            "base.html",
            view=view,
            live_path=live_path,
            done=done if done in DONE else "",
            count=int(count) if count.isascii() and count.isdecimal() and len(count) < 12 else 0,
            open_rejects=sum(self._sources.status.open_rejects().values()),
            has_token=self._access.has_token,
            **view.values,
        )
        return document(status, text, accepted=request.headers.get("accept-encoding", ""))

    async def _page(self, request: Request, make: Callable[[GraphQuery], Response]) -> Response:
        """The response of a function that runs in a query thread; errors become pages."""
        try:
            return await self._pool.run(request, make)
        except HeadwaterError as error:
            return await self._error_document(request, error, "")

    async def _error_document(self, request: Request, error: HeadwaterError, section: str) -> Response:
        problem = _problem(error)
        view = View("error.html", problem.text, section, {"error": problem})
        return await asyncio.to_thread(self._document, view, request, status=problem.status)

    # --- data for scripts ----------------------------------------------------------------------------

    def _fetched(self, make: Callable[[GraphQuery, Parameters], Response]) -> Handler:
        async def handle(request: Request) -> None:
            try:
                response = await self._pool.run(request, lambda query: make(query, Parameters(request)))
            except HeadwaterError as error:
                response = _problem(error).response()
            request.respond(response)

        return handle

    async def _live(self, request: Request) -> None:
        parameters = Parameters(request, self._access.scheme)
        name = parameters.choice("view", LIVE_VIEWS[0], *LIVE_VIEWS[1:])

        def text(query: GraphQuery) -> str:
            view = VIEWS[name](self._sources, query, parameters)
            return render(view.template, **view.values)

        async def make() -> str:
            try:
                return await self._pool.run(request, text)
            except ClientGone:
                raise
            except HeadwaterError as error:
                return render("error.html", error=_problem(error))

        await self.live.send_view(request, f"{parameters.address} {request.query}", make)

    async def _live_events(self, request: Request) -> None:
        await self.live.send_events(request, self._make_tail())

    # --- forms ---------------------------------------------------------------------------------------

    async def _replay(self, request: Request) -> None:
        rejects = self._sources.rejects
        await self._change(
            request,
            "replay",
            lambda ids, stage: sum(rejects.request_replay(ids, stage)),
            lambda stage, reason: sum(rejects.replay_group(stage, reason)),
        )

    async def _drop(self, request: Request) -> None:
        rejects = self._sources.rejects
        await self._change(request, "drop", rejects.drop, rejects.drop_group)

    async def _change(
        self,
        request: Request,
        name: str,
        change: Callable[[list[int], str | None], int],
        change_group: Callable[[str, str], int],
    ) -> None:
        form = _form(request)
        ids = [int(id) for id in form.get("id", ()) if id.isascii() and id.isdecimal() and len(id) < 18]
        stage = form.get("stage", [""])[-1] or None
        shown_stage = form.get("shown_stage", [""])[-1] or None
        reason = form.get("reason", [""])[-1]

        def apply() -> int:
            if reason and stage:
                return change_group(stage, reason)
            return change(ids, stage) if ids or stage else 0

        try:
            count = await asyncio.to_thread(apply)
        except HeadwaterError as error:
            request.respond(await self._error_document(request, error, "rejects"))
            return
        request.respond(redirect(link("rejects", stage=shown_stage, done=name, count=count)))

    async def _unlink(self, request: Request) -> None:
        await self._change_link(request, "unlink", separate)

    async def _relink(self, request: Request) -> None:
        await self._change_link(request, "relink", reunite)

    async def _change_link(
        self, request: Request, done: str, change: Callable[[Path, int, int], object]
    ) -> None:
        form = _form(request)

        def name(end: str) -> tuple[str, str]:
            return form.get(f"{end}_namespace", [""])[-1], form.get(f"{end}_name", [""])[-1]

        one, other = name("one"), name("other")

        def known(query: GraphQuery) -> None:
            for namespace, text in (one, other):
                query.dataset_name(namespace, text)

        try:
            await self._pool.run(request, known)
            ids = dataset_id(*one), dataset_id(*other)
            if ids[0] != ids[1]:
                await asyncio.to_thread(change, self._pool.folder, *ids)
        except HeadwaterError as error:
            request.respond(await self._error_document(request, error, "lineage"))
            return
        request.respond(redirect(link("dataset", namespace=one[0], name=one[1], done=done)))

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
        request.respond(self._sign_in_document(401, following, is_wrong=True))

    async def _sign_out(self, request: Request) -> None:
        self._access.sign_out(request)
        request.respond(redirect(link("sign_in"), {"Set-Cookie": self._access.expired_cookie()}))


def _problem(error: HeadwaterError) -> Problem:
    if isinstance(error, RejectNotFound):
        return Problem(404, "not_found", error.text, hint=error.hint)
    return problem_of(error)


def _svg(query: GraphQuery, parameters: Parameters) -> Response:
    """The drawing as an SVG file."""
    values = lineage_view(query, parameters).values
    text = render("export.svg", **values)
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in last_segment(values["name"]))
    disposition = f'attachment; filename="lineage-{name[:60]}.svg"'
    headers = {**NO_STORE_HEADERS, "Content-Disposition": disposition}
    return Response(200, text.encode("utf-8", "replace"), content_type="image/svg+xml", headers=headers)


def _suggestions(query: GraphQuery, parameters: Parameters) -> Response:
    """The suggestions that the search field lists."""
    return _json([_suggestion(result) for result in search_view(query, parameters).values["results"]])


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
    return Response(200, msgspec.json.encode(content), headers=NO_STORE_HEADERS)


def _form(request: Request) -> dict[str, list[str]]:
    if len(request.body) > MAX_FORM_BYTES or request.headers.get("content-encoding"):
        raise Problem(413, "too_large", "The form is too large.", hint="Select fewer rows.")
    try:
        return parse_qs(request.body.decode(), keep_blank_values=True, max_num_fields=1_000)
    except ValueError:
        raise Problem(400, "bad_form", "The form is invalid.", hint="Use the form of the page.") from None

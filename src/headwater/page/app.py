"""The page over HTTP: each view at its path, what it fetches, and the few things that change something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec

from headwater.errors import HeadwaterError, RejectNotFound
from headwater.graph.http.query_pool import Parameters, QueryPool
from headwater.graph.query.names import NotFound
from headwater.graph.query.query import GraphQuery, QueryTimeout
from headwater.http.request import Request
from headwater.http.response import Problem, Response
from headwater.http.router import Router
from headwater.page.access import Guard, own_path
from headwater.page.live import Live
from headwater.page.templating import (
    HEADERS,
    assets,
    clean,
    document,
    download,
    file,
    place,
    redirect,
    render,
    short,
)
from headwater.page.urls import PATHS, link
from headwater.page.views import pages as views
from headwater.page.views.event_tail import Tail

__all__ = ["Page"]

MAX_FORM_BYTES = 64 * 1024
PAUSE_SECONDS = 1.0  # after a wrong token: guessing takes for ever
STILL = ("reject", "search")  # views that do not move


class Page:
    """All routes of the page."""

    def __init__(
        self, pool: QueryPool, guard: Guard, sources: views.Sources, make_tail: Callable[[], Tail]
    ) -> None:
        self._pool = pool
        self._guard = guard
        self._sources = sources
        self._make_tail = make_tail
        self.live = Live()

    def add(self, routes: Router) -> None:
        """Serve it, beside what is served already."""
        for name in views.VIEWS:
            self._get(routes, name, self._view(name))
        self._get(routes, "lineage", self._lineage)
        self._get(routes, "tail", self._tail)
        for name, handler in (
            ("trace", self._trace),
            ("svg", self._svg),
            ("suggest", self._suggest),
            ("live", self._live),
            ("live_tail", self._live_tail),
        ):
            routes.add("GET", PATHS[name], handler, needs_no_key=True, before_body=self._guard.data)
        for name, handler in (("replay", self._replay), ("drop", self._drop), ("logout", self._logout)):
            routes.add("POST", PATHS[name], handler, needs_no_key=True, before_body=self._guard.change)
        routes.add("GET", PATHS["login"], self._login_form, needs_no_key=True)
        routes.add("POST", PATHS["login"], self._login, needs_no_key=True, before_body=self._guard.form)
        for path, (content_type, content) in assets().items():
            answer = file(content, content_type)
            routes.add("GET", path, _constant(answer), needs_no_key=True)

    def _get(self, routes: Router, name: str, handler: Callable[[Request], Any]) -> None:
        routes.add("GET", PATHS[name], handler, needs_no_key=True, before_body=self._guard.page)

    # --- pages ---------------------------------------------------------------------------------------

    def _view(self, name: str) -> Callable[[Request], Awaitable[None]]:
        make = views.VIEWS[name]

        async def handle(request: Request) -> None:
            def page(query: GraphQuery) -> Response:
                given = Parameters(request)
                fragment = make(self._sources, query, given)
                address = None if name in STILL else f"{PATHS['live']}?{request.query}&view={name}"
                return self._whole(
                    fragment, address=address, done=given.get("done", ""), count=given.get("count", "")
                )

            request.respond(await self._asked(page))

        return handle

    async def _lineage(self, request: Request) -> None:
        def page(query: GraphQuery) -> Response:
            given = Parameters(request)
            if not given.get("name", ""):
                newest = query.search("", kinds=("dataset",), limit=1)
                if newest:
                    return redirect(link("lineage", namespace=newest[0].namespace, name=newest[0].name))
                return self._whole(views.search(query, given))
            return self._whole(views.lineage(query, given))

        request.respond(await self._asked(page))

    async def _tail(self, request: Request) -> None:
        fragment = views.Fragment("_tail.html", "Live", "tail", {})
        request.respond(await self._asked(lambda query: self._whole(fragment)))

    def _whole(
        self,
        fragment: views.Fragment,
        *,
        status: int = 200,
        address: str | None = None,
        done: str = "",
        count: str = "",
    ) -> Response:
        text = render(
            "page.html",
            fragment=fragment,
            address=address,
            done=done if done in ("replay", "drop") else "",
            count=int(count) if count.isascii() and count.isdecimal() and len(count) < 12 else 0,
            open_rejects=self._sources.stages.open_rejects(),
            has_token=self._guard.has_token,
            **fragment.values,
        )
        return document(status, text)

    async def _asked(self, make: Callable[[GraphQuery], Response]) -> Response:
        """What the function answers, in a thread of the graph's; errors as pages for people."""
        try:
            return await self._pool.run(make)
        except Exception as error:
            told = _told(error)
        fragment = views.Fragment("_error.html", told.title, "", {"told": told})
        return await asyncio.to_thread(self._whole, fragment, status=told.status)

    # --- what pages fetch ----------------------------------------------------------------------------

    async def _trace(self, request: Request) -> None:
        """A traced column: which rows and lines are lit, and the list of its way."""

        def answer(query: GraphQuery) -> Response:
            values = views.traced(query, Parameters(request))
            trace = values["trace"]
            # as the drawing has them, which is compared with them
            content = {
                "columns": [
                    (node.dataset, clean(node.column or "")) for node in (trace.columns if trace else ())
                ],
                "edges": [
                    (
                        edge.source,
                        clean(edge.source_column or ""),
                        edge.target,
                        clean(edge.target_column or ""),
                    )
                    for edge in (trace.column_edges if trace else ())
                ],
                "panel": render("_trace.html", **values),
            }
            return Response(
                200, msgspec.json.encode(content), headers={**HEADERS, "Cache-Control": "no-store"}
            )

        request.respond(await self._fetched(answer))

    async def _svg(self, request: Request) -> None:
        def answer(query: GraphQuery) -> Response:
            values = views.lineage(query, Parameters(request)).values
            text = render("export.svg", **values)
            name = "".join(c if c.isascii() and c.isalnum() else "-" for c in short(values["name"]))[:60]
            return download(text.encode("utf-8", "replace"), "image/svg+xml", f"lineage-{name}.svg")

        request.respond(await self._fetched(answer))

    async def _suggest(self, request: Request) -> None:
        def answer(query: GraphQuery) -> Response:
            hits = views.search(query, Parameters(request)).values["hits"]
            found = [
                {
                    "kind": hit.kind,
                    "title": clean(hit.column or short(hit.name)),
                    "place": clean(
                        f"{hit.name} · {hit.namespace}" if hit.column else place(hit.namespace, hit.name)
                    ),
                    "href": address_of(hit),
                }
                for hit in hits
            ]
            return Response(200, msgspec.json.encode(found), headers={**HEADERS, "Cache-Control": "no-store"})

        request.respond(await self._fetched(answer))

    async def _live(self, request: Request) -> None:
        given = Parameters(request)
        name = given.choice("view", "pipeline", *(name for name in views.VIEWS if name not in STILL))

        def text(query: GraphQuery) -> str:
            fragment = views.VIEWS[name](self._sources, query, given)
            return render(fragment.template, **fragment.values)

        async def make() -> str:
            try:
                return await self._pool.run(text)
            except HeadwaterError as error:
                return render("_error.html", told=_told(error))

        await self.live.view(request, make)

    async def _live_tail(self, request: Request) -> None:
        await self.live.tail(request, self._make_tail())

    async def _fetched(self, make: Callable[[GraphQuery], Response]) -> Response:
        try:
            return await self._pool.run(make)
        except Exception as error:
            told = _told(error)
            return Problem(told.status, told.code, told.title, hint=told.hint).response()

    # --- what changes something ----------------------------------------------------------------------

    async def _replay(self, request: Request) -> None:
        await self._change(
            request, "replay", lambda ids, stage: sum(self._sources.rejects.request_replay(ids, stage))
        )

    async def _drop(self, request: Request) -> None:
        await self._change(request, "drop", self._sources.rejects.drop)

    async def _change(
        self, request: Request, name: str, change: Callable[[list[int], str | None], int]
    ) -> None:
        form = _form(request)
        ids = [int(id) for id in form.get("id", ()) if id.isascii() and id.isdecimal() and len(id) < 18]
        stage = form.get("stage", [""])[-1] or None
        seen = form.get("seen", [""])[-1] or None
        try:
            count = await asyncio.to_thread(change, ids, stage) if ids or stage else 0
        except HeadwaterError as error:
            told = _told(error)
            fragment = views.Fragment("_error.html", told.title, "rejects", {"told": told})
            request.respond(await asyncio.to_thread(self._whole, fragment, status=told.status))
            return
        request.respond(redirect(link("rejects", stage=seen, done=name, count=count)))

    def _login_form(self, request: Request) -> None:
        given = Parameters(request)
        request.respond(self._form(200, own_path(given.get("next", "/")), is_wrong=False))

    def _form(self, status: int, following: str, *, is_wrong: bool) -> Response:
        values = {"following": following, "is_wrong": is_wrong, "has_token": self._guard.has_token}
        return document(status, render("login.html", **values))

    async def _login(self, request: Request) -> None:
        form = _form(request)
        following = own_path(form.get("next", ["/"])[-1])
        if self._guard.opens(form.get("token", [""])[-1].strip()):
            request.respond(redirect(following, {"Set-Cookie": self._guard.cookie()}))
            return
        await asyncio.sleep(PAUSE_SECONDS)
        request.respond(self._form(401, following, is_wrong=True))

    async def _logout(self, request: Request) -> None:
        request.respond(redirect(link("login"), {"Set-Cookie": self._guard.no_cookie()}))


def address_of(hit: Any) -> str:
    """Where a hit of a search leads."""
    if hit.kind == "job":
        return link("job", namespace=hit.namespace, name=hit.name)
    return link("lineage", namespace=hit.namespace, name=hit.name, column=hit.column)


class Told(NamedTuple):
    """An error as a person is told of it."""

    status: int
    code: str
    title: str
    hint: str


def _told(error: Exception) -> Told:
    if isinstance(error, Problem):
        return Told(error.status, error.code, error.text, error.hint or "")
    if isinstance(error, (NotFound, RejectNotFound)):
        return Told(404, "not_found", error.text, error.hint or "")
    if isinstance(error, QueryTimeout):
        return Told(503, "too_long", error.text, error.hint or "")
    if isinstance(error, HeadwaterError):
        return Told(503, "unavailable", error.text, error.hint or "")
    raise error


def _form(request: Request) -> dict[str, list[str]]:
    if len(request.body) > MAX_FORM_BYTES or request.headers.get("content-encoding"):
        raise Problem(413, "too_large", "The form is too large.", hint="Choose fewer rows.")
    try:
        return parse_qs(request.body.decode(), keep_blank_values=True, max_num_fields=1_000)
    except ValueError:
        raise Problem(400, "bad_form", "The form cannot be read.", hint="Use the page's own.") from None


def _constant(answer: Response) -> Callable[[Request], None]:
    def handle(request: Request) -> None:
        request.respond(answer)

    return handle

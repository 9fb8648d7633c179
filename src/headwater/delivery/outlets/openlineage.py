"""The `openlineage` outlet: a backend over HTTP, by `/lineage` and, where it has it, `/lineage/batch`.

Events go in order. With the single endpoint each is a request of its own, so a restart repeats at most one;
with the batch endpoint a backend that takes only some of a batch may say that others should be tried again,
and those then arrive after their successors: that is the backend's choice and cannot be changed from here.

With `batch: auto` the answers of the batch endpoint have these effects:

    404, 405, 501                    there is none: single requests, and one batch every ten minutes
    2xx, empty or in the standard    delivered, refused or retried, event by event
    form, with progress
    400, 413, 422 and other 4xx      the batch is halved until the bad event is found. Until a batch has
                                     succeeded: if a single request succeeds and a batch is refused again,
                                     single requests for ten minutes
    429, once a batch has succeeded  retried as it is
    all else: 401, 403, 5xx, 3xx,    the next request is a single one. If that fails too, the backend is down;
    other text, a broken             if it succeeds, one more batch is tried, and if that fails as well,
    connection, no answer in time,   single requests are made for ten minutes
    no progress
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Annotated, Any, Literal

import msgspec

from headwater.clock import Clock
from headwater.delivery.outlets.base import DELIVERED, Batch, Refused, Result, Results, Retry
from headwater.delivery.outlets.http_client import (
    Compression,
    HttpAnswer,
    HttpReceiverOutlet,
    TlsOptions,
    bare_url,
    bearer,
    excerpt,
)
from headwater.errors import EventRefused, OutletUnavailable
from headwater.formats.json_decoder import json_decoder
from headwater.settings import OutletSettings, doc

NO_BATCH_STATUSES = frozenset({404, 405, 501})
BATCH_PAUSE_SECONDS = 600.0  # a backend may be upgraded while we run: ask again from time to time

logger = logging.getLogger(__name__)


class OpenLineageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The backend's address, and the form of requests to it."""

    url: Annotated[str, doc("Base URL of the backend, such as `http://marquez:5000`.")]
    endpoint: Annotated[str, doc("Path of the single endpoint; the batch endpoint is `/batch` below it.")] = (
        "api/v1/lineage"
    )
    batch: Annotated[
        Literal["auto", "always", "never"],
        doc("Use the batch endpoint: where the backend has one, always, or never."),
    ] = "auto"
    api_key: Annotated[str, doc("Sent as `Authorization: Bearer`; write it as `${env.NAME}`.")] = ""
    headers: Annotated[dict[str, str], doc("Further headers of each request.")] = {}
    compression: Annotated[Compression, doc("How request bodies are compressed.")] = "none"
    tls: Annotated[TlsOptions, doc("Certificates.")] = TlsOptions()


class _FailedEvent(msgspec.Struct):
    index: int
    reason: str = ""
    retriable: bool = False


class _BatchAnswer(msgspec.Struct):
    status: Literal["success", "partial_success"]
    failed_events: list[_FailedEvent] = []


_BATCH_ANSWER = json_decoder(_BatchAnswer)


class _BatchRoute:
    """Whether `auto` uses the batch endpoint: no failure of that endpoint alone may stop the events."""

    def __init__(self, clock: Clock) -> None:
        self.is_proven = False  # a batch has succeeded
        self.is_suspect = False  # a batch failed where a single request then succeeded
        self._clock = clock
        self._closed_until: float | None = None  # monotonic
        self._has_failed = False  # since the last request that succeeded
        self._needs_single = False  # nothing else is sent until a single request succeeds

    @property
    def is_open(self) -> bool:
        if self._needs_single:
            return False
        return self._closed_until is None or self._clock.monotonic() >= self._closed_until

    def succeeded(self) -> None:
        self.is_proven = True
        self.is_suspect = self._has_failed = self._needs_single = False
        self._closed_until = None

    def failed(self, *, needs_single: bool) -> None:
        self._has_failed = True
        self._needs_single = self._needs_single or needs_single

    def close(self) -> None:
        """Make single requests for some time."""
        self.is_proven = False
        self._closed_until = self._clock.monotonic() + BATCH_PAUSE_SECONDS

    def single_succeeded(self) -> None:
        if self._has_failed:
            self.is_suspect = True
            self._has_failed = self._needs_single = False


class OpenLineageOutlet(HttpReceiverOutlet):
    """Sends events to an OpenLineage backend."""

    Settings = OpenLineageOptions
    options: OpenLineageOptions

    def __init__(self, options: Any, settings: OutletSettings, *, clock: Clock | None = None) -> None:
        super().__init__(options, settings, headers=bearer(options.api_key, options.headers), clock=clock)
        self._single = f"{self._url}/{self.options.endpoint.strip('/')}"
        self._many = f"{self._single}/batch"
        self._route = _BatchRoute(self._clock)

    @property
    def max_events(self) -> int | None:
        """One, while only the single endpoint is used: each event is then finished by itself (G4)."""
        return None if self._batches else 1

    @property
    def _batches(self) -> bool:
        if self.options.batch != "auto":
            return self.options.batch == "always"
        if self.settings.on_refused == "block":
            return False  # within a batch the backend would take what comes after a refused event
        return self._route.is_open

    async def send(self, batch: Batch) -> Results:
        if self.options.batch == "always":
            return self._read_many(await self._post_many(batch), len(batch.events))
        if self._batches and len(batch.events) > 1:
            results = await self._send_many(batch)
            if results is not None:
                return results
        result = self._read_one(await self._http.post(self._single, batch.pieces[0]))
        if result is DELIVERED:
            self._route.single_succeeded()
        return [result]

    async def _send_many(self, batch: Batch) -> Results | None:
        """Results by the batch endpoint; None if the backend has none."""
        route = self._route
        was_suspect = route.is_suspect  # when the batch was sent, which may be before a single one succeeds
        status = 0
        try:
            answer = await self._post_many(batch)
            status = answer.status_code
            if status in NO_BATCH_STATUSES:
                route.close()
                return None
            results = self._read_many(answer, len(batch.events))
            if reasons := _without_progress(results):
                raise OutletUnavailable(f"{reasons[0]} (and so for all {len(reasons)} events of the batch)")
        except EventRefused as error:
            if not route.is_proven:
                self._on_batch_failure(was_suspect, error, needs_single=False)
            raise
        except (OutletUnavailable, asyncio.CancelledError) as error:  # cancelled: no answer in time
            if not (status == 429 and route.is_proven):
                self._on_batch_failure(was_suspect, error, needs_single=True)
            raise
        route.succeeded()
        return results

    def _post_many(self, batch: Batch) -> Awaitable[HttpAnswer]:
        return self._http.post(self._many, b"[" + b",".join(batch.pieces) + b"]")

    def _on_batch_failure(self, was_suspect: bool, error: BaseException, *, needs_single: bool) -> None:
        if not was_suspect:
            self._route.failed(needs_single=needs_single)
            return
        self._route.close()
        logger.warning(
            "Outlet %s makes single requests for %g minutes, since they succeed and batches fail: %s",
            self.settings.name,
            BATCH_PAUSE_SECONDS / 60,
            str(error) or "no answer in time",
        )

    def _read_one(self, answer: HttpAnswer) -> Result:
        try:
            self.check(answer, self._single)
        except EventRefused as error:
            return Refused(error.text)
        if _is_page(answer):
            raise OutletUnavailable(
                f"{bare_url(self._single)} answered with a web page: {excerpt(answer)}",
                hint=f"Set `url` of outlet {self.settings.name} to an OpenLineage backend.",
            )
        return DELIVERED

    def _read_many(self, answer: HttpAnswer, count: int) -> Results:
        self.check(answer, self._many)
        where = bare_url(self._many)
        results: list[Result] = [DELIVERED] * count
        if not answer.content.strip():
            return results
        try:
            reply = _BATCH_ANSWER.decode(answer.content)
            for failed in reply.failed_events:
                if not 0 <= failed.index < count:
                    raise ValueError(f"it names event {failed.index} of {count}")
                reason = f"{where}: {failed.reason or 'no reason given'}"
                results[failed.index] = Retry(reason) if failed.retriable else Refused(reason)
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            raise OutletUnavailable(
                f"{where} answered something unreadable ({error}): {excerpt(answer)}"
            ) from None
        return results


def _without_progress(results: Results) -> list[str]:
    """The reasons, if every event is to be retried."""
    reasons = [result.reason for result in results if isinstance(result, Retry)]
    return reasons if len(reasons) == len(results) else []


def _is_page(answer: HttpAnswer) -> bool:
    """A login page or a proxy's greeting: a 200 that acknowledges nothing."""
    return "html" in answer.headers.get("content-type", "") and answer.content.lstrip().startswith(b"<")

"""The `openlineage` outlet: a backend over HTTP, by `/lineage` and, where it has it, `/lineage/batch`.

Events go in order. With the single endpoint each is a request of its own, so a restart repeats at most one;
with the batch endpoint a backend that takes only some of a batch may say that others should be tried again,
and those then arrive after their successors: that is the backend's choice and cannot be changed from here.
"""

from __future__ import annotations

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
from headwater.json_decoder import json_decoder
from headwater.settings import OutletSettings, doc

NO_BATCH_STATUSES = frozenset({404, 405, 501})
BATCH_PAUSE_SECONDS = 600.0  # a backend may be upgraded while we run: ask again from time to time


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


class OpenLineageOutlet(HttpReceiverOutlet):
    """Sends events to an OpenLineage backend."""

    Settings = OpenLineageOptions
    options: OpenLineageOptions

    def __init__(self, options: Any, settings: OutletSettings, *, clock: Clock | None = None) -> None:
        super().__init__(options, settings, headers=bearer(options.api_key, options.headers), clock=clock)
        self._single = f"{self._url}/{self.options.endpoint.strip('/')}"
        self._many = f"{self._single}/batch"
        self._no_batch_until: float | None = None  # monotonic; None: not known to be missing

    @property
    def max_events(self) -> int | None:
        """One, while only the single endpoint is there: each event is then finished by itself (G4)."""
        return None if self._batches else 1

    @property
    def _batches(self) -> bool:
        if self.options.batch == "never":
            return False
        if self.options.batch == "auto" and self.settings.on_refused == "block":
            return False  # within a batch the backend would take what comes after a refused event
        return self._no_batch_until is None or self._clock.monotonic() >= self._no_batch_until

    async def send(self, batch: Batch) -> Results:
        if self._batches and (len(batch.events) > 1 or self.options.batch == "always"):
            answer = await self._http.post(self._many, b"[" + b",".join(batch.pieces) + b"]")
            if self.options.batch == "always" or answer.status_code not in NO_BATCH_STATUSES:
                self._no_batch_until = None
                return self._read_many(answer, len(batch.events))
            self._no_batch_until = self._clock.monotonic() + BATCH_PAUSE_SECONDS
        answer = await self._http.post(self._single, batch.pieces[0])
        return [self._read_one(answer)]

    def _read_one(self, answer: HttpAnswer) -> Result:
        try:
            self.check(answer, self._single)
        except EventRefused as error:
            return Refused(error.text)
        if _is_page(answer):
            raise OutletUnavailable(
                f"{bare_url(self._single)} answered with a web page: {excerpt(answer)}",
                hint="Check the outlet's url: the server there is not an OpenLineage backend.",
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


def _is_page(answer: HttpAnswer) -> bool:
    """A login page or a proxy's greeting: a 200 that acknowledges nothing."""
    return "html" in answer.headers.get("content-type", "") and answer.content.lstrip().startswith(b"<")

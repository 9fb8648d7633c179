"""Repeated requests: after a lost answer a sender repeats a request, whose events are then stored once.

A repetition is known by its `Idempotency-Key`, or, for a browser's event, by its `eventn_ctx.event_id` and
all of its other bytes. It is answered when the first one is: 200 means on disk (G1) here too. The keys are
kept in memory, within limits of time and number (G8), and are lost with the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Generic, NamedTuple, TypeVar

from headwater.clock import Clock
from headwater.http.request import Request
from headwater.http.response import Problem, Response

MAX_EVENTS = 32_768  # of one generation; there are two
MAX_ANSWERS = 4_096
MAX_ANSWER_BYTES = 2 * 1024 * 1024
MAX_KEY = 255
DIGEST_BYTES = 16

V = TypeVar("V")


class Window(Generic[V]):
    """The latest entries by key, in two generations: a full one replaces the one before it."""

    def __init__(self, seconds: float, clock: Clock, *, max_entries: int, max_bytes: int = 0) -> None:
        self._seconds = seconds
        self._monotonic = clock.monotonic
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._newer: dict[bytes, V] = {}
        self._older: dict[bytes, V] = {}
        self._bytes = 0
        self._ends = clock.monotonic() + seconds

    def get(self, key: bytes) -> V | None:
        """Return the entry of a key, if it is not too old."""
        now = self._monotonic()
        if now >= self._ends:
            self._turn()
            self._ends += self._seconds
            if now >= self._ends:
                self._turn()
                self._ends = now + self._seconds
        return self._newer.get(key) or self._older.get(key)

    def put(self, key: bytes, value: V) -> None:
        """Add or replace an entry."""
        if len(self._newer) >= self._max_entries:
            self._turn()
        self._newer[key] = value

    def remove(self, key: bytes, value: V) -> None:
        """Remove an entry, if it is the one of its key."""
        for entries in (self._newer, self._older):
            if entries.get(key) is value:
                del entries[key]

    def count_bytes(self, size: int) -> None:
        """Count memory that an entry takes besides."""
        self._bytes += size
        if self._bytes > self._max_bytes:
            self._turn()

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def _turn(self) -> None:
        self._older, self._newer, self._bytes = self._newer, {}, 0


class FirstRequest:
    """A request whose events others may repeat, until and after it is answered."""

    __slots__ = ("is_stored", "waiting")

    def __init__(self) -> None:
        self.is_stored: bool | None = None  # None: not answered yet
        self.waiting: list[Callable[[], None]] = []

    def answered(self, response: Response) -> None:
        """Note the answer, and go on with the repetitions that wait for it."""
        self.is_stored = response.status == 200
        waiting, self.waiting = self.waiting, []
        for go_on in waiting:
            go_on()


class BrowserEvents:
    """The events of browsers that have ids of their own."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self.is_on = seconds > 0
        self._window: Window[FirstRequest] = Window(seconds, clock, max_entries=MAX_EVENTS)

    def claim(self, first: FirstRequest, token_id: str, body: bytes) -> FirstRequest | None:
        """Return the earlier request that has the event; None if it is new, and now is of `first`."""
        digest = blake2b(body, digest_size=DIGEST_BYTES, key=token_id.encode()).digest()
        found = self._window.get(digest)
        if found is not None and found is not first and found.is_stored is not False:
            return found
        self._window.put(digest, first)
        return None


def respond_after(earlier: Sequence[FirstRequest], request: Request, response: Response) -> None:
    """Answer a request when all earlier ones that have events of it are answered."""
    for index, first in enumerate(earlier):
        if first.is_stored is None:
            first.waiting.append(partial(respond_after, earlier[index:], request, response))
            return
        if not first.is_stored:
            failure = Problem(
                503,
                "repeated_too_early",
                "An earlier request with the same events failed; not all events were stored.",
                hint="Send it again.",
                retryable=True,
                headers={"Retry-After": "1"},
            )
            response = failure.response(response.headers)
            break
    request.respond(response)


class _Answer(NamedTuple):
    """The first request with a key: the digest of its body, its answer, and repetitions that wait for it."""

    body: bytes
    responses: list[Response]
    waiting: list[Request]


class IdempotencyKeys:
    """The answers to requests with an `Idempotency-Key`."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._is_on = seconds > 0
        self._window: Window[_Answer] = Window(
            seconds, clock, max_entries=MAX_ANSWERS, max_bytes=MAX_ANSWER_BYTES
        )

    def is_repeated(self, request: Request, sender: str) -> bool:
        """Return whether a request repeats another one; it then is answered here.

        Raises Problem if the key cannot be one, or was sent with another body.
        """
        key = request.headers["idempotency-key"]
        if not self._is_on:
            return False
        if not (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
            raise Problem(
                400,
                "bad_idempotency_key",
                f"The Idempotency-Key is not 1 to {MAX_KEY} printable ASCII characters.",
                hint="Send a UUID that is new for each request, and the same when you repeat it.",
            )
        scope = b"\0".join((request.target.partition(b"?")[0], sender.encode(), key.encode()))
        digest, body = _digest(scope), _digest(request.read_body())
        found = self._window.get(digest)
        if found is None:
            self._window.put(digest, first := _Answer(body, [], []))
            request.answered = partial(self._answered, digest, first)
            return False
        if found.body != body:
            raise Problem(
                422,
                "idempotency_key_reused",
                "The Idempotency-Key was sent before, with another body.",
                hint="Send a new key with each new request.",
            )
        if found.responses:
            request.respond(found.responses[0])
        else:
            found.waiting.append(request)
        return True

    def _answered(self, digest: bytes, first: _Answer, response: Response) -> None:
        if response.status == 200:
            first.responses.append(response)
            self._window.count_bytes(len(response.body))
        else:
            self._window.remove(digest, first)  # the request may be repeated, and stored then
        for request in first.waiting:
            request.respond(response)
        first.waiting.clear()


def _digest(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=DIGEST_BYTES).digest()

"""The outlet contract: how events are sent to one kind of receiver.

An outlet is a class named by an entry point of the group `headwater.outlets`. Its methods are called by one
thread only, on one asyncio loop, its own unless `shares_loop` is set, in this order:

    connect    first, and again with back-off until it does not raise; again after `send` raised NotConnected
    send       never before `connect` succeeded; at most once at a time per session, and for several sessions
               at once; cancelled after `timeout_seconds`, which counts as OutletUnavailable
    close      once nothing is under way; may be called twice, and without `connect`

`send` returns a result for each event: it was taken (DELIVERED), it will never be taken (Refused), or it
should be tried again (Retry). It may raise for all of them: OutletUnavailable (all are retried without
limit), EventRefused (an event is bad: the batch is halved until that event is found), NotConnected.
Any other exception is a defect of the outlet; it is logged and counts as OutletUnavailable, so that it loses
no event (G3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from headwater.delivery.keys import Key, Keys
from headwater.errors import OutletUnavailable
from headwater.events import Event
from headwater.extensions import load
from headwater.settings import OutletSettings, convert
from headwater.system.installation import install_command

GROUP = "headwater.outlets"
MIB = 1024 * 1024


class NotConnected(OutletUnavailable):
    """Raised by `send` when `connect` must succeed again before anything else can."""


class Delivered(msgspec.Struct, frozen=True):
    """The receiver has the event, as durably as it stores events."""


class Refused(msgspec.Struct, frozen=True):
    """The receiver will never take this event, for this reason."""

    reason: str


class Retry(msgspec.Struct, frozen=True):
    """Retry the event, after `after_seconds` if the receiver sent Retry-After."""

    reason: str
    after_seconds: float | None = None


DELIVERED = Delivered()

Result = Delivered | Refused | Retry
Results = Sequence[Result]


class Batch(msgspec.Struct):
    """Events of one session for one request, in order.

    `pieces[i]` are the bytes that stand for `events[i]` in the request: the result of `Outlet.prepare`,
    trimmed if necessary. `shared` has the parts that `Outlet.shared` returned, each once.
    """

    session: str
    key: Key
    events: list[Event]
    pieces: list[bytes]
    shared: dict[str, bytes]

    @property
    def info(self) -> dict[str, Any]:
        """The fields of `group_by`, which all events of the session share."""
        return self.key.info


class NoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """An outlet without settings of its own."""


class Outlet(ABC):
    """Sends batches to one receiver."""

    Settings: ClassVar[type[msgspec.Struct]] = NoOptions
    """The outlet's own options; each field is documented by a `msgspec.Meta(description=...)`."""
    shares_loop: ClassVar[bool] = False
    """Whether its coroutines never block: it then shares a loop and its thread with other outlets."""
    default_batch_events: ClassVar[int] = 500
    default_batch_bytes: ClassVar[int] = 4 * MIB
    default_session_bytes: ClassVar[int] = 8 * MIB

    def __init__(self, options: Any, settings: OutletSettings) -> None:
        """`options` is an instance of `Settings`. Opens nothing: that is for `connect`."""
        self.options = options
        self.settings = settings

    def keys(self) -> Keys:
        """How events get their sessions: by `group_by`, and by what the receiver states once per session."""
        return Keys(self.settings.group_by)

    @property
    def batch_events(self) -> int:
        """Most events of a batch, by the settings."""
        return self.settings.max_batch_events or self.default_batch_events

    @property
    def batch_bytes(self) -> int:
        """Most bytes of a batch, by the settings."""
        return self.settings.max_batch_bytes or self.default_batch_bytes

    @property
    def session_bytes(self) -> int:
        """Most bytes of events that one session holds in memory, by the settings."""
        return self.settings.session_budget_bytes or self.default_session_bytes

    @property
    def max_events(self) -> int | None:
        """Most events for one `send`, where the receiver has such a limit; may change from call to call."""
        return None

    @property
    def max_request_bytes(self) -> int | None:
        """Most bytes of a request before compression, where the receiver has such a limit.

        An event that is too large alone is trimmed, or becomes a reject.
        """
        return None

    async def connect(self) -> None:  # noqa: B027 - many outlets have nothing to open
        """Open what `send` needs. May be called when it is open already."""

    @abstractmethod
    async def send(self, batch: Batch) -> Results:
        """Send the batch: a result per event, in order.

        A list that is shorter than the batch says that the rest was not tried; it is sent next.
        """

    async def close(self) -> None:  # noqa: B027
        """Close what `connect` opened."""

    def trouble(self) -> str | None:
        """Why a `send` under way does not end, where the outlet knows; may be called from any thread."""
        return None

    def prepare(self, event: Event, key: Key) -> bytes:
        """The bytes that stand for the event in a request; raises EventRefused when there can be none."""
        return event.body

    def shared(self, event: Event, key: Key) -> Mapping[str, bytes]:
        """Parts of a request that several events have in common, by name; each is in a batch once."""
        return {}

    def envelope_bytes(self, session: str, key: Key) -> int:
        """Bytes of a request around the pieces, without the separators between them."""
        return 2

    @property
    def separator_bytes(self) -> int:
        """Bytes between two pieces: a comma or a newline."""
        return 1

    def trim(self, piece: bytes, limit_bytes: int) -> bytes:
        """The piece made to fit `limit_bytes`; raises EventRefused when it cannot be."""
        from headwater.delivery.shorten_json import trim_json

        return trim_json(piece, limit_bytes)


def outlet_class(name: str) -> type[Outlet]:
    """The class behind a `type` of the settings."""
    install = install_command("kafka") if name == "kafka" else ""  # the others need the core alone
    return load(GROUP, name, Outlet, what="outlet of the type", install=install)  # type: ignore[type-abstract]


def load_outlet(settings: OutletSettings) -> Outlet:
    """The outlet that the settings describe, not yet connected."""
    kind = outlet_class(settings.type)
    options = convert(settings.options, kind.Settings, source=f"outlet {settings.name}")
    return kind(options, settings)

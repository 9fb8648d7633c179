"""The events of one request, within the receiver's limits, measured on the bytes that are sent."""

from __future__ import annotations

from headwater.delivery.keys import Key
from headwater.delivery.outlets.base import Batch, Outlet
from headwater.errors import EventRefused
from headwater.events import Event


class Buffer:
    """An open batch of one session.

    Holds at least one event, however large, unless the receiver has a hard limit. The limit counts the
    envelope, the pieces and what separates them, before compression.
    """

    def __init__(self, outlet: Outlet, session: str, key: Key) -> None:
        self._outlet = outlet
        self._hard = outlet.max_request_bytes
        self._limit = min(outlet.batch_bytes, self._hard or outlet.batch_bytes)
        self._max_events = min(outlet.batch_events, outlet.max_events or outlet.batch_events)
        self._envelope = outlet.envelope_bytes(session, key)
        self._separator = outlet.separator_bytes
        self.bytes = self._envelope
        self.batch = Batch(session, key, [], [], {})

    def __len__(self) -> int:
        return len(self.batch.events)

    def add(self, event: Event) -> bool:
        """Add the event; False if it does not fit and this batch is to be sent first.

        EventRefused if it fits no request at all, even trimmed.
        """
        if len(self.batch.events) >= self._max_events:
            return False
        batch = self.batch
        shared = self._outlet.shared(event, batch.key)
        piece = self._outlet.prepare(event, batch.key)
        new = {name: part for name, part in shared.items() if name not in batch.shared}
        beside = sum(len(part) + 1 for part in new.values()) + self._separator
        if self.bytes + beside + len(piece) > self._limit:
            if batch.events:
                return False
            if self._hard is not None and self.bytes + beside + len(piece) > self._hard:
                piece = self._trimmed(piece, self._hard - self._envelope - beside)
        batch.events.append(event)
        batch.pieces.append(piece)
        batch.shared.update(new)
        self.bytes += beside + len(piece)
        return True

    def _trimmed(self, piece: bytes, limit: int) -> bytes:
        if limit < 0:
            raise EventRefused(
                f"the request without the event is larger than the receiver's {self._hard} bytes"
            )
        trimmed = self._outlet.trim(piece, limit)
        if len(trimmed) > limit:
            raise EventRefused(
                f"{len(piece)} bytes, trimmed {len(trimmed)}; the receiver's limit leaves {limit}"
            )
        return trimmed

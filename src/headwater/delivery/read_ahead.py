"""What is read from the log next, and for which sessions (G8).

Without `group_by` this is simple: read on while there is room. With it, a session that fails or is slow must
hold up neither the others nor the memory. `ReadAhead` reads on past its events without keeping them and notes
where the first of them lies: the session is *deferred* there. When it has room again, the log is read again
from that place, for the deferred sessions that can take something, until they have caught up with the head.

    log  ──────────●───────────────●──────────────────►
          deferred: session A here   B here             head

Whatever the backlog and however many sessions fail, memory holds at most `budget_bytes` of events and a
number per deferred session.
"""

from __future__ import annotations

from headwater.delivery.keys import Key, Keys
from headwater.delivery.scheduler import Scheduler
from headwater.delivery.sessions import Session
from headwater.events import Event
from headwater.log.queue.reader import Reader
from headwater.settings import OutletSettings

MAX_HELD_EVENTS = 50_000  # an event costs some 200 bytes besides its body, however small that is
MAX_DEFERRED = 200_000  # sessions; beyond it the head waits
MIN_SHARE_BYTES = 16 * 1024  # of one session, however many there are
KEPT_BYTES = 16 * 1024  # of a failing session: enough to try with, so that a try needs no reading
READ_BYTES = 1024 * 1024


class ReadAhead:
    """Moves events from the log into the scheduler. Lives on the scheduler's loop."""

    def __init__(self, scheduler: Scheduler, keys: Keys, settings: OutletSettings, reader: Reader) -> None:
        self.head = reader.position
        self.deferred: dict[str, int] = {}  # key id -> its first position that is not in memory
        self._scheduler = scheduler
        self._keys = keys
        self._reader = reader
        self._budget = settings.budget_bytes
        if not keys.is_grouped:
            self._budget = min(settings.budget_bytes, scheduler.outlet.session_bytes)
        self._uncommitted: dict[int, int] = {}  # position -> bytes: settled, but the cursor does not know yet
        self._uncommitted_bytes = 0
        self._wants_events: set[str] = set()  # deferred and able to take events
        self._rescanned: set[str] = set()  # those that the scan under way is for
        self._rescan_at = 0

    # --- called by the outlet worker

    def on_settled(self, session: Session, events: list[Event]) -> None:
        """Note events that are settled, but not yet committed."""
        for event in events:
            if event.position not in self._uncommitted:
                self._uncommitted[event.position] = len(event.body)
                self._uncommitted_bytes += len(event.body)
        self._ask(session)

    def committed(self, events: list[Event]) -> None:
        """Free the room of events that the cursor has recorded."""
        for event in events:
            self._uncommitted_bytes -= self._uncommitted.pop(event.position, 0)

    def on_retry_scheduled(self, session: Session) -> list[Event]:
        """The session waits: keep little of it in memory, defer the rest, which is returned."""
        if not self._keys.is_grouped:
            return []
        key = session.key.id
        self._wants_events.discard(key)
        # `step` stops at half of the budget, or of the count: all that fail together stay well below either
        fair = self._budget // 4 // max(1, self._scheduler.failing)
        count = MAX_HELD_EVENTS // 4 // max(1, self._scheduler.failing)
        dropped = self._scheduler.forget(session, min(KEPT_BYTES, fair), count)
        # a replayed reject (a negative position) is not in the log
        if fresh := [event.position for event in dropped if event.position > 0]:
            self.deferred[key] = fresh[0]
            self._rescanned.discard(key)
        return dropped

    # --- reading

    def step(self, end: int) -> bool:
        """Read once, if there are events to read and room for them; False: wait until either changes."""
        scheduler = self._scheduler
        room = self._budget - scheduler.held_bytes - self._uncommitted_bytes
        # half empty before it is filled again: a few large reads instead of many small ones
        if room * 2 < self._budget or scheduler.held_events * 2 > MAX_HELD_EVENTS:
            return False
        count = MAX_HELD_EVENTS - scheduler.held_events
        if not self._keys.is_grouped:
            return self.head < end and self._read_on(count, room)
        moved = False
        if self._rescanned or self._wants_events:
            moved = self._catch_up(count, min(room, READ_BYTES))
        if len(self.deferred) < MAX_DEFERRED and self.head < end:
            moved = self._read_on(count, min(room, READ_BYTES)) or moved
        return moved

    def _read_on(self, count: int, room: int) -> bool:
        events = self._reader.read(self.head, count, room)
        if not events:
            return False
        self.head = events[-1].position + 1
        known = [
            (key, event) for event in events if (key := self._keys.of(event.body)).id not in self.deferred
        ]
        self._put(known)
        return True

    def _catch_up(self, count: int, room: int) -> bool:
        if not self._rescanned:
            self._rescanned, self._wants_events = self._wants_events, set()
            self._rescan_at = min(self.deferred[key] for key in self._rescanned)
        events = self._reader.read(self._rescan_at, count, room)
        wanted = []
        for event in events:
            if event.position >= self.head:
                break
            key = self._keys.of(event.body)
            if key.id not in self._rescanned or event.position < self.deferred[key.id]:
                continue
            if event.position in self._uncommitted:
                continue
            wanted.append((key, event))
        self._put(wanted)
        self._rescan_at = events[-1].position + 1 if events else self.head
        if self._rescan_at >= self.head:
            for id in self._rescanned:
                del self.deferred[id]
            self._rescanned.clear()
        return True

    def _put(self, keyed: list[tuple[Key, Event]]) -> None:
        """Give events to their sessions; one without room is deferred, from its first event that is left.

        Those that are taken are held, so that the log's limits do not count them as dropped (G3).
        """
        held = {event.position for event in self._reader.hold([event for _, event in keyed])}
        left: list[int] = []
        full: set[str] = set()
        for key, event in keyed:
            if event.position not in held:
                continue
            if key.id in full or not self._has_room(key, event):
                if key.id not in full:
                    full.add(key.id)
                    self.deferred[key.id] = event.position
                    self._rescanned.discard(key.id)
                left.append(event.position)
                continue
            self._scheduler.put(key, event)
            if key.id in self._rescanned:
                self.deferred[key.id] = event.position + 1
        if left:
            self._reader.release(left)

    # --- room

    def _share(self) -> int:
        """Bytes that one session may hold: the more sessions, the less, so that the idle ones of a dead
        receiver leave room for the busy ones of a healthy one.

        All of them together are more than the half at which `step` stops reading. Were they less, the head
        would run to the end of the log past sessions that are merely full, and have to come back for them.
        """
        fair = self._budget * 3 // 4 // max(1, len(self._scheduler.sessions))
        return min(self._scheduler.outlet.session_bytes, max(fair, MIN_SHARE_BYTES))

    def _has_room(self, key: Key, event: Event) -> bool:
        session = self._scheduler.sessions.get(key.id)
        if session is None or not self._keys.is_grouped:
            return True  # with one session for all events `step` has limited the read
        return not session.is_failing and session.bytes + len(event.body) <= self._share()

    def _ask(self, session: Session) -> None:
        """Mark the session for a scan of the log if it is deferred and can take events."""
        key = session.key.id
        if key not in self.deferred or key in self._rescanned or session.is_failing:
            return
        if session.bytes * 2 <= self._share():
            # the scan under way serves it as well, unless it has passed the place already
            is_served = self._rescanned and self.deferred[key] >= self._rescan_at
            (self._rescanned if is_served else self._wants_events).add(key)

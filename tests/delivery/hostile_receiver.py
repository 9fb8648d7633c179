"""A receiver over HTTP that misbehaves by a plan, and records what it took and what it acknowledged."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import orjson

from headwater.testing import Answer, Request, ScriptedServer

JSON = {"content-type": "application/json"}
SUCCESS = {
    "/api/addEvents": b'{"status":"success","message":"","bytesCharged":0}',
    "/api/v1/lineage/batch": b'{"status":"success","failed_events":[]}',
}
REFUSALS = (400, 409, 413, 415, 422)


class Misdeed(msgspec.Struct, frozen=True):
    """What the receiver does with one request."""

    answer: Answer | None  # None: the regular answer
    takes: bool = True  # whether the events are taken before it
    reset_after: int | None = None  # bytes of the regular answer, after which the connection is reset


class Seen(NamedTuple):
    """One request that arrived whole."""

    ids: list[int]
    keys: list[Any]
    is_taken: bool
    is_acknowledged: bool  # by a whole regular answer


class HostileReceiver(ScriptedServer):
    """Follows the plan, a misdeed a request, and is well-behaved afterwards."""

    def __init__(self, plan: Sequence[Misdeed] = ()) -> None:
        super().__init__()
        self.plan = deque(plan)
        self.seen: list[Seen] = []

    async def handle(self, request: Request, answer: Answer | None) -> Answer:
        events = _events(request)
        misdeed = self.plan.popleft() if self.plan else Misdeed(None)
        regular = Answer(body=SUCCESS.get(request.path, b""), headers=JSON)
        if misdeed.reset_after is not None:
            regular.reset_after = misdeed.reset_after
        chosen = misdeed.answer or regular
        # A reset also drops bytes that have arrived, but that the client has not read yet.
        is_whole = chosen is regular and regular.reset_after is None
        ids = [event["i"] for event in events]
        keys = [event.get("k") for event in events]
        self.seen.append(Seen(ids, keys, misdeed.takes, is_whole))
        if chosen.delay_seconds:
            await asyncio.sleep(chosen.delay_seconds)
        return chosen

    # --- the oracle

    def check(
        self, sent: dict[int, Any], rejected: list[int], balance: dict[str, int], *, is_awaited: bool = True
    ) -> None:
        """Assert the promises: `sent` has the key of each event's number, in the order of the log.

        With a short timeout the client may have given up before an answer, which is then not awaited.
        """
        taken = [i for seen in self.seen if seen.is_taken for i in seen.ids]
        assert set(taken) | set(rejected) == set(sent), "an event was lost (G3)"
        assert len(rejected) == len(set(rejected))
        assert balance["delivered"] + balance["rejected"] == len(sent)
        assert balance["rejected"] == len(rejected)
        assert balance["dropped"] == balance["lag"] == 0
        acknowledged: set[int] = set()
        for seen in self.seen:
            assert not acknowledged & set(seen.ids), "an acknowledged event was sent again (G4)"
            if seen.is_acknowledged and is_awaited:
                acknowledged |= set(seen.ids)
        assert not acknowledged & set(rejected), "an event has two fates"
        for key in set(sent.values()):
            first = [i for i in dict.fromkeys(taken) if sent[i] == key]
            assert first == sorted(first), "events of a key changed their order (G2)"


def _events(request: Request) -> list[Any]:
    body = orjson.loads(request.body)
    if request.path == "/api/addEvents":
        return [event["attrs"] for event in body["events"]]
    return body if isinstance(body, list) else [body]

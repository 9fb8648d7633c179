"""The conformance suite of outlets: subclass it in your tests, implement `make`, run pytest.

    class TestMine(OutletConformance):
        def make(self, tmp_path):
            return MyReceiver(...)          # see `Subject`

Each test is a part of the contract in `headwater.delivery.outlets.base`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest

from headwater.delivery.batches import Buffer
from headwater.delivery.keys import Key, Keys
from headwater.delivery.outlets.base import Batch, Delivered, Outlet, Refused, Results, Retry
from headwater.errors import EventRefused, OutletUnavailable
from headwater.events import Event

__all__ = ["OutletConformance", "Subject", "batch_of"]


class Subject(ABC):
    """An outlet under test together with its receiver."""

    outlet: Outlet

    @abstractmethod
    def received(self) -> list[Any]:
        """The parsed events that the receiver has taken, in order."""

    def fail(self) -> None:
        """Make the receiver unavailable; needed unless `can_fail` is off."""
        raise NotImplementedError

    def heal(self) -> None:
        """Make it available again."""
        raise NotImplementedError

    def refuse(self, marker: str) -> None:
        """Let the receiver refuse events whose field `name` is the marker, unless `can_refuse` is off."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - a file needs nothing
        """Release all resources."""


def batch_of(outlet: Outlet, names: list[str], group_by: tuple[str, ...] = ()) -> Batch:
    """A batch of small events with these names, prepared as the engine does it."""
    bodies = [orjson.dumps({"name": name, "number": i}) for i, name in enumerate(names)]
    key: Key = Keys(group_by).of(bodies[0])
    buffer = Buffer(outlet, f"conformance-{key.id}", key)
    for i, body in enumerate(bodies):
        assert buffer.add(Event(i + 1, 0.0, body)), "the batch is larger than the outlet's limit"
    return buffer.batch


async def _send_all(outlet: Outlet, names: list[str]) -> list[Any]:
    """Send as the engine does: events that were not tried are sent next."""
    results: list[Any] = []
    while len(results) < len(names):
        rest = names[len(results) :][: outlet.max_events]
        part = list(await outlet.send(batch_of(outlet, rest)))
        assert part, "send returned no result at all"
        assert len(part) <= len(rest), "send returned more results than there were events"
        results += part
    return results


class OutletConformance(ABC):
    """The tests. Switch off those for what your receiver cannot do, and document it."""

    can_fail: ClassVar[bool] = True
    can_refuse: ClassVar[bool] = True

    @abstractmethod
    def make(self, tmp_path: Path) -> Subject:
        """A fresh outlet with a receiver of its own."""

    @pytest.fixture
    def subject(self, tmp_path: Path) -> Iterator[Subject]:
        subject = self.make(tmp_path)
        yield subject
        subject.close()

    def run(self, outlet: Outlet, work: Coroutine[Any, Any, Results]) -> Results:
        async def connected() -> Results:
            await outlet.connect()
            try:
                return await work
            finally:
                await outlet.close()

        return asyncio.run(connected())

    def test_events_arrive_in_order_when_sent_in_one_batch(self, subject: Subject) -> None:
        names = [f"event {i}" for i in range(20)]
        results = self.run(subject.outlet, _send_all(subject.outlet, names))
        assert all(isinstance(result, Delivered) for result in results)
        assert [event["name"] for event in subject.received()] == names

    def test_events_arrive_in_order_when_sent_in_several_batches(self, subject: Subject) -> None:
        async def several() -> Results:
            for i in range(5):
                await _send_all(subject.outlet, [f"event {i * 2}", f"event {i * 2 + 1}"])
            return []

        self.run(subject.outlet, several())
        assert [event["name"] for event in subject.received()] == [f"event {i}" for i in range(10)]

    def test_text_arrives_unharmed_when_it_is_not_ascii(self, subject: Subject) -> None:
        names = ["Grüße", "日本語", 'quote " backslash \\', "line\nbreak", "\U0001f600"]
        self.run(subject.outlet, _send_all(subject.outlet, names))
        assert [event["name"] for event in subject.received()] == names

    def test_send_advises_a_retry_when_the_receiver_is_unreachable(self, subject: Subject) -> None:
        if not self.can_fail:
            pytest.skip("not applicable: this receiver cannot be made to fail")

        async def fail_and_heal() -> Results:
            subject.fail()
            try:
                results = await subject.outlet.send(batch_of(subject.outlet, ["one"]))
                assert results
                assert all(isinstance(result, Retry) for result in results)
            except OutletUnavailable:
                pass
            assert subject.received() == []
            subject.heal()
            await subject.outlet.connect()
            return await _send_all(subject.outlet, ["one", "two"])

        results = self.run(subject.outlet, fail_and_heal())
        assert all(isinstance(result, Delivered) for result in results)
        assert [event["name"] for event in subject.received()] == ["one", "two"]

    def test_only_the_bad_event_is_refused_when_a_batch_holds_one(self, subject: Subject) -> None:
        if not self.can_refuse:
            pytest.skip("not applicable: this receiver refuses nothing")

        async def with_bad() -> Results:
            subject.refuse("bad")
            results: list[Any] = []
            for name in ("good", "bad", "fine"):
                try:
                    results += await subject.outlet.send(batch_of(subject.outlet, [name]))
                except EventRefused as error:
                    results.append(Refused(error.text))
            return results

        results = self.run(subject.outlet, with_bad())
        assert [type(result).__name__ for result in results] == ["Delivered", "Refused", "Delivered"]
        assert isinstance(results[1], Refused)
        assert results[1].reason
        assert [event["name"] for event in subject.received()] == ["good", "fine"]

    def test_connect_and_close_may_be_repeated_when_already_done(self, subject: Subject) -> None:
        async def again() -> list[Any]:
            await subject.outlet.close()  # before the first connect
            await subject.outlet.connect()
            await subject.outlet.connect()
            results = await _send_all(subject.outlet, ["one"])
            await subject.outlet.close()
            await subject.outlet.close()
            await subject.outlet.connect()
            results += await _send_all(subject.outlet, ["two"])
            await subject.outlet.close()
            return results

        assert all(isinstance(result, Delivered) for result in asyncio.run(again()))
        assert [event["name"] for event in subject.received()] == ["one", "two"]

    def test_sessions_do_not_disturb_each_other_when_sent_at_once(self, subject: Subject) -> None:
        async def at_once() -> Results:
            outlet = subject.outlet
            batches = [batch_of(outlet, [f"session {i}"], ("/name",)) for i in range(8)]
            results = await asyncio.gather(*(outlet.send(batch) for batch in batches))
            return [result for part in results for result in part]

        results = self.run(subject.outlet, at_once())
        assert len(results) == 8
        assert all(isinstance(result, Delivered) for result in results)
        assert sorted(event["name"] for event in subject.received()) == [f"session {i}" for i in range(8)]

    def test_own_settings_are_described_when_there_are_any(self, subject: Subject) -> None:
        import msgspec

        schema = msgspec.json.schema(type(subject.outlet).Settings)
        fields = next(iter(schema["$defs"].values())).get("properties", {})
        missing = [name for name, field in fields.items() if not field.get("description")]
        assert not missing, f"no description for {missing}"

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from headwater.delivery.batches import Buffer
from headwater.delivery.keys import Keys
from headwater.delivery.outlets.base import DELIVERED, Batch
from headwater.delivery.outlets.http import HttpOutlet
from headwater.errors import EventRefused, OutletUnavailable, SettingsError
from headwater.events import Event
from headwater.settings import OutletSettings, convert
from headwater.testing import Answer, Request, ScriptedServer


def outlet_of(group_by: tuple[str, ...] = (), **options: Any) -> HttpOutlet:
    settings = OutletSettings(name="receiver", type="http", group_by=group_by)
    return HttpOutlet(
        convert({"url": "http://unused"} | options, HttpOutlet.Settings, source="test"), settings
    )


def batch_of(outlet: HttpOutlet, *events: Any) -> Batch:
    bodies = [orjson.dumps(event) for event in events]
    key = Keys(outlet.settings.group_by).of(bodies[0])
    buffer = Buffer(outlet, f"client-{key.id}", key)
    for i, body in enumerate(bodies):
        assert buffer.add(Event(i + 1, 1_700_000_000.5, body))
    assert len(outlet.payload(buffer.batch)) <= buffer.bytes
    return buffer.batch


def test_the_body_is_an_array_when_nothing_else_is_said() -> None:
    outlet = outlet_of()
    assert outlet.payload(batch_of(outlet, {"a": 1}, {"a": 2})) == b'[{"a":1},{"a":2}]'


def test_the_body_is_as_the_templates_say_when_they_are_set() -> None:
    outlet = outlet_of(
        group_by=("/k",),
        event='{"n": $position, "at": $received_at, "time": "$time", "data": $event}',
        separator=",\n",
        body='{"cost": "$$5", "session": "$session", "info": $info, "count": $count, "items": [$events]}',
    )
    batch = batch_of(outlet, {"k": "x", "a": 1}, {"k": "x", "a": 2})
    assert orjson.loads(outlet.payload(batch)) == {
        "cost": "$5",
        "session": batch.session,
        "info": {"k": "x"},
        "count": 2,
        "items": [
            {
                "n": n,
                "at": 1_700_000_000.5,
                "time": "2023-11-14T22:13:20.500000+00:00",
                "data": {"k": "x", "a": n},
            }
            for n in (1, 2)
        ],
    }


def test_lines_are_sent_when_the_template_is_ndjson() -> None:
    outlet = outlet_of(body="$events\n", separator="\n", content_type="application/x-ndjson")
    assert outlet.payload(batch_of(outlet, {"a": 1}, {"a": 2})) == b'{"a":1}\n{"a":2}\n'


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"body": "[]"}, r"`body` lacks `\$events`"),
        ({"event": "{}"}, r"`event` lacks `\$event`"),
        ({"body": "$events $who"}, r"unknown placeholder `\$who`; known are \$count, \$events"),
        ({"url": "nowhere"}, "url"),
        ({"method": "GET"}, "method"),
    ],
)
def test_settings_are_refused_when_they_cannot_be_meant(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        outlet_of(**options)


def test_requests_look_as_configured_when_sent() -> None:
    seen: list[Request] = []

    def watch(request: Request) -> Answer | None:
        seen.append(request)
        answers = {1: None, 2: Answer(status=409), 3: Answer(status=422), 4: Answer(status=400)}
        return answers[request.number]

    with ScriptedServer() as server:
        server.answer_always(watch)
        outlet = outlet_of(
            url=f"{server.url}/in?source=test",
            method="PUT",
            content_type="text/plain",
            api_key="k3y",
            headers={"X-Team": "data"},
            compression="gzip",
            retry_statuses=[409],
        )

        async def work() -> None:
            await outlet.connect()
            assert await outlet.send(batch_of(outlet, {"a": 1}, {"a": 2})) == [DELIVERED, DELIVERED]
            with pytest.raises(OutletUnavailable, match="answered 409"):
                await outlet.send(batch_of(outlet, {"a": 1}))
            with pytest.raises(EventRefused, match="answered 422"):
                await outlet.send(batch_of(outlet, {"a": 1}))
            with pytest.raises(EventRefused, match="answered 400"):
                await outlet.send(batch_of(outlet, {"a": 1}))
            await outlet.close()

        asyncio.run(work())
    request = seen[0]
    assert (request.method, request.path) == ("PUT", "/in?source=test")
    assert request.headers["content-type"] == "text/plain"
    assert request.headers["authorization"] == "Bearer k3y"
    assert request.headers["x-team"] == "data"
    assert request.body == b'[{"a":1},{"a":2}]'


def test_an_event_is_trimmed_when_the_receiver_has_a_limit() -> None:
    assert outlet_of().max_request_bytes is None
    outlet = outlet_of(max_request_bytes=300, body='{"items": [$events], "count": $count}', separator=" ,  ")
    batch = batch_of(outlet, {"a": "x" * 1000})
    assert len(outlet.payload(batch)) <= 300

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headwater.clock import ManualClock
from headwater.delivery.outlets.base import DELIVERED, Refused, Results, Retry
from headwater.delivery.outlets.openlineage import BATCH_PAUSE_SECONDS, OpenLineageOutlet
from headwater.errors import EventRefused, OutletUnavailable, SettingsError
from headwater.settings import OutletSettings, convert
from headwater.testing import Answer, OpenLineageServer, Request
from headwater.testing.outlets import batch_of


def outlet_of(clock: ManualClock | None = None, **options: Any) -> OpenLineageOutlet:
    settings = OutletSettings(name="backend", type="openlineage")
    return OpenLineageOutlet(
        convert(options, OpenLineageOutlet.Settings, source="test"), settings, clock=clock
    )


def send(outlet: OpenLineageOutlet, *batches: list[str]) -> list[Results]:
    async def work() -> list[Results]:
        await outlet.connect()
        try:
            return [await outlet.send(batch_of(outlet, batch)) for batch in batches]
        finally:
            await outlet.close()

    return asyncio.run(work())


def remember(requests: list[Request]) -> Callable[[Request], None]:
    def watch(request: Request) -> None:
        requests.append(request)

    return watch


def test_one_event_goes_to_the_single_endpoint_when_batches_are_possible(backend: OpenLineageServer) -> None:
    assert send(outlet_of(url=backend.url), ["one"]) == [[DELIVERED]]
    assert (backend.singles, backend.batches) == (1, 0)


def test_the_batch_endpoint_is_asked_again_when_some_time_has_passed(backend: OpenLineageServer) -> None:
    clock = ManualClock()
    backend.has_batch = False
    outlet = outlet_of(clock, url=backend.url)

    async def work() -> None:
        await outlet.connect()
        assert outlet.max_events is None
        assert await outlet.send(batch_of(outlet, ["one", "two"])) == [DELIVERED]
        assert outlet.max_events == 1
        await outlet.send(batch_of(outlet, ["two"]))
        assert (backend.requests, backend.singles) == (3, 2)
        backend.has_batch = True
        clock.advance(BATCH_PAUSE_SECONDS)
        assert outlet.max_events is None
        assert len(await outlet.send(batch_of(outlet, ["three", "four"]))) == 2
        assert backend.batches == 1
        await outlet.close()

    asyncio.run(work())


@pytest.mark.parametrize("status", [404, 405, 501])
def test_single_requests_are_made_when_the_backend_knows_no_batches(
    backend: OpenLineageServer, status: int
) -> None:
    backend.answer_next(Answer(status=status))
    assert send(outlet_of(url=backend.url), ["one", "two"]) == [[DELIVERED]]
    assert backend.singles == 1


def test_a_missing_batch_endpoint_is_waited_for_when_batch_is_always(
    backend: OpenLineageServer,
) -> None:
    backend.has_batch = False
    outlet = outlet_of(url=backend.url, batch="always")
    with pytest.raises(OutletUnavailable, match=r"answered 404.*Set `url` of outlet backend to"):
        send(outlet, ["one"])


@pytest.mark.parametrize(
    "answer",
    [
        Answer(status=204),
        Answer(status=200),
        Answer(body=b'{"status": "success"}'),
        Answer(body=b'{"status": "success", "summary": {"received": 2}, "failed_events": []}'),
    ],
)
def test_a_batch_is_delivered_when_the_answer_is_one_of_the_good_ones(
    backend: OpenLineageServer, answer: Answer
) -> None:
    backend.answer_next(answer)
    assert send(outlet_of(url=backend.url), ["one", "two"]) == [[DELIVERED, DELIVERED]]


def test_each_event_has_its_own_result_when_a_batch_succeeds_in_part(backend: OpenLineageServer) -> None:
    backend.answer_next(
        Answer(
            body=b'{"status":"partial_success","failed_events":['
            b'{"index":1,"reason":"no job","retriable":false},{"index":2,"reason":"busy","retriable":true},'
            b'{"index":3}]}'
        )
    )
    (results,) = send(outlet_of(url=backend.url), ["a", "b", "c", "d"])
    where = f"{backend.url}/api/v1/lineage/batch"
    assert results == [
        DELIVERED,
        Refused(f"{where}: no job"),
        Retry(f"{where}: busy"),
        Refused(f"{where}: no reason given"),
    ]


def test_a_batch_is_refused_as_a_whole_when_the_backend_says_only_400(backend: OpenLineageServer) -> None:
    backend.answer_next(Answer(status=400, body=b"something in there"))
    with pytest.raises(EventRefused, match=r"answered 400: something in there"):
        send(outlet_of(url=backend.url), ["one", "two"])


def test_key_and_headers_are_sent_when_they_are_set(backend: OpenLineageServer) -> None:
    seen: list[Request] = []
    backend.answer_always(remember(seen))
    outlet = outlet_of(
        url=backend.url + "/", endpoint="/custom/path/", api_key="s3cret", headers={"X-Team": "data"}
    )
    with pytest.raises(OutletUnavailable):
        send(outlet, ["one"])
    (request,) = seen
    assert request.path == "/custom/path"
    assert request.headers["authorization"] == "Bearer s3cret"
    assert request.headers["x-team"] == "data"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"].startswith("headwater/")


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_bodies_are_compressed_when_compression_is_set(backend: OpenLineageServer, compression: str) -> None:
    seen: list[Request] = []
    backend.answer_always(remember(seen))
    names = ["x" * 100_000, "y"]
    send(outlet_of(url=backend.url, compression=compression), names, ["z"])
    assert [event["name"] for event in backend.events()] == [*names, "z"]
    assert {request.headers["content-encoding"] for request in seen} == {compression}
    assert int(seen[0].headers["content-length"]) < 10_000


def test_no_secret_is_shown_when_a_request_fails() -> None:
    outlet = outlet_of(url="http://someone:s3cret@127.0.0.1:9", api_key="t0ken")
    with pytest.raises(OutletUnavailable) as failure:
        send(outlet, ["one"])
    assert "s3cret" not in str(failure.value)
    assert "t0ken" not in str(failure.value)
    assert "http://127.0.0.1:9/api/v1/lineage" in str(failure.value)


def test_a_redirect_is_not_followed_when_the_backend_sends_one(backend: OpenLineageServer) -> None:
    backend.answer_next(Answer(status=302, headers={"location": "http://elsewhere/"}))
    with pytest.raises(
        OutletUnavailable, match=r"302 and points to http://elsewhere/.*Set `url` of outlet backend"
    ):
        send(outlet_of(url=backend.url), ["one"])
    assert backend.requests == 1


@pytest.mark.parametrize("url", ["", "marquez:5000", "ftp://host", "http://"])
def test_settings_are_refused_when_the_url_is_none(url: str) -> None:
    with pytest.raises(SettingsError, match="url"):
        outlet_of(url=url)


def test_settings_are_refused_when_a_certificate_cannot_be_read() -> None:
    with pytest.raises(SettingsError, match="tls"):
        outlet_of(url="https://host", tls={"ca": "/nowhere/ca.pem"})
    with pytest.raises(SettingsError, match="tls"):
        outlet_of(url="https://host", tls={"certificate": "/nowhere/me.pem"})


def test_certificates_are_not_checked_when_verify_is_off() -> None:
    outlet = outlet_of(url="https://127.0.0.1:9", tls={"verify": False})
    with pytest.raises(OutletUnavailable):
        send(outlet, ["one"])

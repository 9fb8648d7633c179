"""Events reach the transport in order; a transport that hangs or fails delays no job."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.serde import Serde
from openlineage.client.transport import Transport

from headwater.lineage.sending.sender import EventSender, as_run_event, json_transport
from headwater.lineage.sending.transports import client
from headwater.lineage.settings import LineageSettings, read
from headwater.testing import OpenLineageServer
from headwater.testing.lineage import CollectingTransport
from tests.lineage.made import event, schema_facet


class Hanging(Transport):
    """Takes an event and never comes back, until the test is over."""

    kind = "hanging"

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.never = threading.Event()

    def emit(self, event: Any) -> None:
        self.begun.set()
        self.never.wait()


class Failing(Transport):
    """Takes nothing."""

    kind = "failing"

    def emit(self, event: Any) -> None:
        raise ConnectionError("refused")


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.never.set()


def sender(transport: Transport, **settings: Any) -> EventSender:
    return EventSender(lambda: OpenLineageClient(transport=transport), LineageSettings(**settings))


def test_events_arrive_whole_and_in_order_when_the_transport_takes_them() -> None:
    transport = CollectingTransport()
    made = sender(transport)
    sent = [event(name=f"job {number}", inputs=["a"], outputs=["b"]) for number in range(100)]
    sent[0]["outputs"][0]["facets"] = {"schema": schema_facet(3)}
    for each in sent:
        made.put(each)
    assert made.close(30)
    assert [each["job"]["name"] for each in transport.events] == [each["job"]["name"] for each in sent]
    assert transport.events[0]["outputs"][0]["facets"]["schema"] == schema_facet(3)
    assert made.sent == 100


def test_the_typed_event_says_the_same_when_it_is_written() -> None:
    made = event(inputs=["a"], outputs=["b"])
    made["inputs"][0] |= {"facets": {}, "inputFacets": {}}
    made["outputs"][0] |= {"facets": {}, "outputFacets": {}}
    assert Serde.to_dict(as_run_event(made)) == made


def test_the_event_is_the_same_when_the_transport_takes_dicts(tmp_path: Path) -> None:
    def written(name: str, **more: Any) -> dict[str, Any]:
        transport = {"type": "file", "log_file_path": str(tmp_path / name), "append": True}
        found = OpenLineageClient(config={"transport": transport, **more})
        assert (json_transport(found) is None) is bool(more)
        made = EventSender(lambda: found, LineageSettings())
        made.put(sent)
        assert made.close(60)
        line: dict[str, Any] = json.loads((tmp_path / name).read_text())
        return line

    sent = event(inputs=["a"], outputs=["b"])
    sent["inputs"][0] |= {"facets": {"schema": schema_facet(3)}, "inputFacets": {}}
    sent["outputs"][0] |= {"facets": {}, "outputFacets": {}}
    matches_no_job = {"filters": [{"type": "exact", "match": "no user's job"}]}
    assert written("as-it-is") == written("as_run_event", **matches_no_job)


def test_the_oldest_go_when_the_transport_hangs_and_the_queue_is_full(hanging: Hanging) -> None:
    made = sender(hanging, queue_events=10)
    made.put(event())
    assert hanging.begun.wait(30)
    for _ in range(25):
        made.put(event())
    assert made.dropped == 15


def test_bytes_are_bounded_too_when_events_are_large(hanging: Hanging) -> None:
    made = sender(hanging, queue_bytes=50_000)
    for number in range(30):
        large = event(name=f"job {number}", outputs=["b"])
        large["outputs"][0]["facets"] = {"schema": schema_facet(100)}
        made.put(large)
    assert made.dropped > 10


def test_closing_takes_no_longer_than_allowed_when_the_transport_hangs(hanging: Hanging) -> None:
    made = sender(hanging)
    made.put(event())
    assert hanging.begun.wait(30)
    before = time.monotonic()
    made.put(event())
    assert made.close(0.2) is False
    assert time.monotonic() - before < 20, "it would never return"
    assert made.dropped == 1, "the event that still waited"
    made.put(event())
    assert made.dropped == 2


def test_failures_are_counted_and_the_next_event_is_tried_when_the_transport_fails() -> None:
    made = sender(Failing())
    for _ in range(5):
        made.put(event())
    assert made.close(30)
    assert (made.failed, made.sent) == (5, 0)


def test_a_transport_that_cannot_be_made_is_tried_later_when_there_are_more_events() -> None:
    asked = []

    def make() -> OpenLineageClient:
        asked.append(1)
        raise ValueError("no url")

    made = EventSender(make, LineageSettings())
    for _ in range(5):
        made.put(event())
    assert made.flush(30)
    assert made.failed == 5
    assert len(asked) == 1


def test_events_go_to_the_backend_when_sparks_settings_name_it() -> None:
    with OpenLineageServer() as server:
        settings = read(
            {
                "spark.openlineage.transport.type": "http",
                "spark.openlineage.transport.url": server.url,
                "spark.openlineage.transport.timeoutInMillis": "5000",
                "spark.openlineage.transport.headers.x-tenant": "shop",
            },
            environ={},
        )
        made = EventSender(lambda: client(settings), settings)
        made.put(event(name="over http"))
        assert made.close(30)
        assert [json.loads(each)["job"]["name"] for each in server.received] == ["over http"]


@pytest.mark.parametrize("spool", [False, True], ids=["at-once", "through-the-spool"])
def test_parameters_of_the_url_are_sent_when_sparks_settings_have_them(spool: bool, tmp_path: Path) -> None:
    with OpenLineageServer(endpoint="/api/v1/lineage?tenant=a+b") as server:
        settings = read(
            {
                "spark.openlineage.transport.type": "http",
                "spark.openlineage.transport.url": server.url,
                "spark.openlineage.transport.urlParams.tenant": "a b",
            }
            | ({"spark.openlineage.headwater.spool": str(tmp_path / "spool")} if spool else {}),
            environ={},
        )
        made = EventSender(lambda: client(settings), settings)
        made.put(event(name="over http"))
        assert made.flush(60)
        assert server.wait_for(1, 60)
        assert made.close(60)


def test_a_warning_is_logged_when_a_key_of_the_transport_is_not_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {"type": "http", "url": "http://127.0.0.1:9", "colour": "blue", "sslContext": {"caCertPath": "x"}}
    client(LineageSettings(transport=given)).close(0)
    assert [record.getMessage() for record in caplog.records] == [
        "Lineage setting transport.colour is not used."
    ]


def test_events_go_to_a_file_when_sparks_settings_name_it(tmp_path: Path) -> None:
    settings = read(
        {
            "spark.openlineage.transport.type": "file",
            "spark.openlineage.transport.location": str(tmp_path / "events.jsonl"),
        },
        environ={},
    )
    made = EventSender(lambda: client(settings), settings)
    made.put(event(name="one"))
    made.put(event(name="two"))
    assert made.close(30)
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["job"]["name"] for line in lines] == ["one", "two"]


def test_events_outlive_a_backend_that_is_unreachable_when_there_is_a_spool(tmp_path: Path) -> None:
    settings = read(
        {
            "spark.openlineage.transport.type": "http",
            "spark.openlineage.transport.url": "http://127.0.0.1:9",
            "spark.openlineage.headwater.spool": str(tmp_path / "spool"),
            "spark.openlineage.headwater.exitMillis": "500",
        },
        environ={},
    )
    made = EventSender(lambda: client(settings), settings)
    made.put(event(name="kept"))
    assert made.flush(30)
    assert made.sent == 1, "it is on disk"
    made.close(5)
    with OpenLineageServer() as server:
        again = read(
            {
                "spark.openlineage.transport.type": "http",
                "spark.openlineage.transport.url": server.url,
                "spark.openlineage.headwater.spool": str(tmp_path / "spool"),
            },
            environ={},
        )
        found = client(again)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not server.received:
            time.sleep(0.1)
        found.close(5)
        assert [json.loads(each)["job"]["name"] for each in server.received] == ["kept"]

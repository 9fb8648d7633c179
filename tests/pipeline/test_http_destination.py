"""Rows become requests: at least once, each with an id that stays the same."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.destinations.base import Destination, load_destination
from headwater.destinations.column_types import Kind
from headwater.destinations.http import HttpDestination
from headwater.destinations.table import UNMAPPED, Column, Table, table_of
from headwater.errors import DestinationUnavailable, LoadRefused, SettingsError
from headwater.settings import DestinationSettings
from headwater.testing.destinations import staged_load
from headwater.testing.http_server import Answer, Request, ScriptedServer
from tests.pipeline.rig import Rig

TABLE = table_of(
    "pages",
    [
        Column("eventn_ctx_event_id", Kind.STRING),
        Column("n", Kind.INT64),
        Column("at", Kind.TIMESTAMP),
        Column(UNMAPPED, Kind.JSON),
    ],
)


class Receiver:
    """Remembers the rows of requests that it took."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server, self.requests = server, list[list[dict[str, Any]]]()
        self.refuses: set[int] = set()
        server.answer_always(self.answer)

    def answer(self, request: Request) -> Answer:
        rows = json.loads(request.body)
        rows = rows if isinstance(rows, list) else [rows]
        if self.refuses & {row["n"] for row in rows}:
            return Answer(status=422, body=b"not that number")
        self.requests.append(rows)
        return Answer()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for request in self.requests for row in request]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with ScriptedServer() as server:
        yield Receiver(server)


def destination_of(url: str, **options: Any) -> Destination:
    destination = load_destination(DestinationSettings(id="ga", type="http", options={"url": url, **options}))
    destination.connect()
    return destination


def patched(destination: Destination) -> Table:
    assert destination.table("pages") is None
    return destination.patch(TABLE)


def test_rows_are_requests_with_ids_when_they_are_loaded(receiver: Receiver, tmp_path: Path) -> None:
    destination = destination_of(f"{receiver.server.url}/collect", max_rows=2)
    moment = dt.datetime(2026, 11, 16, 10, tzinfo=dt.UTC)
    rows: list[dict[str, Any]] = [
        {"eventn_ctx_event_id": "e1", "n": 1, "at": moment},
        {"n": 2, UNMAPPED: '{"x":[1]}'},
        {"n": 3},
    ]
    load = staged_load(tmp_path, patched(destination), rows, id="load")
    assert destination.load(load).rows == 3
    assert [len(request) for request in receiver.requests] == [2, 1]
    assert receiver.rows == [
        {
            "eventn_ctx_event_id": "e1",
            "n": 1,
            "at": "2026-11-16T10:00:00+00:00",
            "_table": "pages",
            "_id": "e1",
        },
        {"n": 2, UNMAPPED: {"x": [1]}, "_table": "pages", "_id": "load-1"},
        {"n": 3, "_table": "pages", "_id": "load-2"},
    ]
    assert destination.loaded(["load", "other"]) == {"load"}
    assert destination.load(load).already
    assert len(receiver.rows) == 3


def test_each_row_is_one_request_when_the_receiver_takes_no_lists(receiver: Receiver, tmp_path: Path) -> None:
    destination = destination_of(receiver.server.url, max_rows=1, body="$events")
    load = staged_load(tmp_path, patched(destination), [{"n": i} for i in range(5)])
    assert destination.load(load).rows == 5
    assert [[row["n"] for row in request] for request in receiver.requests] == [[i] for i in range(5)]


def test_a_refused_row_is_returned_when_the_others_are_taken(receiver: Receiver, tmp_path: Path) -> None:
    receiver.refuses = {3, 7}
    destination = destination_of(receiver.server.url)
    load = staged_load(tmp_path, patched(destination), [{"n": i} for i in range(10)], first_row=100)
    result = destination.load(load)
    assert (result.rows, [row.row for row in result.refused]) == (8, [103, 107])
    assert "not that number" in result.refused[0].reason
    assert sorted(row["n"] for row in receiver.rows) == [0, 1, 2, 4, 5, 6, 8, 9]


def test_the_load_is_refused_when_too_many_rows_are(receiver: Receiver, tmp_path: Path) -> None:
    receiver.refuses = set(range(5))
    destination = destination_of(receiver.server.url)
    destination.max_refused = 3
    with pytest.raises(LoadRefused, match="not that number"):
        destination.load(staged_load(tmp_path, patched(destination), [{"n": i} for i in range(6)]))


def test_only_the_rest_is_sent_again_when_the_receiver_was_unreachable(
    receiver: Receiver, tmp_path: Path
) -> None:
    destination = destination_of(receiver.server.url, max_rows=1, body="$events", give_up_seconds=1)
    load = staged_load(tmp_path, patched(destination), [{"n": i} for i in range(4)], id="again")
    receiver.server.answer_always(
        lambda request: receiver.answer(request) if len(receiver.requests) < 2 else Answer(status=503)
    )
    with pytest.raises(DestinationUnavailable, match=r"2 of 4 rows.*503") as caught:
        destination.load(load)
    assert caught.value.retryable
    assert destination.loaded(["again"]) == set()
    receiver.server.answer_always(receiver.answer)
    assert destination.load(load).rows == 4
    assert [(row["n"], row["_id"]) for row in receiver.rows] == [(i, f"again-{i}") for i in range(4)]


def test_a_row_has_the_same_id_when_another_process_sends_it_again(
    receiver: Receiver, tmp_path: Path
) -> None:
    for _ in range(2):  # a second one remembers nothing of the first
        destination = destination_of(receiver.server.url)
        destination.load(staged_load(tmp_path, patched(destination), [{"n": 1}], id="file 1"))
    assert [row["_id"] for row in receiver.rows] == ["file 1-0"] * 2


def test_events_are_requests_and_refused_ones_rejects_when_a_file_is_loaded(
    rig: Rig, receiver: Receiver
) -> None:
    receiver.refuses = {2}
    events = [{"n": i, "page": {"url": f"/{i}"}, "eventn_ctx": {"event_id": f"e{i}"}} for i in range(4)]
    options = {"url": receiver.server.url}
    rig.file(events)
    report = rig.cycle(rig.settings({"type": "http", "options": options, "table_name_template": "views"}))
    assert report.is_complete, report.errors
    sent = [(row["_id"], row["_table"], row["n"], row["page_url"]) for row in receiver.rows]
    assert sorted(sent) == [(f"e{i}", "views", i, f"/{i}") for i in (0, 1, 3)]
    assert ["not that number" in each.error for each in rig.rejects()] == [True]


def test_settings_are_refused_when_the_template_is_wrong() -> None:
    with pytest.raises(SettingsError, match="lacks"):
        destination_of("http://127.0.0.1:1", body="nothing")


def test_it_is_unavailable_when_it_is_not_connected() -> None:
    settings = DestinationSettings(id="ga", type="http", options={"url": "http://127.0.0.1:1"})
    destination = load_destination(settings)
    assert isinstance(destination, HttpDestination)
    with pytest.raises(DestinationUnavailable):
        destination.loaded(["x"])

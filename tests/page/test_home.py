"""The first view, the catalogue, and rejects by reason."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from headwater.graph.query import details
from headwater.graph.query.query import ClientGone, GraphQuery
from headwater.http.request import Request
from headwater.log.files.file_status import PipelineNow
from headwater.log.files.layout import EventFolder, unprocessed
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from headwater.log.rejects.groups import MAX_GROUPS, OTHER, Grouping, reason_pattern
from headwater.log.rejects.store import NewReject
from headwater.page.app import VIEWS
from headwater.page.views import dataset
from headwater.page.views import rejects as rejects_module
from headwater.page.views.system import EVENTS_SECONDS
from headwater.page.views.view import Parameters
from tests.graph.events import column_lineage, facet, flow, schema, source
from tests.graph.events import dataset as table
from tests.page.client import HOST, ORIGIN, page_client
from tests.page.shop import BOARD, ORDERS, story


def test_three_ways_to_begin_are_shown_when_nothing_has_arrived(tmp_path: Path) -> None:
    with page_client(tmp_path) as client:
        text = client.get("/").text
        assert text.count('id="step-') == 3
        assert f"http://{HOST}/api/v1/lineage" in text
        assert f"OPENLINEAGE_URL=http://{HOST}" in text
        assert "AIRFLOW__OPENLINEAGE__TRANSPORT" in text
        assert "waiting for the first event" in text


def test_what_failed_changed_and_was_rejected_is_shown_when_there_is_some(tmp_path: Path) -> None:
    with page_client(tmp_path, story(days=2)) as client:
        client.reject_lineage(b"{}", "`eventTime` is missing.")
        client.reject_lineage(b"[]", "`run` is missing.")
        text = client.get("/").text
        assert '<details id="more-sources">' in text
        failed, recent, reasons = (
            text.partition(f'<section id="{part}">')[2].partition("</section>")[0]
            for part in ("failed", "recent", "reasons")
        )
        assert "marketing.board" in failed
        assert "daily_revenue" not in failed
        assert BOARD[1] in recent
        assert "2×" in reasons
        assert "… is missing." in reasons


@pytest.mark.parametrize(("address", "shown", "hidden"), [
    ("/catalogue", ORDERS[1], "marketing.letters"),
    ("/catalogue?kind=job", "marketing.board", ORDERS[1]),
    ("/catalogue?kind=job&state=failed", "marketing.board", "headwater.load_orders"),
    ("/catalogue?q=orders", ORDERS[1], "exchange_rates"),
    ("/catalogue?namespace=bigquery&sort=updated", BOARD[1].rpartition("/")[2], ORDERS[1]),
])  # fmt: skip
def test_names_are_listed_when_they_match(tmp_path: Path, address: str, shown: str, hidden: str) -> None:
    with page_client(tmp_path, story(days=2)) as client:
        table = client.get(address).text.partition("<table")[2].partition("</table>")[0]
        assert shown in table
        assert hidden not in table


def test_the_catalogue_is_shown_when_lineage_has_no_centre(tmp_path: Path) -> None:
    with page_client(tmp_path) as client:
        answer = client.get("/lineage")
        assert answer.status_code == 303
        assert answer.headers["location"] == "/catalogue"


def test_a_group_is_dropped_and_replayed_when_its_buttons_are_pressed(tmp_path: Path) -> None:
    with page_client(tmp_path) as client:
        for number in range(3):
            client.reject_lineage(b"{}", f"Line {number} of 'x{number}' is wrong.")
        client.reject_lineage(b"[]", "It is too large.")
        client.reject_order("It does not fit.")
        text = client.get("/rejects").text
        assert "<b>3×</b> Line … of … is wrong." in text
        shown = client.get("/rejects?stage=gateway&reason=It+is+too+large.").text
        assert shown.count('id="reject-') == 1
        group = {"stage": "gateway", "reason": "Line … of … is wrong."}
        answer = client.post("/rejects/replay", group, origin=ORIGIN)
        assert "count=3" in answer.headers["location"]
        assert len(client.store.requested("gateway")) == 3
        answer = client.post("/rejects/drop", group, origin=ORIGIN)
        assert "count=3" in answer.headers["location"]
        assert client.store.counts() == {"gateway": 1}
        client.post("/rejects/drop", {"stage": "gateway", "reason": "no such reason"}, origin=ORIGIN)
        assert client.store.counts() == {"gateway": 1}
        assert (
            client.get("/rejects?stage=destination:warehouse&reason=It+does+not+fit.").text.count(
                'id="reject-'
            )
            == 1
        )


def test_the_page_says_what_it_left_out_when_rejects_are_too_many_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejects_module, "MAX_READ", 30)
    with page_client(tmp_path) as client:
        client.store.add("gateway", [NewReject("It is too large.", b"{}")] * 40)
        client.store.add("gateway", [NewReject("It is deep.", b"{}")])
        client.reject_order("It does not fit.")
        text = client.get("/rejects").text
        assert "<b>30×</b> It is too large." in text
        assert "Reasons of the first 30 rejects" in text
        assert text.count('id="reject-') == 42  # a page reads no more than it shows
        deep = client.get("/rejects?stage=gateway&reason=It+is+deep.").text
        assert "None of the 30 rejects that were searched in time" in deep
        later = client.get("/rejects?stage=gateway&reason=It+is+deep.&after=40").text
        assert later.count('id="reject-') == 1
        assert "searched" not in later


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("rejects", ""),
        ("rejects", "stage=destination:warehouse&reason=no+such"),
        ("rejects", "stage=gateway&reason=no+such"),
        ("rejects", "stage=destination:warehouse&after=warehouse:2999"),
        ("reject", "id=warehouse:2999"),
        ("home", ""),
    ],
)
def test_rejects_are_not_read_to_the_end_when_the_client_has_left(
    tmp_path: Path, name: str, address: str
) -> None:
    with page_client(tmp_path) as client, GraphQuery(client.settings.graph_dir) as query:
        client.store.add("gateway", [NewReject("It is too large.", b"{}")] * 3_000)
        errors = [
            EventError.of(b"{}", "No.", destination_id="warehouse", source=f"f:{number}", at=time.time())
            for number in range(3_000)
        ]
        DestinationRejects(client.events_dir).append("warehouse", errors)
        asked = 0

        def has_left() -> bool:
            nonlocal asked
            asked += 1
            return asked > 5

        parameters = Parameters(cast(Request, SimpleNamespace(headers={}, query=address)))
        with pytest.raises(ClientGone), query.bounded(has_left):
            VIEWS[name](client.page._sources, query, parameters)
        assert asked < 10


def test_reasons_are_one_when_only_quoted_text_and_numbers_differ() -> None:
    assert reason_pattern("Column `a` has 'x' in line 12.") == reason_pattern("Column `b` has 'y' in line 7.")
    assert reason_pattern("Column `a` is new.") != reason_pattern("Column `a` is old.")


def test_the_rest_is_counted_together_when_reasons_are_too_many() -> None:
    found = Grouping()
    for number in range(MAX_GROUPS + 50):
        word = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        found.add("gateway", float(number), str(number), f"reason {word}")
    groups = {group.pattern: group.total for group in found.groups()}
    assert groups[OTHER] == 50
    assert sum(groups.values()) == MAX_GROUPS + 50


def test_a_group_of_a_destination_is_replayed_and_dropped_when_its_buttons_are_pressed(
    tmp_path: Path,
) -> None:
    with page_client(tmp_path) as client:
        for number, reason in enumerate(["It does not fit.", "The column 'a' is NULL.", "It does not fit."]):
            client.reject_order(reason, number)
        stage = "destination:warehouse"
        text = client.get(f"/rejects?stage={stage}").text
        assert "Replay 2: It does not fit." in text
        assert "Drop these 1" in text
        group = {"stage": stage, "reason": "It does not fit."}
        answer = client.post("/rejects/replay", group, origin=ORIGIN)
        assert "count=2" in answer.headers["location"]
        assert DestinationRejects(client.events_dir).counts() == {"warehouse": 1}
        assert [file.destination_id for file in unprocessed(client.events_dir)] == ["warehouse"]
        group = {"stage": stage, "reason": "The column … is NULL."}
        assert "count=1" in client.post("/rejects/drop", group, origin=ORIGIN).headers["location"]
        assert DestinationRejects(client.events_dir).counts() == {}


def test_what_the_first_rows_wait_for_is_shown_when_a_batch_is_on_its_way(tmp_path: Path) -> None:
    with page_client(tmp_path) as client:
        incoming = EventFolder(client.events_dir)
        incoming.make()
        (incoming.incoming / "incoming.tok=web.log").write_bytes(b"{}\n" * 100)
        home = client.get("/").text
        assert "The file of token web, 300 B, is complete 5 s after its first event" in home
        assert "after up to 5 min" in home
        assert "No pipeline runs that would load them" in home
        PipelineNow(doing="starting Spark", at=time.time()).save(client.events_dir)
        (incoming.incoming / "incoming.tok=web-2026-01-01T00-00-01.000.log").write_bytes(b"{}\n")
        time.sleep(EVENTS_SECONDS)  # the counts are cached
        for address in ("/", "/system"):
            text = client.get(address).text
            assert "1 complete file waits to be loaded" in text
            assert "The pipeline is starting Spark" in text


@pytest.mark.parametrize(
    ("integration", "namespace", "arrived"),
    [
        ("", "etl", [True, False, False]),
        ("SPARK", "etl", [True, True, False]),
        ("AIRFLOW", "etl", [True, False, True]),
        ("SPARK", "headwater", [True, False, False]),
    ],
)
def test_a_first_step_ticks_when_its_event_arrives(
    tmp_path: Path, integration: str, namespace: str, arrived: list[bool]
) -> None:
    event = flow("load", ["events"], ["orders"])
    event["job"] = {
        "namespace": namespace,
        "name": "load",
        "facets": {"jobType": facet(processingType="BATCH", integration=integration)} if integration else {},
    }
    with page_client(tmp_path, [event]) as client:
        text = client.get("/").text
        steps = [text.partition(f'id="step-{number}"')[2].partition("</li>")[0] for number in (1, 2, 3)]
        assert ["arrived" in step for step in steps] == arrived


def test_the_first_steps_are_gone_when_all_have_arrived(tmp_path: Path) -> None:
    events = []
    for integration in ("SPARK", "AIRFLOW"):
        event = flow(integration, ["events"], ["orders"])
        event["job"]["facets"] = {"jobType": facet(processingType="BATCH", integration=integration)}
        events.append(event)
    with page_client(tmp_path, events) as client:
        assert "step-1" not in client.get("/").text


def test_what_a_limit_cut_is_stated_when_few_writers_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(details, "MAX_USERS", 3)
    monkeypatch.setattr(dataset, "MAX_EDGES", 1)
    lineage = column_lineage(a=[source("one", "x"), source("two", "x")], b=[source("one", "y")])
    events = [
        flow(f"load{number}", ["one"], [table("orders", schema=schema(a="int"), columnLineage=lineage)])
        for number in range(5)
    ]
    with page_client(tmp_path, events) as client:
        text = client.get("/dataset?namespace=db&name=orders").text
        written = text.partition("Written by")[2].partition("</dd>")[0]
        assert written.count("load") >= 3
        assert "and 2 more" in written
        assert "Shown: the edges of the first columns, 1 upstream" in text


def test_owners_tags_and_states_are_links_that_filter_the_catalogue(tmp_path: Path) -> None:
    described = table(
        "orders", ownership=facet(owners=[{"name": "ann"}]), tags=facet(tags=[{"key": "tier", "value": "1"}])
    )
    with page_client(tmp_path, [flow("load", ["events"], [described])]) as client:
        text = client.get("/catalogue").text
        for address in ("/catalogue?owner=ann", "/catalogue?tag=tier%3A+1"):
            assert f'href="{address}"' in text
            shown = client.get(address).text
            rows = shown.partition("<tbody>")[2].partition("</tbody>")[0]
            assert rows.count("<tr>") == 1
            assert "Remove the filter" in shown
        assert "complete dataset" in client.get("/catalogue?state=complete").text
        found = client.get("/catalogue?space=d").text.partition('<nav class="namespaces"')[2]
        assert 'title="db"' in found
        assert 'title="db"' not in client.get("/catalogue?space=x").text

"""Events as they arrive, and their rates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headwater.clock import ManualClock
from headwater.log.files.incoming import Incoming
from headwater.log.queue.log import Log
from headwater.metrics import Metrics
from headwater.page.views.dataset import bars
from headwater.page.views.event_tail import HISTORY_EVENTS, MAX_EVENTS, EventTail
from headwater.page.views.rates import RECENT, SHOWN, Rates
from headwater.page.views.system import sparkline


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_each_event_is_returned_once_when_the_tail_is_polled_repeatedly(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    incoming = Incoming(tmp_path / "events")
    try:
        log.append_wait([body(producer="p", eventType="START", job={"name": f"job{n}"}) for n in range(50)])
        incoming.append_wait("web", [body(event_type="Order", amount=1)])
        tail = EventTail(tmp_path / "log", tmp_path / "events")
        first, missed = tail.poll()
        assert [each.title for each in first if each.source == "lineage"][-1] == "START job49"
        assert len([each for each in first if each.source == "lineage"]) == HISTORY_EVENTS
        assert [(each.title, each.note) for each in first if each.source == "token web"] == [
            ("Order", "amount 1")
        ]
        assert missed == 0
        assert tail.poll() == ([], 0)
        again, _ = EventTail(tmp_path / "log", tmp_path / "events").poll()  # as after a pause of the browser
        assert [each.key for each in again] == [each.key for each in first]
        assert len({each.key for each in first}) == len(first)
        log.append_wait(
            [body(producer="p", eventType="COMPLETE", job={"name": "last"}, inputs=[{"name": "a"}])]
        )
        incoming.append_wait("web", [b'{"odd": 1}'])
        assert {(each.title, each.note) for each in tail.poll()[0]} == {
            ("COMPLETE last", "a → "),
            ("event", "odd 1"),
        }
    finally:
        log.close()
        incoming.close()


def test_the_newest_are_returned_and_the_others_counted_when_there_are_too_many(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path / "events")
    try:
        incoming.append_wait("web", [body(n=0)])
        tail = EventTail(tmp_path / "log", tmp_path / "events")
        tail.poll()
        incoming.append_wait("web", [body(n=n) for n in range(1, MAX_EVENTS + 51)])
        found, missed = tail.poll()
        assert (len(found), missed) == (MAX_EVENTS, 50)
        assert found[-1].note == f"n {MAX_EVENTS + 50}"
    finally:
        incoming.close()


def test_no_events_are_returned_when_there_are_no_files(tmp_path: Path) -> None:
    assert EventTail(tmp_path / "log", tmp_path / "events").poll() == ([], 0)


def test_the_rate_is_what_the_counters_grew_by_when_time_passes() -> None:
    metrics, clock = Metrics(), ManualClock()
    rates = Rates(metrics, clock=clock)
    rates.sample()
    for _ in range(RECENT):
        metrics.counter("delivery_events_delivered").add(10, "one")
        metrics.counter("delivery_events_delivered").add(20, "two")
        clock.advance(2)
        rates.sample()
    assert rates.rate("delivery_events_delivered") == 15
    assert rates.rate("delivery_events_delivered:two") == 10
    assert rates.total("delivery_events_delivered:one") == 10 * RECENT
    assert len(rates.history("delivery_events_delivered")) == SHOWN
    assert rates.history("delivery_events_delivered")[-1] == 15
    assert rates.rate("gateway_events_accepted") == 0


def test_a_chart_stays_in_its_frame_when_values_are_missing_or_nought() -> None:
    assert sparkline([]).line == sparkline([0, 0]).line
    found = bars([None, 0, 5, 10], 100, 50)
    assert len(found) == 3
    assert max(bar.height for bar in found) == 50
    assert all(bar.x >= 0 and bar.x + bar.width <= 100 and bar.y >= 0 for bar in found)

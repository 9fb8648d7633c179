"""Refused events are never skipped in silence: the first is a line at once, a flood of them one a minute."""

from __future__ import annotations

import logging

import pytest

from headwater.delivery.refusal_log import PAUSE_SECONDS, RefusalLog
from headwater.events import Event
from headwater.testing import OpenLineageServer
from tests.delivery.rig import Rig, eventually


def refused(*positions: int) -> list[tuple[Event, str]]:
    return [(Event(position, 0.0, b"{}"), f"no job in {position}") for position in positions]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_first_is_logged_at_once_and_others_in_one_line_when_a_minute_has_passed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = RefusalLog("backend")
    log.add([], 0.0)
    log.add(refused(7), 0.0)
    log.add(refused(8, 9), 1.0)
    log.add(refused(10), 2.0)
    log.flush(PAUSE_SECONDS - 1)
    (line,) = lines(caplog)
    assert "Outlet backend refused 1 events" in line
    assert "rejects list --stage outlet:backend" in line
    assert "event 7: no job in 7" in line
    log.flush(PAUSE_SECONDS)
    log.flush(PAUSE_SECONDS * 3)
    (_, line) = lines(caplog)
    assert "refused 3 events" in line
    assert "event 8: no job in 8" in line


def test_none_is_left_out_of_the_log_when_the_worker_closes(
    rig: Rig, backend: OpenLineageServer, caplog: pytest.LogCaptureFixture
) -> None:
    backend.refuse = lambda event: "bad" if event["i"] % 2 else None
    rig.append(*range(10))
    worker = rig.drain(url=backend.url, batch="never")
    assert eventually(rig.settled)
    rig.append(11, 13)
    assert eventually(rig.settled)
    worker.close(5)
    found = [line for line in lines(caplog) if "Outlet one refused" in line]
    assert sum(int(line.split(" refused ")[1].split()[0]) for line in found) == 7
    assert len(found) <= 3
    assert "answered 400" in found[0]

from __future__ import annotations

import logging

import pytest

from headwater.clock import ManualClock
from headwater.metrics import Metrics
from headwater.page.views.rates import Rates


def test_the_samples_go_on_when_a_total_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    # the thread of the samples would end, and with it the process
    answers: list[float | OSError] = [10.0, OSError("I/O error"), OSError("I/O error"), 16.0]

    def read() -> float:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    clock = ManualClock(0.0)
    rates = Rates(Metrics(), clock=clock)
    rates.watch("rows_loaded", read)
    totals = []
    with caplog.at_level(logging.WARNING, "headwater"):
        for _ in range(4):
            rates.sample()
            totals.append(rates.total("rows_loaded"))
            clock.advance(1)
    assert totals == [10, 10, 10, 16]
    assert rates.rates("rows_loaded") == [0, 0, 6]
    assert [record.getMessage() for record in caplog.records] == [
        "rows_loaded cannot be read for the page: I/O error"
    ]

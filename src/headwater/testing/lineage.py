"""For tests of Spark jobs and of lineage extensions: collects a job's events and selects from them.

    from headwater.testing.lineage import collect_lineage

    def test_orders(spark):
        with collect_lineage(spark) as events:
            load_orders(spark)
        event = events.only("COMPLETE", output="orders")
        assert [dataset["name"] for dataset in event["inputs"]] == ["/data/raw/orders"]

`lineage` is the same as a pytest fixture: `from headwater.testing.lineage import lineage` in a conftest.py
that has a fixture `spark`. It needs pytest, the context manager does not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from openlineage.client.serde import Serde
from openlineage.client.transport import Transport

from headwater.lineage.process import install as attach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CollectingTransport", "Events", "collect_lineage", "lineage"]

Event = dict[str, Any]

# A machine that runs tests may be busy; what is late here is only later, nothing is lost.
PATIENCE_SECONDS = 200.0


class CollectingTransport(Transport):
    """Keeps events as plain dicts, as a receiver would get them."""

    kind = "collecting"

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._lock = threading.Lock()

    def emit(self, event: Any) -> None:
        with self._lock:
            self.events.append(Serde.to_dict(event))


class Events:
    """The events so far, in order. Reading waits until every pending event is sent."""

    def __init__(
        self, transport: CollectingTransport, *, flush: Callable[[float], bool] = attach.flush
    ) -> None:
        self._transport = transport
        self._flush = flush
        self._first = len(transport.events)

    @property
    def all(self) -> list[Event]:
        """Every event since the beginning of the block."""
        assert self._flush(PATIENCE_SECONDS), "events were not sent in time"
        return self._transport.events[self._first :]

    def __iter__(self) -> Iterator[Event]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def select(
        self,
        state: str | None = None,
        *,
        job: str | None = None,
        input: str | None = None,
        output: str | None = None,
        job_type: str | None = None,
    ) -> list[Event]:
        """The events of a state, of jobs whose name contains `job`, with an input or output that ends so."""
        return [
            event
            for event in self.all
            if (state is None or event.get("eventType") == state)
            and (job is None or job in event["job"]["name"])
            and (input is None or _names(event, "inputs", input))
            and (output is None or _names(event, "outputs", output))
            and (job_type is None or _job_type(event) == job_type)
        ]

    def only(self, state: str | None = None, **wanted: Any) -> Event:
        """The one event that `select` finds; an AssertionError that lists what there is otherwise."""
        found = self.select(state, **wanted)
        if len(found) != 1:
            described = "\n".join(f"  {line}" for line in self.describe()) or "  none"
            raise AssertionError(f"{len(found)} events are {state} {wanted}, of:\n{described}")
        return found[0]

    def runs(self) -> dict[str, list[str]]:
        """The states of each run, in order, by run id."""
        found: dict[str, list[str]] = {}
        for event in self.all:
            found.setdefault(event["run"]["runId"], []).append(event["eventType"])
        return found

    def assert_paired(self) -> None:
        """Each run that has ended has exactly one START, first, and one end."""
        for run, states in self.runs().items():
            assert states[0] == "START", f"run {run} began with {states}"
            assert states.count("START") == 1, f"run {run} has {states}"
            assert len(states) <= 2, f"run {run} has {states}"

    def describe(self) -> list[str]:
        """A line for each event."""
        return [
            f"{event['eventType']:8} {event['job']['name']}: "
            f"{[each['name'] for each in event.get('inputs', [])]} -> "
            f"{[each['name'] for each in event.get('outputs', [])]}"
            for event in self.all
        ]


@contextmanager
def collect_lineage(spark: SparkSession, **settings: Any) -> Iterator[Events]:
    """The events of what runs inside the block, the application's START and its end included.

    Installs lineage with a transport that collects, and takes it out again; `settings` as for `install`.
    """
    attach.uninstall()
    transport = CollectingTransport()
    events = Events(transport)
    millis = int(PATIENCE_SECONDS * 1000)
    patient = {"deadline_millis": millis, "exit_millis": millis}
    attach.install(spark, **{"transport": transport, **patient, **settings})
    try:
        yield events
        attach.flush(PATIENCE_SECONDS)
    finally:
        attach.uninstall()
        events._flush = lambda seconds: True


try:
    import pytest
except ImportError:
    pass  # `collect_lineage` works without it
else:

    @pytest.fixture
    def lineage(spark: SparkSession) -> Iterator[Events]:
        """The events of the test's Spark job."""
        with collect_lineage(spark) as events:
            yield events


def _names(event: Event, side: str, end: str) -> bool:
    return any(each["name"].endswith(end) for each in event.get(side, []))


def _job_type(event: Event) -> str | None:
    facet = (event["job"].get("facets") or {}).get("jobType") or {}
    return facet.get("jobType")

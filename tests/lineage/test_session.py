"""LineageSession polls the agent, builds in time or partially, and survives a JVM that is gone."""

from __future__ import annotations

import inspect
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openlineage.client import OpenLineageClient

from headwater.lineage.jvm import compile as jvm
from headwater.lineage.jvm.agent import Agent
from headwater.lineage.jvm.messages import AppStart, Message, SqlEnd, SqlStart
from headwater.lineage.runs import DueEvent, Run, State
from headwater.lineage.session import LineageSession
from headwater.lineage.settings import LineageSettings
from headwater.testing.lineage import CollectingTransport
from tests.lineage.made import event, run
from tests.sources import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_SECONDS = 60.0


class Scripted:
    """A builder whose events a test defines."""

    def __init__(self, do: Callable[[], dict[str, Any]]) -> None:
        self.do = do

    def build(self, run: Run, state: str, time: int) -> dict[str, Any]:
        return self.do()

    def partial(self, run: Run, state: str, time: int) -> dict[str, Any]:
        return event(state, name="partial")


def session(builder: Any, agent: Any = None, **settings: Any) -> tuple[LineageSession, CollectingTransport]:
    """A session of no Spark, whose thread is not started."""
    transport = CollectingTransport()
    made = LineageSession(
        None,  # type: ignore[arg-type]
        LineageSettings(**settings),
        lambda agent: builder,
        lambda: OpenLineageClient(transport=transport),
    )
    made.agent = agent
    return made, transport


def text(made: dict[str, Any] | None) -> str:
    assert made is not None
    return str(made["run"]["facets"]["extractionError"]["errors"][0]["errorMessage"])


def built(made: LineageSession, state: State = State.COMPLETE) -> dict[str, Any] | None:
    made._prepare()
    return made._build_event(DueEvent(run(), state, 1))


def fail() -> dict[str, Any]:
    raise SystemExit("no")


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """An event that is set only when the test is over."""
    found = threading.Event()
    yield found
    found.set()


def test_each_step_of_the_drawing_is_a_method_when_the_architecture_is_read() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    drawing = re.search(r"poll(?: *[─-]+[►>] *\w+)+", page)
    assert drawing is not None
    steps = re.findall(r"\w+", drawing[0].replace("─", " "))
    assert len(steps) == 5
    assert set(steps) <= {name.removeprefix("_") for name in vars(LineageSession)}
    documented = re.search(r"poll(?: -> \w+)+", inspect.getmodule(LineageSession).__doc__ or "")
    assert documented is not None
    assert re.findall(r"\w+", documented[0].replace("->", " ")) == steps


def test_the_event_is_whole_when_the_builder_returns() -> None:
    made, _ = session(Scripted(lambda: event(name="whole")))
    found = built(made)
    assert found is not None
    assert found["job"]["name"] == "whole"


def test_the_event_is_partial_when_the_builder_raises_even_system_exit() -> None:
    made, _ = session(Scripted(fail))
    assert text(built(made)) == "SystemExit: no"


def test_the_event_is_partial_when_the_builder_never_returns(never: threading.Event) -> None:
    scripted = Scripted(lambda: {"waited": never.wait()})
    made, _ = session(scripted, deadline_millis=50)
    assert "did not return within" in text(built(made))
    scripted.do = lambda: event(name="whole")
    found = made._build_event(DueEvent(run(), State.COMPLETE, 1))
    assert found is not None
    assert found["job"]["name"] == "whole", "the next one is built by another thread"


def test_a_build_is_limited_by_the_exit_deadline_when_the_job_ends(never: threading.Event) -> None:
    made, _ = session(Scripted(lambda: {"waited": never.wait()}), deadline_millis=10_000_000)
    made._exit_deadline = 0.0
    assert "did not return within" in text(built(made, State.ABORT))


class Broken(Scripted):
    """Cannot make a partial event either."""

    def partial(self, run: Run, state: str, time: int) -> dict[str, Any]:
        raise ValueError("nor this")


def test_there_is_no_event_when_not_even_a_partial_one_can_be_made() -> None:
    made, _ = session(Broken(fail))
    assert built(made, State.START) is None


def test_a_build_reads_what_was_when_messages_come_after_it() -> None:
    of = run()
    seen = of.snapshot()
    of.extraction_errors.append(object())  # type: ignore[arg-type]
    of.ended = 7
    assert (seen.extraction_errors, seen.ended) == ([], None)
    assert seen.cache is of.cache


def attached(context: Any) -> Agent:
    """An agent that listens."""
    agent = Agent(context)
    agent.attach()
    return agent


class Recording(LineageSession):
    """Records messages instead of processing them."""

    def __init__(self, agent: Any) -> None:
        super().__init__(None, LineageSettings(), Scripted, OpenLineageClient)  # type: ignore[arg-type]
        self.agent = agent
        self.messages: list[Message] = []
        self._application = AppStart(id="app", name="app", time=1, user="me")
        self.context = type("Context", (), {})()
        self._thread.start()

    def _process(self, message: Message) -> None:
        self.messages.append(message)


def test_every_message_is_handled_when_spark_was_faster_than_the_thread(
    spark: SparkSession, tmp_path: Path
) -> None:
    context: Any = spark.sparkContext
    agent = attached(context)
    try:
        spark.range(3).write.parquet(str(tmp_path / "out"))
        assert agent.wait_until_handled(60)
        assert agent.offered() > 2
        recording = Recording(agent)
        assert recording.flush(PATIENCE_SECONDS)
    finally:
        agent.detach(60)
    recording._stop_polling(PATIENCE_SECONDS)
    assert not recording._thread.is_alive()
    assert len(recording.messages) == agent.offered() + 1, "the first one is the application's start"
    assert isinstance(recording.messages[1], SqlStart)
    assert any(isinstance(message, SqlEnd) for message in recording.messages)


def agents_threads(context: Any) -> int:
    threads = context._jvm.java.lang.Thread.getAllStackTraces().keySet()
    return sum(str(each.getName()) == "headwater-lineage" for each in threads)


def test_nothing_is_left_in_the_jvm_when_the_agent_is_detached(spark: SparkSession, tmp_path: Path) -> None:
    context: Any = spark.sparkContext
    before = agents_threads(context)
    agent = attached(context)
    assert agents_threads(context) == before + 1
    spark.range(3).write.parquet(str(tmp_path / "recorded"))
    assert agent.wait_until_handled(60)
    agent.detach(60)
    before_detach = agent.offered()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while agents_threads(context) > before:
        assert time.monotonic() < deadline, "its thread goes on"
        time.sleep(0.05)
    spark.range(3).write.parquet(str(tmp_path / "not-recorded"))
    context._jsc.sc().listenerBus().waitUntilEmpty(60_000)
    assert agent.offered() == before_detach


def test_earlier_messages_are_polled_when_the_agent_is_detached_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    context: Any = spark.sparkContext
    agent = attached(context)
    spark.range(3).write.parquet(str(tmp_path / "out"))
    context._jsc.sc().listenerBus().waitUntilEmpty(60_000)
    agent.detach(60)
    messages = agent.poll()
    assert isinstance(messages[0], SqlStart)
    assert any(isinstance(each, SqlEnd) for each in messages)
    assert len(messages) == agent.offered()


def test_all_messages_come_in_order_when_few_of_them_are_urgent(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    queue = jvm.load(context).new(context._gateway, "MessageQueue")
    for number in range(10):
        queue.offer(str(number), number == 3)
    answers = [json.loads(queue.poll(60_000, 4)) for _ in range(3)]
    assert answers == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    queue.offer("10", False)
    assert json.loads(queue.poll(1, 4)) == [10], "it is polled when the time is up"
    queue.offer("11", False)
    queue.wake()
    assert json.loads(queue.poll(60_000, 4)) == [11]


class _Gone:
    """An agent in a JVM that dies during a flush."""

    def __init__(self) -> None:
        self.waits = threading.Event()

    def offered(self) -> int:
        return 5

    def wait_until_handled(self, seconds: float) -> bool:
        self.waits.set()
        return True

    def wake(self) -> None:
        """There is no poll to end."""

    def open_connection(self) -> None:
        """There is no connection."""

    def poll(self, released: Sequence[int] = ()) -> list[Message]:
        self.waits.wait()
        raise ConnectionError("Answer from Java side is empty")


def test_a_flush_returns_when_the_jvm_is_gone() -> None:
    recording = Recording(_Gone())
    waiting = threading.Thread(target=recording.flush, args=(10 * PATIENCE_SECONDS,), daemon=True)
    waiting.start()
    waiting.join(PATIENCE_SECONDS)
    assert not waiting.is_alive()
    assert recording._is_jvm_gone

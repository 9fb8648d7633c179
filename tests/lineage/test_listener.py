"""The thread that listens: it begins late on a busy machine, and the JVM may be gone before it ends."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.lineage.jvm import compile as jvm
from headwater.lineage.jvm.agent import Listener
from headwater.lineage.jvm.messages import AppStart, Message, SqlEnd, SqlStart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = AppStart(id="app", name="app", time=1, user="me")
PATIENCE_SECONDS = 60.0


def attached(context: Any) -> Any:
    """An agent that listens."""
    agent = jvm.load(context).new(context._gateway, "Agent", context._jsc.sc())
    agent.attach()
    return agent


def test_every_message_is_handled_when_spark_was_faster_than_the_thread(
    spark: SparkSession, tmp_path: Path
) -> None:
    context: Any = spark.sparkContext
    agent = attached(context)
    try:
        spark.range(3).write.parquet(str(tmp_path / "out"))
        assert agent.settle(60_000)
        assert agent.offered() > 2
        heard: list[Message] = []
        listener = Listener(agent, context._gateway, heard.append, first=FIRST)
        assert listener.flush(PATIENCE_SECONDS)
    finally:
        agent.detach(60_000)
    assert listener.close(PATIENCE_SECONDS)
    assert len(heard) == agent.offered() + 1, "the first one is not the agent's"
    assert isinstance(heard[1], SqlStart)
    assert any(isinstance(message, SqlEnd) for message in heard)


def agents_threads(context: Any) -> int:
    threads = context._jvm.java.lang.Thread.getAllStackTraces().keySet()
    return sum(str(each.getName()) == "headwater-lineage" for each in threads)


def test_nothing_is_left_in_the_jvm_when_the_agent_is_detached(spark: SparkSession, tmp_path: Path) -> None:
    context: Any = spark.sparkContext
    before = agents_threads(context)
    agent = attached(context)
    assert agents_threads(context) == before + 1
    spark.range(3).write.parquet(str(tmp_path / "heard"))
    assert agent.settle(60_000)
    agent.detach(60_000)
    heard = agent.offered()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while agents_threads(context) > before:
        assert time.monotonic() < deadline, "its thread goes on"
        time.sleep(0.05)
    spark.range(3).write.parquet(str(tmp_path / "not-heard"))
    context._jsc.sc().listenerBus().waitUntilEmpty(60_000)
    assert agent.offered() == heard


def test_what_was_heard_before_is_told_when_the_agent_is_detached_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    context: Any = spark.sparkContext
    agent = attached(context)
    spark.range(3).write.parquet(str(tmp_path / "out"))
    context._jsc.sc().listenerBus().waitUntilEmpty(60_000)
    agent.detach(60_000)
    told = [each["type"] for each in json.loads(agent.poll())]
    assert told[0] == "sql_start"
    assert "sql_end" in told
    assert len(told) == agent.offered()


def test_all_messages_come_in_order_when_few_of_them_are_due(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    mailbox = jvm.load(context).new(context._gateway, "Mailbox")
    for number in range(10):
        mailbox.offer(str(number), number == 3)
    answers = [json.loads(mailbox.poll(60_000, 4)) for _ in range(3)]
    assert answers == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    mailbox.offer("10", False)
    assert json.loads(mailbox.poll(1, 4)) == [10], "it is told when the time is up"
    mailbox.offer("11", False)
    mailbox.wake()
    assert json.loads(mailbox.poll(60_000, 4)) == [11]


class _Gone:
    """An agent in a JVM that dies while somebody waits for what it said."""

    def __init__(self) -> None:
        self.waits = threading.Event()

    def offered(self) -> int:
        return 5

    def settle(self, millis: int) -> bool:
        self.waits.set()
        return True

    def wake(self) -> None:
        """Nobody is there to be woken."""

    def noDelay(self, server: object) -> int:  # noqa: N802 - as Java spells it
        return 0

    def poll(self, released: str = "") -> str:
        self.waits.wait()
        raise ConnectionError("Answer from Java side is empty")


def test_nobody_waits_any_longer_when_the_jvm_is_gone() -> None:
    class Gateway:
        java_gateway_server = None

    listener = Listener(_Gone(), Gateway(), lambda message: None, first=FIRST)
    waiting = threading.Thread(target=listener.flush, args=(10 * PATIENCE_SECONDS,), daemon=True)
    waiting.start()
    waiting.join(PATIENCE_SECONDS)
    assert not waiting.is_alive()
    assert listener.is_lost

"""The thread that listens: it begins late on a busy machine, and the JVM may be gone before it ends."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.lineage.agent import jvm
from headwater.lineage.agent.listener import Listener
from headwater.lineage.agent.messages import AppStart, Message, SqlEnd, SqlStart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = AppStart(id="app", name="app", time=1, user="me")
PATIENCE_SECONDS = 60.0


def test_every_message_is_handled_when_spark_was_faster_than_the_thread(
    spark: SparkSession, tmp_path: Path
) -> None:
    context: Any = spark.sparkContext
    agent = jvm.load(context).new(context._gateway, "Agent", context._jsc.sc())
    agent.attach()
    try:
        spark.range(3).write.parquet(str(tmp_path / "out"))
        assert agent.settle(60_000)
        assert agent.offered() > 2
        heard: list[Message] = []
        listener = Listener(agent, context._gateway, heard.append, first=FIRST)
        assert listener.flush(PATIENCE_SECONDS)
    finally:
        agent.detach()
    assert listener.close(PATIENCE_SECONDS)
    assert len(heard) == agent.offered() + 1, "the first one is not the agent's"
    assert isinstance(heard[1], SqlStart)
    assert any(isinstance(message, SqlEnd) for message in heard)


class _Gone:
    """An agent in a JVM that dies while somebody waits for what it said."""

    def __init__(self) -> None:
        self.waits = threading.Event()

    def offered(self) -> int:
        return 5

    def settle(self, millis: int) -> bool:
        self.waits.set()
        return True

    def noDelay(self, server: object) -> int:  # noqa: N802 - as Java spells it
        return 0

    def poll(self, millis: int, most: int, released: str) -> str:
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

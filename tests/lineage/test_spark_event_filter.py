"""The agent handles Spark's events on its own queue and thread, and Spark never waits for it (G10)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.lineage.jvm import compile as jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = 10_000  # in the queue
PATIENCE_MILLIS = 60_000
SLOW_FILTER = """
package headwater.lineage;
import java.util.ArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.scheduler.SparkListenerEvent;
public class SlowFilter extends SparkEventFilter {
    private final org.apache.spark.SparkContext context;
    public final ArrayList kinds = new ArrayList();
    private final CountDownLatch begun = new CountDownLatch(1);
    private final CountDownLatch released = new CountDownLatch(1);
    private final AtomicLong dropped = new AtomicLong();
    public SlowFilter(org.apache.spark.SparkContext context) { this.context = context; }
    protected void handle(SparkListenerEvent event) {
        begun.countDown();
        try {
            released.await();
        } catch (InterruptedException ignored) {
        }
        kinds.add(event.getClass().getSimpleName());
    }
    protected void countDropped() { dropped.incrementAndGet(); }
    public void attach() { listen(context.listenerBus()); }
    public void hasBegun() throws InterruptedException { begun.await(); }
    public void release() { released.countDown(); }
    public boolean waitUntilHandled(long millis) { return super.waitUntilHandled(millis); }
    public void detach(long millis) { stopListening(millis); }
    public long dropped() { return dropped.get(); }
    public ArrayList kinds() { return kinds; }
    public void repeat(int times) {
        for (int at = 0; at < times; at++) {
            onApplicationEnd(new org.apache.spark.scheduler.SparkListenerApplicationEnd(
                    (long) at, scala.Option.apply(null)));
        }
    }
}
"""


@pytest.fixture(scope="module")
def units(spark: SparkSession) -> jvm.Units:
    # compiled once: py4j remembers methods by the name of their class
    context: Any = spark.sparkContext
    compiler = context._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.load(context).loader)
    compiler.cook(SLOW_FILTER)
    return jvm.Units(compiler.getClassLoader(), {})


@pytest.fixture
def slow(spark: SparkSession, units: jvm.Units) -> Iterator[Any]:
    """A filter that handles nothing before `release`."""
    context: Any = spark.sparkContext
    made = units.new(context._gateway, "SlowFilter", context._jsc.sc())
    made.attach()
    yield made
    made.release()
    made.detach(PATIENCE_MILLIS)


def test_queries_and_other_listeners_go_on_when_the_agent_is_slow(
    spark: SparkSession, slow: Any, tmp_path: Path
) -> None:
    context: Any = spark.sparkContext
    for number in range(5):
        spark.range(10).write.parquet(str(tmp_path / f"out{number}"))
    slow.hasBegun()
    context._jsc.sc().listenerBus().waitUntilEmpty(PATIENCE_MILLIS)  # raises if it is not
    assert list(slow.kinds()) == []
    assert not slow.waitUntilHandled(50)
    slow.release()
    assert slow.waitUntilHandled(PATIENCE_MILLIS)
    kinds = list(slow.kinds())
    assert kinds.count("SparkListenerSQLExecutionEnd") == 5
    assert kinds[0] == "SparkListenerSQLExecutionStart"
    assert not [kind for kind in kinds if "Task" in kind or "Update" in kind], "filtered out"
    assert slow.dropped() == 0


def test_events_over_the_limit_are_counted_when_the_agent_is_slow(slow: Any) -> None:
    slow.repeat(1)
    slow.hasBegun()  # that one is out of the queue
    slow.repeat(MOST + 7)
    assert slow.dropped() == 7
    slow.release()
    assert slow.waitUntilHandled(PATIENCE_MILLIS)
    assert len(list(slow.kinds())) == MOST + 1

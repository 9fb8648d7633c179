"""What the agent hears is dealt with on a queue and a thread of its own: Spark waits for none of it (G10)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.lineage.jvm import compile as jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = 10_000  # that wait
PATIENCE_MILLIS = 60_000
HARD_OF_HEARING = """
package headwater.lineage;
import java.util.ArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.scheduler.SparkListenerEvent;
public class HardOfHearing extends Ear {
    private final org.apache.spark.SparkContext context;
    public final ArrayList kinds = new ArrayList();
    private final CountDownLatch begun = new CountDownLatch(1);
    private final CountDownLatch understood = new CountDownLatch(1);
    private final AtomicLong missed = new AtomicLong();
    public HardOfHearing(org.apache.spark.SparkContext context) { this.context = context; }
    protected void hear(SparkListenerEvent event) {
        begun.countDown();
        try {
            understood.await();
        } catch (InterruptedException ignored) {
        }
        kinds.add(event.getClass().getSimpleName());
    }
    protected void miss() { missed.incrementAndGet(); }
    public void attach() { listen(context.listenerBus()); }
    public void hasBegun() throws InterruptedException { begun.await(); }
    public void understand() { understood.countDown(); }
    public boolean settle(long millis) { return waitUntilHeard(millis); }
    public void detach(long millis) { leave(millis); }
    public long missed() { return missed.get(); }
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
    compiler.cook(HARD_OF_HEARING)
    return jvm.Units(compiler.getClassLoader(), {})


@pytest.fixture
def ear(spark: SparkSession, units: jvm.Units) -> Iterator[Any]:
    """One that deals with nothing before it is told to."""
    context: Any = spark.sparkContext
    made = units.new(context._gateway, "HardOfHearing", context._jsc.sc())
    made.attach()
    yield made
    made.understand()
    made.detach(PATIENCE_MILLIS)


def test_queries_and_other_listeners_go_on_when_the_agent_is_slow(
    spark: SparkSession, ear: Any, tmp_path: Path
) -> None:
    context: Any = spark.sparkContext
    for number in range(5):
        spark.range(10).write.parquet(str(tmp_path / f"out{number}"))
    ear.hasBegun()
    context._jsc.sc().listenerBus().waitUntilEmpty(PATIENCE_MILLIS)  # raises if it is not
    assert list(ear.kinds()) == []
    assert not ear.settle(50)
    ear.understand()
    assert ear.settle(PATIENCE_MILLIS)
    kinds = list(ear.kinds())
    assert kinds.count("SparkListenerSQLExecutionEnd") == 5
    assert kinds[0] == "SparkListenerSQLExecutionStart"
    assert not [kind for kind in kinds if "Task" in kind or "Update" in kind], "nobody wants these"
    assert ear.missed() == 0


def test_what_is_too_much_is_counted_when_the_agent_is_slow(ear: Any) -> None:
    ear.repeat(1)
    ear.hasBegun()  # that one is out of the queue
    ear.repeat(MOST + 7)
    assert ear.missed() == 7
    ear.understand()
    assert ear.settle(PATIENCE_MILLIS)
    assert len(list(ear.kinds())) == MOST + 1

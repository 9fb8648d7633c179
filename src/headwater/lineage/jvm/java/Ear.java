package headwater.lineage;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.spark.scheduler.LiveListenerBus;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart;

/*
 * Hears Spark's events, lets through the few that matter, and has them dealt with on a queue and a thread of
 * its own: whatever that takes, Spark's listeners wait for none of it (G10).
 *
 * A queue of the listener bus would do the same, but Spark wakes the thread of each of its queues for each
 * event, two and more for every task: at 10,000 tasks that alone cost half a second of CPU, as much as all
 * that openlineage-spark did there. So the ear is on a queue that every driver has, whose listeners are quick,
 * and does nothing there but look at the kind of an event.
 */
public abstract class Ear extends SparkListener {
    private static final String QUEUE = "executorManagement";
    private static final int MOST = 10000;              // as many as Spark's own queues hold

    private final LinkedBlockingQueue heard = new LinkedBlockingQueue(MOST);
    private LiveListenerBus bus = null;                 // while it listens

    /* Deal with one event, on the ear's thread. */
    protected abstract void hear(SparkListenerEvent event);

    /* An event was left out. */
    protected abstract void miss();

    protected void listen(LiveListenerBus bus) {
        this.bus = bus;
        Thread thread = new Thread("headwater-lineage") {
            public void run() {
                work();
            }
        };
        thread.setDaemon(true);
        thread.start();
        bus.addToQueue(this, QUEUE);
    }

    /* Whether everything that has happened so far was dealt with, within so many milliseconds. */
    protected boolean waitUntilHeard(long millis) {
        long deadline = System.nanoTime() + millis * 1000000L;
        try {
            bus.waitUntilEmpty(millis);
            return waitUntilDone(Math.max(0L, (deadline - System.nanoTime()) / 1000000L));
        } catch (Throwable error) {
            return false;                               // too late, or the bus has stopped
        }
    }

    /* Hears nothing more; what was heard is dealt with, for so many milliseconds at most; then the thread ends. */
    protected void leave(long millis) {
        if (bus == null) {
            return;                                     // nobody is there who would deal with anything
        }
        try {
            bus.removeListener(this);
        } catch (Throwable ignored) {
            // the bus has stopped
        }
        bus = null;
        try {
            waitUntilDone(millis);
            heard.offer(this, millis, TimeUnit.MILLISECONDS);
        } catch (InterruptedException ignored) {
            // nobody waits any longer
        }
    }

    private boolean waitUntilDone(long millis) throws InterruptedException {
        CountDownLatch mark = new CountDownLatch(1);
        return heard.offer(mark, millis, TimeUnit.MILLISECONDS) && mark.await(millis, TimeUnit.MILLISECONDS);
    }

    private void work() {
        try {
            for (Object next = heard.take(); next != this; next = heard.take()) {
                if (next instanceof CountDownLatch) {
                    ((CountDownLatch) next).countDown();
                } else {
                    hear((SparkListenerEvent) next);
                }
            }
        } catch (InterruptedException ignored) {
            // the end
        }
    }

    private void take(SparkListenerEvent event) {
        if (!heard.offer(event)) {
            miss();
        }
    }

    public void onApplicationEnd(SparkListenerApplicationEnd event) {
        take(event);
    }

    public void onJobStart(SparkListenerJobStart event) {
        take(event);
    }

    public void onJobEnd(SparkListenerJobEnd event) {
        take(event);
    }

    public void onStageCompleted(SparkListenerStageCompleted event) {
        take(event);
    }

    public void onOtherEvent(SparkListenerEvent event) {
        if (event instanceof SparkListenerSQLExecutionStart || event instanceof SparkListenerSQLExecutionEnd
                || event.getClass().getName().indexOf("StreamingQueryListener$") >= 0) {
            take(event);
        }
    }
}

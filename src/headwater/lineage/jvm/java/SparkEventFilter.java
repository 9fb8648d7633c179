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
 * Filters Spark's listener events and handles the relevant ones on its own queue and thread, so that a slow agent
 * never delays Spark's other listeners (G10).
 *
 * A queue of the listener bus would do the same, but Spark wakes the thread of each of its queues for each event,
 * at least two for every task: at 10,000 tasks that alone cost half a second of CPU, as much as all of
 * openlineage-spark there. So the filter joins a queue that every driver has and whose listeners are quick, and only
 * checks the class of each event there.
 */
public abstract class SparkEventFilter extends SparkListener {
    private static final String QUEUE = "executorManagement";
    private static final int MOST = 10000;              // as many as Spark's own queues hold

    private final LinkedBlockingQueue events = new LinkedBlockingQueue(MOST);
    private LiveListenerBus bus = null;                 // while it listens

    /* Handles one event, on the filter's thread. */
    protected abstract void handle(SparkListenerEvent event);

    /* Counts an event that was dropped. */
    protected abstract void countDropped();

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

    /* Waits until all events so far are handled; returns whether they are. */
    public boolean waitUntilHandled(long millis) {
        long deadline = System.nanoTime() + millis * 1000000L;
        try {
            bus.waitUntilEmpty(millis);
            return waitUntilDone(Math.max(0L, (deadline - System.nanoTime()) / 1000000L));
        } catch (Throwable error) {
            return false;                               // too late, or the bus has stopped
        }
    }

    /* Leaves the bus, waits for the queued events to be handled, and ends the thread. */
    protected void stopListening(long millis) {
        if (bus == null) {
            return;                                     // the thread has ended already
        }
        try {
            bus.removeListener(this);
        } catch (Throwable ignored) {
            // the bus has stopped
        }
        bus = null;
        try {
            waitUntilDone(millis);
            events.offer(this, millis, TimeUnit.MILLISECONDS);
        } catch (InterruptedException ignored) {
            // the caller no longer waits
        }
    }

    private boolean waitUntilDone(long millis) throws InterruptedException {
        CountDownLatch mark = new CountDownLatch(1);
        return events.offer(mark, millis, TimeUnit.MILLISECONDS) && mark.await(millis, TimeUnit.MILLISECONDS);
    }

    private void work() {
        try {
            for (Object next = events.take(); next != this; next = events.take()) {
                if (next instanceof CountDownLatch) {
                    ((CountDownLatch) next).countDown();
                } else {
                    handle((SparkListenerEvent) next);
                }
            }
        } catch (InterruptedException ignored) {
            // the end
        }
    }

    private void take(SparkListenerEvent event) {
        if (!events.offer(event)) {
            countDropped();
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

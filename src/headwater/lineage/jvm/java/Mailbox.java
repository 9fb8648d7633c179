package headwater.lineage;

import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/*
 * Messages that wait for Python: bounded in number and in chars, so that a Python that does not come costs
 * messages, which are counted and told, and never the driver's memory (G8).
 */
public class Mailbox {
    private static final int MAX_MESSAGES = 100000;
    private static final long ROOM = 64L << 20;         // chars of all that waits, before plans are left out
    private static final int MAX_ANSWER = 16 << 20;     // chars of one poll's answer, but for its last message

    private final LinkedBlockingQueue queue = new LinkedBlockingQueue();
    private final AtomicLong queued = new AtomicLong();
    private final AtomicLong dropped = new AtomicLong();
    private final AtomicLong offered = new AtomicLong();
    private final Semaphore due = new Semaphore(0);     // given for what somebody should hear of soon
    private volatile boolean more = false;
    private volatile boolean closed = false;

    /* Whether so many chars more are too many for a message to be whole. */
    public boolean isFullFor(int chars) {
        return queued.get() + chars > ROOM;
    }

    /* A message; one that is not due waits until another is, or the poll's time is up. */
    public void offer(String text, boolean isDue) {
        if (closed) {
            return;
        }
        if (queue.size() >= MAX_MESSAGES || queued.get() + text.length() > 2 * ROOM) {
            dropped.incrementAndGet();
            return;
        }
        queued.addAndGet((long) text.length());
        queue.offer(text);
        offered.incrementAndGet();                      // after it: whoever waits for so many finds them here
        if (isDue) {
            due.release();
        }
    }

    /* A message could not be made. */
    public void miss() {
        dropped.incrementAndGet();
    }

    /* How many messages there have been, those that were polled included. */
    public long offered() {
        return offered.get();
    }

    /* A JSON array of the next messages, at most `max`; waits for one that is due, at most `millis`. */
    public String poll(int millis, int max) throws InterruptedException {
        if (!more) {
            due.tryAcquire((long) millis, TimeUnit.MILLISECONDS);
        }
        due.drainPermits();                             // before the messages: what comes now is due again
        StringBuilder all = new StringBuilder("[");
        int count = 0;
        for (; count < max && all.length() <= MAX_ANSWER; count++) {
            String next = (String) queue.poll();
            if (next == null) {
                break;
            }
            queued.addAndGet((long) -next.length());
            all.append(all.length() > 1 ? "," : "").append(next);
        }
        more = count == max || all.length() > MAX_ANSWER;
        long lost = dropped.getAndSet(0L);
        if (lost > 0) {
            all.append(all.length() > 1 ? "," : "");
            all.append("{\"type\":\"dropped\",\"count\":").append(lost).append("}");
        }
        return all.append("]").toString();
    }

    /* Ends a poll that waits. */
    public void wake() {
        due.release();
    }

    /* Takes nothing more; what waits can still be polled. */
    public void close() {
        closed = true;
        wake();
    }
}

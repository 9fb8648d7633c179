package headwater.lineage;

import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/*
 * Messages that wait for Python, bounded in number and in chars: if Python does not poll, messages are dropped and
 * counted, and the driver's memory is safe (G8).
 */
public class MessageQueue {
    private static final int MAX_MESSAGES = 100000;
    private static final long ROOM = 64L << 20;         // chars of all messages, above which plans are omitted
    private static final int MAX_ANSWER = 16 << 20;     // chars of one poll's answer, without its last message

    private final LinkedBlockingQueue queue = new LinkedBlockingQueue();
    private final AtomicLong queued = new AtomicLong();
    private final AtomicLong dropped = new AtomicLong();
    private final AtomicLong offered = new AtomicLong();
    private final Semaphore urgent = new Semaphore(0);  // released for each message that ends a poll
    private volatile boolean more = false;
    private volatile boolean closed = false;

    /* Whether a message of this length should omit its plan. */
    public boolean isFullFor(int chars) {
        return queued.get() + chars > ROOM;
    }

    /* Adds a message; one that is not urgent waits for the next urgent one, or for the end of the poll. */
    public void offer(String text, boolean isUrgent) {
        if (closed) {
            return;
        }
        if (queue.size() >= MAX_MESSAGES || queued.get() + text.length() > 2 * ROOM) {
            dropped.incrementAndGet();
            return;
        }
        queued.addAndGet((long) text.length());
        queue.offer(text);
        offered.incrementAndGet();                      // after `queue.offer`: a counted message can be polled
        if (isUrgent) {
            urgent.release();
        }
    }

    /* Counts a message that could not be written. */
    public void countDropped() {
        dropped.incrementAndGet();
    }

    /* The number of messages so far, polled or not. */
    public long offered() {
        return offered.get();
    }

    /* A JSON array of the next messages, at most `max`; waits for an urgent one, at most `millis`. */
    public String poll(int millis, int max) throws InterruptedException {
        if (!more) {
            urgent.tryAcquire((long) millis, TimeUnit.MILLISECONDS);
        }
        urgent.drainPermits();                          // before the messages: a later one is urgent again
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
        urgent.release();
    }

    /* Accepts no more messages; those that wait can still be polled. */
    public void close() {
        closed = true;
        wake();
    }
}

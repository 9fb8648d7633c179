package headwater.lineage;

import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.ref.SoftReference;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart;

/*
 * Writes Spark's events as short JSON messages and queues them until Python polls. Pull, never push: nothing here
 * ever waits for Python.
 *
 * Members that differ between Spark releases are called by reflection, and the other units are found by name, so a
 * change in a release costs one field of a message, not the agent (G10). Nothing is thrown to Spark.
 */
public class Agent extends SparkEventFilter {
    private static final int POLL_MILLIS = 5000;
    private static final int POLL_MESSAGES = 256;
    private static final int MAX_PLAN = 16 << 20;       // chars of one plan
    private static final int MAX_KEPT = 1000;           // live executions and jobs
    private static final int MAX_SQL = 100000;          // chars of one statement
    private static final int LONG_TEXT = 4000;
    private static final int STACK_TEXT = 10000;

    private final SparkContext context;
    private final MessageQueue messages = new MessageQueue();
    private volatile boolean includesRddsOfQueries = false;
    private volatile boolean announcesJobs = false;
    private volatile int memoryThreshold = 0;           // percent of the heap that must be free
    private volatile GcShare gc = null;                 // null: free memory decides alone
    private final Map executions = Collections.synchronizedMap(new Kept());
    private final Map jobs = Collections.synchronizedMap(new Kept());
    private final Set rddJobs = new HashSet();          // running jobs that belong to no query
    private final Map nodes = Collections.synchronizedMap(new Kept());   // of the plans that were sent, by execution

    private final Method writePlan = Reflection.unit(Agent.class, "PlanWriter", "plan");
    private final Method executed = Reflection.unit(Agent.class, "ScanMetrics", "executed");
    private final Method lakeBegin = Reflection.unit(Agent.class, "LakeVersions", "begin");
    private final Method lakeEnd = Reflection.unit(Agent.class, "LakeVersions", "end");
    private final Method lakeWrite = Reflection.unit(Agent.class, "LakeVersions", "write");
    private final Method chain = Reflection.unit(Agent.class, "RddChain", "chain");
    private final Method flat = Reflection.unit(Agent.class, "RddChain", "flat");
    private final Method outputs = Reflection.unit(Agent.class, "RddChain", "outputs");

    public static final class Kept extends LinkedHashMap {
        protected boolean removeEldestEntry(Map.Entry eldest) {
            return size() > MAX_KEPT;
        }
    }

    public Agent(SparkContext context) {
        this.context = context;
    }

    /* ------------------------------------------------------------------ called by Python */

    public void attach() {
        listen(context.listenerBus());
        quietly(lakeBegin, context);
    }

    /* Leaves the listener bus; queued messages can still be polled. */
    public void detach(long millis) {
        stopListening(millis);
        messages.close();
        quietly(lakeEnd);
        executions.clear();
        nodes.clear();
        jobs.clear();
    }

    /* The number of messages so far, polled or not. */
    public long offered() {
        return messages.offered();
    }

    /*
     * A JSON array of the next messages; waits for an urgent one. It has no arguments, since py4j takes as long to
     * decode three of them as for the rest of a call.
     */
    public String poll() throws InterruptedException {
        return messages.poll(POLL_MILLIS, POLL_MESSAGES);
    }

    /* The same; executions whose numbers are in `released` need not be kept any longer. */
    public String poll(String released) throws InterruptedException {
        for (String execution : released.split(",")) {
            executions.remove(Long.valueOf(execution));
            nodes.remove(Long.valueOf(execution));
        }
        return poll();
    }

    /* Ends a poll that waits. */
    public void wake() {
        messages.wake();
    }

    public void includeRddsOfQueries(boolean wanted) {
        includesRddsOfQueries = wanted;
    }

    /* Sends the start of a query's job at once, for an event of its own. */
    public void announceJobs(boolean wanted) {
        announcesJobs = wanted;
    }

    public void setMemoryThreshold(int percent) {
        memoryThreshold = percent;
    }

    /* Memory is short only while the collector of the old generation takes this much of the time, too. */
    public void setGcThreshold(int percent) {
        gc = new GcShare(percent);
    }

    private boolean isShortOfMemory() {
        Runtime runtime = Runtime.getRuntime();
        long free = runtime.maxMemory() - runtime.totalMemory() + runtime.freeMemory();
        boolean isShort = free * 100L < runtime.maxMemory() * (long) memoryThreshold;
        return isShort && (gc == null || gc.isExceeded());
    }

    /* The share of the time that collections of the old generation took between two looks, a second apart. */
    public static final class GcShare {
        private static final long LEAST_MILLIS = 1000;
        private final int threshold;
        private long looked = System.currentTimeMillis();
        private long collected = millis();
        private long share = 0;

        public GcShare(int threshold) {
            this.threshold = threshold;
        }

        public synchronized boolean isExceeded() {
            long now = System.currentTimeMillis();
            if (now - looked >= LEAST_MILLIS) {
                long collectedNow = millis();
                share = (collectedNow - collected) * 100 / (now - looked);
                looked = now;
                collected = collectedNow;
            }
            return share >= threshold;
        }

        /* Its collector is the one that has collected least often. */
        private static long millis() {
            GarbageCollectorMXBean old = null;
            for (Object each : ManagementFactory.getGarbageCollectorMXBeans()) {
                GarbageCollectorMXBean bean = (GarbageCollectorMXBean) each;
                if (old == null || bean.getCollectionCount() < old.getCollectionCount()) {
                    old = bean;
                }
            }
            return old == null ? 0 : Math.max(0, old.getCollectionTime());
        }
    }

    /* The QueryExecution; null when it is no longer kept. */
    public Object query(long execution) {
        return recall(executions, execution);
    }

    /* The nodes of the analyzed plan, by their numbers in the plan's document; null when they are no longer kept. */
    public Object nodes(long execution) {
        return recall(nodes, execution);
    }

    /* The ActiveJob; null when it is no longer kept, or had ended before it was seen. */
    public Object job(int job) {
        return recall(jobs, job);
    }

    /* An RDD of a job by its id. */
    public Object rdd(int job, int rdd) {
        try {
            Object last = Reflection.call(Reflection.call(job(job), "finalStage"), "rdd");
            for (Object each : (List) Reflection.invoke(flat, last)) {
                if ((Integer) Reflection.call(each, "id") == rdd) {
                    return each;
                }
            }
        } catch (Throwable error) {
            // no longer there
        }
        return null;
    }

    /*
     * py4j leaves Nagle's algorithm on, so that texts over 8 kB wait 44 ms for a delayed acknowledgement; every
     * connection, hence every Python thread, needs this once.
     */
    public void noDelay(Object server) {
        for (Object connection : Reflection.each(Reflection.fieldOrNull(server, "connections"))) {
            try {
                ((java.net.Socket) Reflection.fieldOrNull(connection, "socket")).setTcpNoDelay(true);
            } catch (Throwable ignored) {
                // closed, or of another kind: Nagle's algorithm stays on
            }
        }
    }

    /* ------------------------------------------------------------------ called by Spark */

    protected void countDropped() {
        messages.countDropped();
    }

    protected void handle(SparkListenerEvent event) {
        try {
            if (event instanceof SparkListenerSQLExecutionStart) {
                started((SparkListenerSQLExecutionStart) event);
            } else if (event instanceof SparkListenerSQLExecutionEnd) {
                ended((SparkListenerSQLExecutionEnd) event);
            } else if (event instanceof SparkListenerJobStart) {
                jobStarted((SparkListenerJobStart) event);
            } else if (event instanceof SparkListenerJobEnd) {
                jobEnded((SparkListenerJobEnd) event);
            } else if (event instanceof SparkListenerStageCompleted) {
                stageDone((SparkListenerStageCompleted) event);
            } else if (event instanceof SparkListenerApplicationEnd) {
                applicationEnded((SparkListenerApplicationEnd) event);
            } else {
                streamed(event);
            }
        } catch (Throwable error) {
            messages.countDropped();
        }
    }

    private void applicationEnded(SparkListenerApplicationEnd event) {
        JsonWriter out = begin("app_end", event.time());
        Object code = Reflection.callOrNull(event, "exitCode");                     // since 3.5
        if (code instanceof Integer && (Integer) code != 0) {
            out.field("error", "exit code " + code);
        }
        end(out);
    }

    private void started(SparkListenerSQLExecutionStart event) {
        JsonWriter out = begin("sql_start", event.time());
        out.field("id", event.executionId());
        out.optional("root", Reflection.callOrNull(event, "rootExecutionId"), 0);   // since 3.5
        out.key("description").string(event.description(), LONG_TEXT);
        out.optional("query_id", Reflection.callOrNull(event, "queryId"), LONG_TEXT);   // since 4.2
        out.key("properties").raw('{');
        for (Object each : Reflection.map(event.modifiedConfigs()).entrySet()) {
            Map.Entry property = (Map.Entry) each;
            out.key((String) property.getKey()).string((String) property.getValue(), LONG_TEXT);
        }
        out.raw('}');
        Object physical = event.sparkPlanInfo();
        Object name = Reflection.callOrNull(physical, "nodeName");
        List children = Reflection.each(Reflection.callOrNull(physical, "children"));
        if (String.valueOf(name).startsWith("WholeStageCodegen") && !children.isEmpty()) {
            name = Reflection.callOrNull(children.get(0), "nodeName");
        }
        out.optional("physical", name, LONG_TEXT);
        QueryExecution query = null;
        try {
            query = SQLExecution.getQueryExecution(event.executionId());
        } catch (Throwable ignored) {
            // the end has it
        }
        if (query != null) {
            remember(executions, event.executionId(), query);
            stream(out, query);
            // the session's current database, which qualifies names of tables
            Object state = Reflection.callOrNull(Reflection.callOrNull(query, "sparkSession"), "sessionState");
            Object catalog = Reflection.callOrNull(state, "catalog");
            out.optional("database", Reflection.callOrNull(catalog, "getCurrentDatabase"), LONG_TEXT);
            plan(out, query, event.executionId());
        }
        end(out);
    }

    private void ended(SparkListenerSQLExecutionEnd event) {
        JsonWriter out = begin("sql_end", event.time());
        out.field("id", event.executionId());
        out.optional("name", Reflection.callOrNull(event, "executionName"), LONG_TEXT);
        Object failure = Reflection.callOrNull(event, "executionFailure");
        if (failure instanceof Throwable) {
            failed(out, (Throwable) failure);
        } else {
            Object text = Reflection.callOrNull(event, "errorMessage");             // since 3.4
            failure = "".equals(text) ? null : text;
            out.optional("error", failure, LONG_TEXT);
        }
        out.key("jobs").list(Reflection.each(Reflection.callOrNull(event, "jobIds")));  // since 4.0
        QueryExecution query = (QueryExecution) Reflection.callOrNull(event, "qe");
        if (query == null) {
            query = (QueryExecution) query(event.executionId());
        }
        if (query != null) {
            remember(executions, event.executionId(), query);
            if (!nodes.containsKey(event.executionId())) {
                plan(out, query, event.executionId());
            }
            if (failure == null) {                          // a failed one may not even be planned
                int mark = out.mark();
                int known = out.cutCount();
                try {
                    out.key("lake");
                    Reflection.invoke(lakeWrite, event.executionId(), nodes(event.executionId()), out);
                } catch (Throwable error) {
                    out.back(mark);
                }
                mark = out.mark();
                try {
                    out.key("executed").raw('[');
                    Reflection.invoke(executed, query, out);
                    out.raw(']');
                } catch (Throwable error) {
                    out.back(mark);
                }
                out.optional("cut", out.cuts(known), LONG_TEXT);
            }
        }
        end(out);
    }

    /* The run of the streaming query and the number of the micro-batch, if the execution is one. */
    private static void stream(JsonWriter out, QueryExecution query) {
        if (query.getClass().getName().endsWith("IncrementalExecution")) {
            out.optional("stream_run", Reflection.callOrNull(query, "runId"), LONG_TEXT);
            out.optional("batch", Reflection.callOrNull(query, "currentBatchId"), 0);
        }
    }

    private void plan(JsonWriter out, QueryExecution query, long execution) {
        out.optional("sql", sql(query), MAX_SQL);
        int mark = out.mark();
        String problem = null;
        Object written = null;
        try {
            if (isShortOfMemory()) {
                problem = "less than " + memoryThreshold + " percent of the driver's heap is free";
            } else {
                out.key("plan");
                written = Reflection.invoke(writePlan, query.analyzed(), out);
                if (messages.isFullFor(out.mark())) {
                    problem = "too many messages wait for Python";
                }
            }
        } catch (Throwable error) {
            problem = text(error);
        }
        if (problem != null) {
            out.back(mark);
            out.key("plan_error").string(problem, LONG_TEXT);
        }
        remember(nodes, execution, written);
    }

    /*
     * The argument of `spark.sql`, which the parser records in the nodes that it creates. A command that the
     * analyzer has replaced no longer has it; its query, which may be an inner child, still has it. After a CREATE
     * TABLE without a query it is not available.
     */
    private static Object sql(QueryExecution query) {
        ArrayList todo = new ArrayList();
        todo.add(query.logical());
        for (int at = 0; at < todo.size() && at < 200; at++) {
            Object text = Reflection.callOrNull(Reflection.callOrNull(todo.get(at), "origin"), "sqlText");  // since 3.4
            if (text != null) {
                return text;
            }
            todo.addAll(Reflection.each(Reflection.callOrNull(todo.get(at), "children")));
            todo.addAll(Reflection.each(Reflection.callOrNull(todo.get(at), "innerChildren")));
        }
        return null;
    }

    private void jobStarted(SparkListenerJobStart event) {
        JsonWriter out = begin("job_start", event.time());
        out.field("id", (long) event.jobId());
        Properties properties = event.properties();
        String execution = properties == null ? null : properties.getProperty("spark.sql.execution.id");
        String root = properties == null ? null : properties.getProperty("spark.sql.execution.root.id");
        if (execution != null) {
            out.field("execution", Long.parseLong(execution));
            out.field("root", Long.parseLong(root == null ? execution : root));
        }
        out.key("stages").raw('[');
        for (Object each : Reflection.each(event.stageInfos())) {
            StageInfo stage = (StageInfo) each;
            out.comma().raw('{').field("id", (long) stage.stageId());
            out.key("name").string(stage.name(), 300);
            out.field("tasks", (long) stage.numTasks()).raw('}');
        }
        out.raw(']');
        out.key("properties").raw('{');
        for (Object each : properties == null ? Collections.EMPTY_SET : properties.stringPropertyNames()) {
            String name = (String) each;
            if (isWanted(name)) {
                out.key(name).string(properties.getProperty(name), LONG_TEXT);
            }
        }
        out.raw('}');
        rdds(out, event.jobId(), execution != null);
        if (execution == null) {
            rddJobs.add(event.jobId());
            end(out);
        } else if (announcesJobs) {
            end(out);
        } else {
            sendWithNext(out);
        }
    }

    /* Whether a local property of the thread describes the job; the others are settings, sent elsewhere. */
    private static boolean isWanted(String name) {
        return name.startsWith("spark.job") || name.startsWith("callSite")
                || name.startsWith("sql.streaming") || name.startsWith("streaming.sql")
                || name.startsWith("spark.openlineage") || name.equals("spark.rdd.scope")
                || name.startsWith("headwater.");
    }

    private void rdds(JsonWriter out, int job, boolean isSql) {
        int mark = out.mark();
        try {
            Object scheduler = Reflection.call(context, "dagScheduler");
            scala.collection.Map active = (scala.collection.Map) Reflection.call(scheduler, "jobIdToActiveJob");
            Object found = Reflection.option(active.get(job));
            if (found == null) {
                if (!isSql) {
                    out.field("rdd_error", "the job had ended before its RDDs could be read");
                }
                return;
            }
            remember(jobs, job, found);
            if (isSql && !includesRddsOfQueries) {
                return;
            }
            out.key("rdds");
            Reflection.invoke(chain, Reflection.call(Reflection.call(found, "finalStage"), "rdd"), out);
            if (!isSql) {
                mark = out.mark();
                out.key("outputs");
                Reflection.invoke(outputs, found, out);
            }
        } catch (Throwable error) {
            out.back(mark);
            out.key("rdd_error").string(text(error), LONG_TEXT);
        }
    }

    private void jobEnded(SparkListenerJobEnd event) throws Exception {
        JsonWriter out = begin("job_end", event.time());
        out.field("id", (long) event.jobId());
        Object result = event.jobResult();
        if (result.getClass().getName().endsWith("JobFailed")) {
            failed(out, (Throwable) Reflection.call(result, "exception"));
        }
        if (rddJobs.remove(event.jobId())) {
            end(out);
        } else {
            sendWithNext(out);
        }
    }

    private void stageDone(SparkListenerStageCompleted event) throws Exception {
        StageInfo stage = event.stageInfo();
        JsonWriter out = begin("stage_done", 0L);
        out.field("id", (long) stage.stageId());
        out.field("attempt", (long) stage.attemptNumber());
        out.key("name").string(stage.name(), 300);
        out.field("tasks", (long) stage.numTasks());
        out.optional("error", Reflection.option(stage.failureReason()), LONG_TEXT);
        Object metrics = stage.taskMetrics();
        if (metrics != null) {
            Object input = Reflection.call(metrics, "inputMetrics");
            Object output = Reflection.call(metrics, "outputMetrics");
            out.key("metrics").raw('{');
            out.optional("records_read", Reflection.call(input, "recordsRead"), 0);
            out.optional("bytes_read", Reflection.call(input, "bytesRead"), 0);
            out.optional("records_written", Reflection.call(output, "recordsWritten"), 0);
            out.optional("bytes_written", Reflection.call(output, "bytesWritten"), 0);
            out.optional("run_millis", Reflection.call(metrics, "executorRunTime"), 0);
            out.optional("cpu_nanos", Reflection.call(metrics, "executorCpuTime"), 0);
            out.raw('}');
        }
        sendWithNext(out);
    }

    private void streamed(Object event) throws Exception {
        String name = event.getClass().getName();
        long now = System.currentTimeMillis();
        if (name.endsWith("QueryStartedEvent")) {
            JsonWriter out = begin("stream_start", now);
            out.field("id", Reflection.call(event, "id").toString());
            out.field("run", Reflection.call(event, "runId").toString());
            out.field("name", (String) Reflection.call(event, "name"));
            end(out);
        } else if (name.endsWith("QueryProgressEvent")) {
            Object progress = Reflection.call(event, "progress");
            JsonWriter out = begin("stream_batch", now);
            out.field("run", Reflection.call(progress, "runId").toString());
            out.optional("batch", Reflection.call(progress, "batchId"), 0);
            String json = (String) Reflection.call(progress, "json");
            out.key("progress").raw(json.length() > 1000000 ? "{}" : json);
            end(out);
        } else if (name.endsWith("QueryTerminatedEvent")) {
            JsonWriter out = begin("stream_end", now);
            out.field("id", Reflection.call(event, "id").toString());
            out.field("run", Reflection.call(event, "runId").toString());
            out.optional("error", Reflection.callOrNull(event, "exception"), LONG_TEXT);
            end(out);
        }
    }

    /* ------------------------------------------------------------------ small parts */

    private static JsonWriter begin(String type, long time) {
        JsonWriter out = new JsonWriter(MAX_PLAN);
        out.raw('{').field("type", type);
        if (time > 0) {
            out.field("time", time);
        }
        return out;
    }

    private void end(JsonWriter out) {
        messages.offer(out.raw('}').toString(), true);
    }

    /* Queues a message that neither starts nor ends a run: it is polled with the next urgent one. */
    private void sendWithNext(JsonWriter out) {
        messages.offer(out.raw('}').toString(), false);
    }

    private static void failed(JsonWriter out, Throwable error) {
        out.key("error").string(text(error), LONG_TEXT);
        out.field("error_class", error.getClass().getName());
        java.io.StringWriter stack = new java.io.StringWriter();
        error.printStackTrace(new java.io.PrintWriter(stack));
        out.key("stack").string(stack.toString(), STACK_TEXT);
    }

    private static String text(Throwable error) {
        if (error == null) {
            return "unknown";
        }
        String message = error.getMessage();
        return message == null || message.length() == 0 ? error.getClass().getName() : message;
    }

    private static void quietly(Method method, Object... arguments) {
        try {
            Reflection.invoke(method, arguments);
        } catch (Throwable error) {
            // the feature of the unit is missing
        }
    }

    private static void remember(Map map, Object key, Object value) {
        map.put(key, new SoftReference(value));
    }

    private static Object recall(Map map, Object key) {
        SoftReference found = (SoftReference) map.get(key);
        return found == null ? null : found.get();
    }
}

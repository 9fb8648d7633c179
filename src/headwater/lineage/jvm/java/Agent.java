package headwater.lineage;

import java.lang.ref.SoftReference;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
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
    private static final int LONG_TEXT = 4000;
    private static final int STACK_TEXT = 10000;

    private final SparkContext context;
    private final MessageQueue messages = new MessageQueue();
    private volatile boolean includesRddsOfQueries = false;
    private volatile int memoryThreshold = 0;           // percent of the heap that must be free
    private final Map executions = Collections.synchronizedMap(new Kept());
    private final Map jobs = Collections.synchronizedMap(new Kept());
    private final Set rddJobs = new HashSet();          // running jobs that belong to no query
    private final Map planSent = Collections.synchronizedMap(new Kept());   // executions whose plan was sent

    private final Method walk = unit("PlanWriter", "plan", 2);
    private final Method nodes = unit("PlanWriter", "nodes", 1);
    private final Method executed = unit("ScanMetrics", "executed", 2);
    private final Method chain = unit("RddChain", "chain", 2);
    private final Method flat = unit("RddChain", "flat", 1);
    private final Method outputs = unit("RddChain", "outputs", 2);

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
    }

    /* Leaves the listener bus; queued messages can still be polled. */
    public void detach(long millis) {
        stopListening(millis);
        messages.close();
        executions.clear();
        jobs.clear();
    }

    /* Waits until all of Spark's events so far are handled; whether they are. */
    public boolean waitUntilHandled(long millis) {
        return super.waitUntilHandled(millis);
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
        String[] each = released.split(",");
        for (int at = 0; at < each.length; at++) {
            release(Long.parseLong(each[at]));
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

    public void setMemoryThreshold(int percent) {
        memoryThreshold = percent;
    }

    private boolean isShortOfMemory() {
        Runtime runtime = Runtime.getRuntime();
        long free = runtime.maxMemory() - runtime.totalMemory() + runtime.freeMemory();
        return free * 100L < runtime.maxMemory() * (long) memoryThreshold;
    }

    /* The QueryExecution; null when it is no longer kept. */
    public Object query(long execution) {
        return recall(executions, Long.valueOf(execution));
    }

    /* A node of the analyzed plan by its number in the plan's document. */
    public Object node(long execution, int node) {
        try {
            QueryExecution found = (QueryExecution) query(execution);
            if (found == null || nodes == null) {
                return null;
            }
            Object all = nodes.invoke(null, new Object[] {found.analyzed()});
            return ((java.util.List) all).get(node);
        } catch (Throwable error) {
            return null;
        }
    }

    /* The ActiveJob; null when it is no longer kept, or had ended before it was seen. */
    public Object job(int job) {
        return recall(jobs, Integer.valueOf(job));
    }

    /* An RDD of a job by its id. */
    public Object rdd(int job, int rdd) {
        try {
            Object found = job(job);
            if (found == null || flat == null) {
                return null;
            }
            Object last = Reflection.call(Reflection.call(found, "finalStage"), "rdd");
            Iterator all = ((java.util.List) flat.invoke(null, new Object[] {last})).iterator();
            while (all.hasNext()) {
                Object one = all.next();
                if (((Integer) Reflection.call(one, "id")).intValue() == rdd) {
                    return one;
                }
            }
        } catch (Throwable error) {
            // no longer there
        }
        return null;
    }

    public void release(long execution) {
        executions.remove(Long.valueOf(execution));
        planSent.remove(Long.valueOf(execution));
    }

    /*
     * py4j leaves Nagle's algorithm on, so that texts over 8 kB wait 44 ms for a delayed acknowledgement; every
     * connection, hence every Python thread, needs this once.
     */
    public int noDelay(Object server) {
        int done = 0;
        try {
            Iterator all = ((Iterable) Reflection.fieldOrNull(server, "connections")).iterator();
            while (all.hasNext()) {
                try {
                    ((java.net.Socket) Reflection.fieldOrNull(all.next(), "socket")).setTcpNoDelay(true);
                    done++;
                } catch (Throwable ignored) {
                    // closed, or of another kind
                }
            }
        } catch (Throwable ignored) {
            // the connection is slower
        }
        return done;
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
        try {
            Object code = Reflection.option(Reflection.call(event, "exitCode"));
            if (code instanceof Integer && ((Integer) code).intValue() != 0) {
                out.field("error", "exit code " + code);
            }
        } catch (Throwable ignored) {
            // older than 3.5
        }
        end(out);
    }

    private void started(SparkListenerSQLExecutionStart event) {
        JsonWriter out = begin("sql_start", event.time());
        out.field("id", event.executionId());
        try {
            Object root = Reflection.option(Reflection.call(event, "rootExecutionId"));
            if (root instanceof Long) {
                out.field("root", ((Long) root).longValue());
            }
        } catch (Throwable ignored) {
            // older than 3.5
        }
        out.key("description").string(event.description(), LONG_TEXT);
        try {
            Object id = Reflection.option(Reflection.call(event, "queryId"));
            if (id != null) {
                out.field("query_id", id.toString());
            }
        } catch (Throwable ignored) {
            // older than 4.2
        }
        try {
            out.key("properties").raw('{');
            scala.collection.Iterator all = event.modifiedConfigs().iterator();
            while (all.hasNext()) {
                scala.Tuple2 pair = (scala.Tuple2) all.next();
                out.key((String) pair._1()).string((String) pair._2(), LONG_TEXT);
            }
            out.raw('}');
        } catch (Throwable error) {
            messages.countDropped();
            return;
        }
        try {
            String name = event.sparkPlanInfo().nodeName();
            if (name.startsWith("WholeStageCodegen") && event.sparkPlanInfo().children().nonEmpty()) {
                name = ((org.apache.spark.sql.execution.SparkPlanInfo)
                        event.sparkPlanInfo().children().apply(0)).nodeName();
            }
            out.field("physical", name);
        } catch (Throwable ignored) {
            // the job is named by its logical plan
        }
        QueryExecution query = null;
        try {
            query = SQLExecution.getQueryExecution(event.executionId());
        } catch (Throwable ignored) {
            // the end has it
        }
        if (query != null) {
            remember(executions, Long.valueOf(event.executionId()), query);
            stream(out, query);
            database(out, query);
            plan(out, query, event.executionId());
        }
        end(out);
    }

    /* The session's current database, which qualifies names of tables. */
    private void database(JsonWriter out, QueryExecution query) {
        int mark = out.mark();
        try {
            Object state = Reflection.call(Reflection.call(query, "sparkSession"), "sessionState");
            out.field("database", String.valueOf(Reflection.call(Reflection.call(state, "catalog"), "getCurrentDatabase")));
        } catch (Throwable error) {
            out.back(mark);
        }
    }

    private void ended(SparkListenerSQLExecutionEnd event) {
        Long id = Long.valueOf(event.executionId());
        JsonWriter out = begin("sql_end", event.time());
        out.field("id", event.executionId());
        Object failure = null;
        try {
            Object name = Reflection.option(Reflection.call(event, "executionName"));
            if (name != null) {
                out.field("name", (String) name);
            }
        } catch (Throwable ignored) {
            // missing in this release
        }
        try {
            failure = Reflection.option(Reflection.call(event, "executionFailure"));
        } catch (Throwable ignored) {
            // missing in this release
        }
        if (failure instanceof Throwable) {
            failed(out, (Throwable) failure);
        } else {
            try {
                Object text = Reflection.option(Reflection.call(event, "errorMessage"));
                if (text != null && ((String) text).length() > 0) {
                    failure = text;
                    out.key("error").string((String) text, LONG_TEXT);
                }
            } catch (Throwable ignored) {
                // older than 3.4
            }
        }
        try {
            scala.collection.Iterator all = ((scala.collection.Iterable) Reflection.call(event, "jobIds")).iterator();
            out.key("jobs").raw('[');
            while (all.hasNext()) {
                out.comma().number(((Number) all.next()).longValue());
            }
            out.raw(']');
        } catch (Throwable ignored) {
            // older than 4.0
        }
        QueryExecution query = null;
        try {
            query = (QueryExecution) Reflection.call(event, "qe");
        } catch (Throwable ignored) {
            // no plan then
        }
        if (query == null) {
            query = (QueryExecution) query(event.executionId());
        }
        if (query != null) {
            remember(executions, id, query);
            if (!planSent.containsKey(id)) {
                plan(out, query, event.executionId());
            }
            if (failure == null && executed != null) {   // a failed one may not even be planned
                int mark = out.mark();
                try {
                    out.key("executed").raw('[');
                    executed.invoke(null, new Object[] {query, out});
                    out.raw(']');
                } catch (Throwable error) {
                    out.back(mark);
                }
            }
        }
        end(out);
    }

    /* The run of the streaming query and the number of the micro-batch, if the execution is one. */
    private void stream(JsonWriter out, QueryExecution query) {
        if (query.getClass().getName().endsWith("IncrementalExecution")) {
            int mark = out.mark();
            try {
                out.field("stream_run", Reflection.call(query, "runId").toString());
                out.field("batch", ((Long) Reflection.call(query, "currentBatchId")).longValue());
            } catch (Throwable error) {
                out.back(mark);
            }
        }
    }

    private void plan(JsonWriter out, QueryExecution query, long execution) {
        int mark = out.mark();
        String problem = null;
        try {
            String sql = sql(query);
            if (sql != null) {
                out.key("sql").string(sql, 100000);
            }
            mark = out.mark();
            if (walk == null) {
                problem = "PlanWriter is missing";
            } else if (isShortOfMemory()) {
                problem = "less than " + memoryThreshold + " percent of the driver's heap is free";
            } else {
                out.key("plan");
                walk.invoke(null, new Object[] {query.analyzed(), out});
                if (messages.isFullFor(out.length())) {
                    problem = "too many messages wait for Python";
                }
            }
        } catch (java.lang.reflect.InvocationTargetException error) {
            problem = text(error.getCause());
        } catch (Throwable error) {
            problem = text(error);
        }
        if (problem != null) {
            out.back(mark);
            out.key("plan_error").string(problem, LONG_TEXT);
        }
        remember(planSent, Long.valueOf(execution), Boolean.TRUE);
    }

    /*
     * The text that was given to `spark.sql`, which the parser records in the nodes that it creates. A command that
     * the analyzer has replaced has lost it, but its query has it, which may be an inner child. CREATE TABLE
     * without a query keeps it nowhere.
     */
    private static String sql(QueryExecution query) {
        ArrayList todo = new ArrayList();
        todo.add(query.logical());
        for (int at = 0; at < todo.size() && at < 200; at++) {
            Object node = todo.get(at);
            Object text = Reflection.option(Reflection.callOrNull(Reflection.callOrNull(node, "origin"), "sqlText"));   // since 3.4
            if (text instanceof String) {
                return (String) text;
            }
            push(todo, Reflection.callOrNull(node, "children"));
            push(todo, Reflection.callOrNull(node, "innerChildren"));
        }
        return null;
    }

    private static void push(ArrayList todo, Object nodes) {
        if (nodes instanceof scala.collection.Iterable) {
            scala.collection.Iterator all = ((scala.collection.Iterable) nodes).iterator();
            while (all.hasNext()) {
                todo.add(all.next());
            }
        }
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
        scala.collection.Iterator all = event.stageInfos().iterator();
        while (all.hasNext()) {
            StageInfo stage = (StageInfo) all.next();
            out.comma().raw('{').field("id", (long) stage.stageId());
            out.key("name").string(stage.name(), 300);
            out.field("tasks", (long) stage.numTasks()).raw('}');
        }
        out.raw(']');
        out.key("properties").raw('{');
        if (properties != null) {
            Enumeration names = properties.propertyNames();
            while (names.hasMoreElements()) {
                String name = String.valueOf(names.nextElement());
                if (isWanted(name)) {
                    out.key(name).string(properties.getProperty(name), LONG_TEXT);
                }
            }
        }
        out.raw('}');
        rdds(out, event.jobId(), execution != null);
        if (execution == null) {
            rddJobs.add(Integer.valueOf(event.jobId()));
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
            scala.Option found = ((scala.collection.Map) Reflection.call(Reflection.call(context, "dagScheduler"), "jobIdToActiveJob"))
                    .get(Integer.valueOf(job));
            if (found.isEmpty()) {
                if (!isSql) {
                    out.field("rdd_error", "the job had ended before its RDDs could be read");
                }
                return;
            }
            Object active = found.get();
            remember(jobs, Integer.valueOf(job), active);
            if (isSql && !includesRddsOfQueries || chain == null) {
                return;
            }
            Object stage = Reflection.call(active, "finalStage");
            out.key("rdds");
            chain.invoke(null, new Object[] {Reflection.call(stage, "rdd"), out});
            if (!isSql && outputs != null) {
                mark = out.mark();
                out.key("outputs");
                outputs.invoke(null, new Object[] {active, out});
            }
        } catch (java.lang.reflect.InvocationTargetException error) {
            out.back(mark);
            out.key("rdd_error").string(text(error.getCause()), LONG_TEXT);
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
        if (rddJobs.remove(Integer.valueOf(event.jobId()))) {
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
        Object reason = Reflection.option(stage.failureReason());
        if (reason != null) {
            out.key("error").string((String) reason, LONG_TEXT);
        }
        Object metrics = stage.taskMetrics();
        if (metrics != null) {
            Object input = Reflection.call(metrics, "inputMetrics");
            Object output = Reflection.call(metrics, "outputMetrics");
            out.key("metrics").raw('{');
            out.field("records_read", ((Long) Reflection.call(input, "recordsRead")).longValue());
            out.field("bytes_read", ((Long) Reflection.call(input, "bytesRead")).longValue());
            out.field("records_written", ((Long) Reflection.call(output, "recordsWritten")).longValue());
            out.field("bytes_written", ((Long) Reflection.call(output, "bytesWritten")).longValue());
            out.field("run_millis", ((Long) Reflection.call(metrics, "executorRunTime")).longValue());
            out.field("cpu_nanos", ((Long) Reflection.call(metrics, "executorCpuTime")).longValue());
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
            out.field("batch", ((Long) Reflection.call(progress, "batchId")).longValue());
            String json = (String) Reflection.call(progress, "json");
            out.key("progress").raw(json.length() > 1000000 ? "{}" : json);
            end(out);
        } else if (name.endsWith("QueryTerminatedEvent")) {
            JsonWriter out = begin("stream_end", now);
            out.field("id", Reflection.call(event, "id").toString());
            out.field("run", Reflection.call(event, "runId").toString());
            Object error = Reflection.option(Reflection.call(event, "exception"));
            if (error != null) {
                out.key("error").string((String) error, LONG_TEXT);
            }
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
        int mark = out.mark();
        try {
            java.io.StringWriter stack = new java.io.StringWriter();
            error.printStackTrace(new java.io.PrintWriter(stack));
            out.key("stack").string(stack.toString(), STACK_TEXT);
        } catch (Throwable ignored) {
            out.back(mark);
        }
    }

    private static String text(Throwable error) {
        if (error == null) {
            return "unknown";
        }
        String message = error.getMessage();
        return message == null || message.length() == 0 ? error.getClass().getName() : message;
    }

    private static void remember(Map map, Object key, Object value) {
        map.put(key, new SoftReference(value));
    }

    private static Object recall(Map map, Object key) {
        SoftReference found = (SoftReference) map.get(key);
        return found == null ? null : found.get();
    }

    /* A method of another unit, by name; null if this Spark does not compile that unit. */
    private static Method unit(String unit, String method, int arguments) {
        try {
            Class found = Class.forName("headwater.lineage." + unit, true, Agent.class.getClassLoader());
            Method[] all = found.getMethods();
            for (int at = 0; at < all.length; at++) {
                if (all[at].getName().equals(method) && all[at].getParameterTypes().length == arguments) {
                    return all[at];
                }
            }
        } catch (Throwable missing) {
            // then its feature is missing too
        }
        return null;
    }
}

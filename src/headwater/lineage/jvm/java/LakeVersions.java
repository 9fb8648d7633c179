package headwater.lineage;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.WeakHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

/*
 * The versions of Iceberg and Delta tables that a query read and wrote. Iceberg reports each scan and each commit to
 * listeners, on the thread of the query, so that they belong to its execution; Delta has the version that it read in
 * the plan, and the version after the query in memory. Nothing here calls a file system or waits.
 */
public class LakeVersions implements InvocationHandler {
    private static final int MOST_EXECUTIONS = 1000;
    private static final int MOST_EVENTS = 200;             // of one execution
    private static final int MOST_CHARS = 100000;
    private static final int MOST_LOGS = 100;               // one that was just written is among the latest
    private static final String DELTA = "org.apache.spark.sql.delta.";
    private static final String EXECUTION = "spark.sql.execution.id";
    private static final String EVENTS = "org.apache.iceberg.events.";
    private static final Set watched = Collections.newSetFromMap(new WeakHashMap());
    private static final Map reported = Collections.synchronizedMap(new Kept());    // texts, by execution
    private static volatile SparkContext application;

    public static final class Kept extends LinkedHashMap {
        protected boolean removeEldestEntry(Map.Entry eldest) {
            return size() > MOST_EXECUTIONS;
        }
    }

    public static void begin(SparkContext context) {
        application = context;
        watch(Thread.currentThread().getContextClassLoader());
    }

    public static void end() {
        application = null;
        reported.clear();
    }

    /* Listens to the Iceberg of a class loader, once; nothing if it has none. */
    public static void watch(ClassLoader loader) {
        try {
            Class listeners = Class.forName(EVENTS + "Listeners", true, loader);
            synchronized (watched) {
                if (!watched.add(listeners)) {
                    return;
                }
            }
            Class type = Class.forName(EVENTS + "Listener", true, loader);
            Object listener = Proxy.newProxyInstance(type.getClassLoader(), new Class[] {type}, new LakeVersions());
            Method register = listeners.getMethod("register", type, Class.class);
            register.invoke(null, listener, Class.forName(EVENTS + "CreateSnapshotEvent", true, loader));
            register.invoke(null, listener, Class.forName(EVENTS + "ScanEvent", true, loader));
        } catch (Throwable none) {
            // no Iceberg, or one without these events
        }
    }

    public Object invoke(Object proxy, Method method, Object[] given) {
        if (method.getName().equals("equals")) {
            return proxy == given[0] ? Boolean.TRUE : Boolean.FALSE;
        }
        if (method.getName().equals("hashCode")) {
            return System.identityHashCode(proxy);
        }
        if (method.getName().equals("toString")) {
            return "LakeVersions";
        }
        try {
            if (given != null && given.length == 1) {
                record(given[0]);
            }
        } catch (Throwable error) {
            // the query must not fail
        }
        return null;
    }

    private static void record(Object event) throws Exception {
        SparkContext context = application;
        String execution = context == null ? null : context.getLocalProperty(EXECUTION);
        if (execution == null) {
            return;
        }
        boolean isCommit = event.getClass().getSimpleName().equals("CreateSnapshotEvent");
        JsonWriter out = new JsonWriter(MOST_CHARS);
        out.raw('{').field("kind", isCommit ? "commit" : "scan");
        out.field("table", String.valueOf(Reflection.call(event, "tableName")));
        out.field("version", ((Number) Reflection.call(event, "snapshotId")).longValue());
        if (isCommit) {
            out.field("operation", String.valueOf(Reflection.call(event, "operation")));
            out.field("sequence", ((Number) Reflection.call(event, "sequenceNumber")).longValue());
            out.key("summary").raw('{');
            for (Object each : Reflection.map(Reflection.call(event, "summary")).entrySet()) {
                Map.Entry entry = (Map.Entry) each;
                out.key(String.valueOf(entry.getKey())).string(String.valueOf(entry.getValue()), 200);
            }
            out.raw('}');
        } else {
            out.key("filter").string(SecretMask.url(String.valueOf(Reflection.call(event, "filter"))), 4000);
        }
        Object key = Long.valueOf(execution);
        synchronized (reported) {
            List known = (List) reported.get(key);
            if (known == null) {
                known = new ArrayList();
                reported.put(key, known);
            }
            if (known.size() == MOST_EVENTS) {
                known.remove(1);                        // the last ones count
                known.set(0, null);
            }
            known.add(out.raw('}').toString());
        }
    }

    /* A list of what an execution has read and written: {kind, table or path, version, ...}; `nodes` are its plan's. */
    public static void write(long execution, List nodes, JsonWriter out) {
        out.raw('[');
        List known = (List) reported.remove(Long.valueOf(execution));
        for (Object each : known == null ? new ArrayList() : known) {
            if (each == null) {
                out.cut("the earlier reports of Iceberg");
            } else {
                out.comma().raw((String) each);
            }
        }
        for (Object node : nodes == null ? new ArrayList() : nodes) {
            int mark = out.mark();
            try {
                delta(node, out);
                deltaLogs(node, out);
            } catch (JsonWriter.Full full) {
                throw full;
            } catch (Throwable error) {
                out.back(mark);
            }
        }
        out.raw(']');
    }

    /* The version of a Delta table after a command, and the one that the command had read. */
    private static void delta(Object node, JsonWriter out) throws Throwable {
        Object relation = Reflection.fieldOrNull(node, "table");
        Object table = relation instanceof LogicalPlan ? Reflection.callOrNull(relation, "table") : null;
        Object index = Reflection.fieldOrNull(node, "targetFileIndex");
        if (index == null) {
            index = Reflection.fieldOrNull(node, "tahoeFileIndex");
        }
        Object log = null;
        Object before = null;
        if (table != null && table.getClass().getName().startsWith(DELTA)) {
            log = Reflection.callOrNull(table, "deltaLog");
            before = Reflection.callOrNull(Reflection.callOrNull(table, "initialSnapshot"), "version");
        } else if (index != null) {
            log = Reflection.callOrNull(index, "deltaLog");
            before = versionRead(index);
        } else if (node.getClass().getSimpleName().equals("SaveIntoDataSourceCommand")) {
            log = saved(node);
        } else if (node.getClass().getName().startsWith(DELTA)) {
            log = Reflection.callOrNull(node, "deltaLog");
        }
        Object snapshot = Reflection.callOrNull(log, "unsafeVolatileSnapshot");
        Object version = Reflection.callOrNull(snapshot, "version");
        if (version instanceof Number) {
            out.comma().raw('{').field("kind", "delta");
            out.field("path", SecretMask.url(String.valueOf(Reflection.call(log, "dataPath"))));
            out.field("version", ((Number) version).longValue());
            out.optional("before", before, 0).optional("time", Reflection.callOrNull(snapshot, "timestamp"), 0);
            out.raw('}');
        }
    }

    /*
     * The current versions of the Delta tables that the driver has in memory, the latest first, where a plan does not
     * name the log that it wrote: CREATE TABLE AS SELECT and micro-batches.
     */
    private static void deltaLogs(Object node, JsonWriter out) throws Throwable {
        Object owner = Reflection.fieldOrNull(node, "sink");
        if (owner == null && node.getClass().getSimpleName().endsWith("TableAsSelect")) {
            owner = Reflection.callOrNull(Reflection.fieldOrNull(node, "name"), "catalog");
        }
        if (owner == null || !owner.getClass().getName().startsWith(DELTA)) {
            return;
        }
        ClassLoader loader = owner.getClass().getClassLoader();
        Class type = Class.forName(DELTA + "DeltaLog$", true, loader);
        Field field = type.getDeclaredField("deltaLogCache");
        field.setAccessible(true);
        Object cache = Reflection.option(field.get(type.getField("MODULE$").get(null)));
        if (cache == null) {
            return;
        }
        Method entries = Class.forName("com.google.common.cache.Cache", true, loader).getMethod("asMap");
        TreeMap latest = new TreeMap(Collections.reverseOrder());
        for (Object log : ((Map) entries.invoke(cache)).values()) {
            Object snapshot = Reflection.callOrNull(log, "unsafeVolatileSnapshot");
            Object time = Reflection.callOrNull(snapshot, "timestamp");
            Object version = Reflection.callOrNull(snapshot, "version");
            if (time instanceof Long && version instanceof Long && (Long) version >= 0) {
                latest.put(time + " " + System.identityHashCode(log), new Object[] {log, snapshot, time});
            }
        }
        int left = MOST_LOGS;
        for (Object each : latest.values()) {
            Object[] found = (Object[]) each;
            if (left-- == 0) {
                return;
            }
            out.comma().raw('{').field("kind", "delta-log");
            out.field("path", SecretMask.url(String.valueOf(Reflection.call(found[0], "dataPath"))));
            out.field("version", ((Number) Reflection.call(found[1], "version")).longValue());
            out.optional("time", found[2], 0).raw('}');
        }
    }

    /* The version of the files of a Delta table that a query reads; a later one may be current already. */
    public static Object versionRead(Object index) {
        Object snapshot = Reflection.callOrNull(index, "snapshotAtAnalysis");
        return Reflection.callOrNull(snapshot == null ? index : snapshot, "version");
    }

    /* The log of a folder that `save` has written, which Delta keeps. */
    private static Object saved(Object command) throws Throwable {
        Object source = Reflection.callOrNull(command, "dataSource");
        if (source == null || !source.getClass().getName().startsWith(DELTA)) {
            return null;
        }
        Object path = Reflection.map(Reflection.callOrNull(command, "options")).get("path");
        Class logs = Class.forName("org.apache.spark.sql.delta.DeltaLog", true, source.getClass().getClassLoader());
        Object session = Reflection.option(org.apache.spark.sql.SparkSession.getDefaultSession());
        for (Method method : logs.getMethods()) {
            Class[] types = method.getParameterTypes();
            if (path != null && session != null && method.getName().equals("forTable") && types.length == 2
                    && types[0].isInstance(session) && types[1] == String.class) {
                return method.invoke(null, session, path);
            }
        }
        return null;
    }
}

package headwater.lineage;

import java.net.URI;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.hadoop.fs.Path;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/*
 * What a leaf, a command or a relation of a plan holds besides its children: the parameters of its case class, by
 * their names, as JSON. Objects that a dataset is made of (a table, files, a connection) become an object with a
 * key "@" for the kind. Nothing here knows what a dataset is, calls a file system or starts a job.
 */
public class NodeFields {
    private static final int MOST_TEXT = 8000;
    private static final int MOST_ITEMS = 1000;
    private static final int MOST_DEPTH = 5;
    private static final Object NO_SCHEMA = new Object();
    private static final String[] QUERIES = {"query", "source", "target"}; // PlanWriter writes these plans
    private static final java.lang.reflect.Method CHAIN = chain(); // RddChain.chain; that unit may be missing

    private static java.lang.reflect.Method chain() {
        try {
            return Class.forName("headwater.lineage.RddChain", true, NodeFields.class.getClassLoader())
                .getMethod("chain", new Class[] {Object.class, JsonWriter.class});
        } catch (Throwable absent) {
            return null;
        }
    }

    /* The value of a node's key "f". */
    public static void node(LogicalPlan node, JsonWriter out) {
        IdentityHashMap skipped = new IdentityHashMap();
        remember(node.children(), skipped);
        remember(Reflection.callOrNull(node, "innerChildren"), skipped);
        for (int i = 0; i < QUERIES.length; i++) {
            Object query = Reflection.callOrNull(node, QUERIES[i]);
            if (query instanceof LogicalPlan) {
                skipped.put(query, query);
            }
        }
        String kind = node.getClass().getSimpleName();
        if (kind.equals("LogicalRelation") || kind.equals("HiveTableRelation") || kind.equals("View")) {
            skipped.put(NO_SCHEMA, NO_SCHEMA); // PlanWriter has written the columns of a leaf
        }
        product(node, skipped, out, 0);
    }

    private static void remember(Object kids, IdentityHashMap skipped) {
        if (kids instanceof scala.collection.Iterable) {
            scala.collection.Iterator all = ((scala.collection.Iterable) kids).iterator();
            while (all.hasNext()) {
                Object kid = all.next();
                // a resolved name is as small as a field, and the command is of no use without it
                if (!kid.getClass().getSimpleName().startsWith("Resolved")) {
                    skipped.put(kid, kid);
                }
            }
        }
    }

    private static void product(Object holder, IdentityHashMap skipped, JsonWriter out, int depth) {
        out.raw("{");
        scala.Product product = (scala.Product) holder;
        for (int i = 0; i < product.productArity(); i++) {
            Object each = null;
            try {
                each = product.productElement(i);
            } catch (Throwable error) {
                continue;
            }
            if (each == null || skipped.containsKey(each)) {
                continue;
            }
            put(name(product, i), each, skipped, out, depth);
        }
        out.raw("}");
    }

    /* A key and its value, or nothing if the value is empty or cannot be read. */
    private static void put(String name, Object each, IdentityHashMap skipped, JsonWriter out, int depth) {
        int mark = out.mark();
        try {
            out.key(name);
            int start = out.mark();
            value(name, each, skipped, out, depth);
            if (out.mark() == start) {
                out.back(mark);
            }
        } catch (JsonWriter.Full full) {
            throw full;
        } catch (Throwable error) {
            out.back(mark);
        }
    }

    private static String name(scala.Product product, int at) {
        try {
            return String.valueOf(product.getClass()
                .getMethod("productElementName", new Class[] {Integer.TYPE})
                .invoke(product, new Object[] {Integer.valueOf(at)}));
        } catch (Throwable error) { // Scala 2.12: the parameters are the first final fields; lazy ones may precede
            java.lang.reflect.Field[] fields = product.getClass().getDeclaredFields();
            int seen = 0;
            for (int i = 0; i < fields.length; i++) {
                int modifiers = fields[i].getModifiers();
                if (java.lang.reflect.Modifier.isStatic(modifiers)
                        || !java.lang.reflect.Modifier.isFinal(modifiers)) {
                    continue;
                }
                if (seen++ == at) {
                    return fields[i].getName();
                }
            }
            return "_" + at;
        }
    }

    private static void value(String name, Object each, IdentityHashMap skipped, JsonWriter out, int depth)
            throws Throwable {
        if (each == null || depth > MOST_DEPTH) {
            return;
        }
        if (each instanceof scala.Option) {
            Object held = Reflection.option(each);
            if (held != null && !skipped.containsKey(held)) {
                value(name, held, skipped, out, depth);
            }
        } else if (each instanceof String) {
            out.string(SecretMask.option(name, (String) each), MOST_TEXT);
        } else if (each instanceof Boolean) {
            out.bool(((Boolean) each).booleanValue());
        } else if (each instanceof Integer || each instanceof Long) {
            out.number(((Number) each).longValue());
        } else if (each instanceof Enum || each instanceof Path || each instanceof URI) {
            out.string(SecretMask.url(each.toString()));
        } else if (each instanceof CatalogTable) {
            table((CatalogTable) each, !skipped.containsKey(NO_SCHEMA), out, depth);
        } else if (each instanceof TableIdentifier) {
            identifier((TableIdentifier) each, out);
        } else if (each instanceof Identifier) {
            named((Identifier) each, out);
        } else if (each instanceof Table) {
            v2(((Table) each), skipped, out, depth);
        } else if (each instanceof CatalogPlugin) {
            out.raw("{").field("@", "catalog").field("cls", each.getClass().getName());
            out.field("name", ((CatalogPlugin) each).name()).raw("}");
        } else if (each instanceof HadoopFsRelation) {
            files((HadoopFsRelation) each, out, depth);
        } else if (each instanceof BaseRelation) {
            relation((BaseRelation) each, out, depth);
        } else if (each instanceof CaseInsensitiveStringMap) {
            map(((CaseInsensitiveStringMap) each).asCaseSensitiveMap(), out, depth);
        } else if (each instanceof Map) {
            map((Map) each, out, depth);
        } else if (each instanceof scala.collection.Map) {
            map((scala.collection.Map) each, out, depth);
        } else if (each instanceof DataType) {
            out.raw(((DataType) each).json());
        } else if (each instanceof RDD) {
            if (CHAIN != null) {
                CHAIN.invoke(null, new Object[] {each, out});
            }
        } else if (each instanceof LogicalPlan) {
            plan((LogicalPlan) each, out, depth);
        } else if (each instanceof Expression) {
            return; // PlanWriter writes expressions
        } else if (each instanceof Transform) {
            out.string(each.toString(), 200);
        } else if (each instanceof scala.collection.Seq) {
            items(name, ((scala.collection.Iterable) each).iterator(), skipped, out, depth);
        } else if (each instanceof Object[]) {
            items(name, scala.Predef$.MODULE$.genericWrapArray(each).iterator(), skipped, out, depth);
        } else {
            other(name, each, skipped, out, depth);
        }
    }

    /* An object with its class: formats, providers, sources, sinks, specs, changes. */
    private static void other(String name, Object each, IdentityHashMap skipped, JsonWriter out, int depth)
            throws Throwable {
        String full = each.getClass().getName();
        String simple = full.substring(full.lastIndexOf('.') + 1);
        if (simple.endsWith("SaveMode") || simple.startsWith("OutputMode") || simple.indexOf("OutputMode") >= 0) {
            out.string(each.toString());
            return;
        }
        if (simple.startsWith("JDBCOptions") || simple.startsWith("JdbcOptions")) {
            jdbc(each, out);
            return;
        }
        if (simple.equals("SparkSession") || simple.equals("Metadata") || simple.endsWith("FileIndex")) {
            return;
        }
        out.raw("{").field("@", "object").field("cls", full);
        Object shortName = null;
        if (each instanceof DataSourceRegister) {
            shortName = Reflection.callOrNull(each, "shortName");
        }
        if (shortName instanceof String) {
            out.field("name", (String) shortName);
        }
        if (each instanceof scala.Product && ((scala.Product) each).productArity() > 0) {
            out.key("f");
            product(each, skipped, out, depth + 1);
        } else {
            plainFields(each, out, depth);
        }
        out.raw("}");
    }

    /* Text, paths and maps that an object of no known kind holds. */
    private static void plainFields(Object each, JsonWriter out, int depth) {
        int mark = out.mark();
        out.key("f").raw("{");
        int start = out.mark();
        String pack = each.getClass().getName();
        if (!pack.startsWith("java.") && !pack.startsWith("scala.")) {
            IdentityHashMap none = new IdentityHashMap();
            for (Class at = each.getClass(); at != null && at != Object.class; at = at.getSuperclass()) {
                java.lang.reflect.Field[] fields = at.getDeclaredFields();
                for (int i = 0; i < fields.length && i < 60; i++) {
                    Object value = null;
                    try {
                        if (java.lang.reflect.Modifier.isStatic(fields[i].getModifiers())) {
                            continue;
                        }
                        fields[i].setAccessible(true);
                        value = fields[i].get(each);
                    } catch (Throwable error) {
                        continue;
                    }
                    value = Reflection.option(value);
                    boolean plain = value instanceof String || value instanceof Path || value instanceof URI
                        || value instanceof Map || value instanceof scala.collection.Map
                        || value instanceof CatalogTable || value instanceof DataSourceRegister
                        || (value != null && value.getClass().getName().endsWith("Strategy"));
                    if (plain) {
                        String name = fields[i].getName();
                        put(name.substring(name.lastIndexOf('$') + 1), value, none, out, depth + 2);
                    }
                }
            }
        }
        if (out.mark() == start) {
            out.back(mark);
        } else {
            out.raw("}");
        }
    }

    private static void items(String name, scala.collection.Iterator all, IdentityHashMap skipped, JsonWriter out, int depth)
            throws Throwable {
        int mark = out.mark();
        out.raw("[");
        int start = out.mark();
        int count = 0;
        while (all.hasNext()) {
            Object each = all.next();
            if (each instanceof Attribute || each instanceof Expression || skipped.containsKey(each)) {
                continue;
            }
            if (count++ >= MOST_ITEMS) {
                break;
            }
            int before = out.mark();
            out.comma();
            int at = out.mark();
            value(name, each, skipped, out, depth + 1);
            if (out.mark() == at) {
                out.back(before);
            }
        }
        if (out.mark() == start) {
            out.back(mark);
        } else {
            out.raw("]");
        }
    }

    private static void map(Map map, JsonWriter out, int depth) throws Throwable {
        out.raw("{");
        int count = 0;
        for (Iterator all = map.entrySet().iterator(); all.hasNext() && count++ < MOST_ITEMS;) {
            Map.Entry entry = (Map.Entry) all.next();
            pair(entry.getKey(), entry.getValue(), out, depth);
        }
        out.raw("}");
    }

    private static void map(scala.collection.Map map, JsonWriter out, int depth) throws Throwable {
        // made case-insensitive, the keys have lost their case: the original is better
        Object original = map.getClass().getSimpleName().equals("CaseInsensitiveMap")
            ? Reflection.callOrNull(map, "originalMap") : null;
        scala.collection.Map entries =
            original instanceof scala.collection.Map ? (scala.collection.Map) original : map;
        out.raw("{");
        int count = 0;
        scala.collection.Iterator all = ((scala.collection.Iterable) entries).iterator();
        while (all.hasNext() && count++ < MOST_ITEMS) {
            scala.Tuple2 entry = (scala.Tuple2) all.next();
            pair(entry._1(), entry._2(), out, depth);
        }
        out.raw("}");
    }

    private static void pair(Object key, Object value, JsonWriter out, int depth) throws Throwable {
        value = Reflection.option(value);
        String name = String.valueOf(key);
        // Spark's own bookkeeping among the properties of tables
        boolean own = name.startsWith("view.") || name.startsWith("spark.sql.sources.schema")
            || name.startsWith("spark.sql.create.version");
        if (value != null && !own) {
            out.key(name).string(SecretMask.option(name, String.valueOf(value)), MOST_TEXT);
        }
    }

    private static void identifier(TableIdentifier id, JsonWriter out) {
        out.raw("{").field("@", "id");
        Object catalog = Reflection.option(Reflection.callOrNull(id, "catalog"));
        if (catalog != null) {
            out.field("catalog", String.valueOf(catalog));
        }
        if (id.database().isDefined()) {
            out.field("database", String.valueOf(id.database().get()));
        }
        out.field("table", id.table()).raw("}");
    }

    private static void named(Identifier id, JsonWriter out) {
        out.raw("{").field("@", "name").key("namespace").raw("[");
        String[] parts = id.namespace();
        for (int i = 0; i < parts.length; i++) {
            out.comma().string(parts[i]);
        }
        out.raw("]").field("name", id.name()).raw("}");
    }

    /* A table that the shared catalog has, for commands that hold nothing but its name; "" if there is none. */
    public static String lookup(Object catalog, String database, String name) {
        try {
            Object found = catalog.getClass()
                .getMethod("getTable", new Class[] {String.class, String.class})
                .invoke(catalog, new Object[] {database, name});
            JsonWriter out = new JsonWriter(1000000);
            table((CatalogTable) found, true, out, 0);
            return out.toString();
        } catch (Throwable error) {
            return "";
        }
    }

    private static void table(CatalogTable table, boolean schema, JsonWriter out, int depth) throws Throwable {
        IdentityHashMap none = new IdentityHashMap();
        out.raw("{").field("@", "catalogTable").key("id");
        identifier(table.identifier(), out);
        out.field("type", table.tableType().name());
        put("provider", table.provider(), none, out, depth);
        put("location", table.storage().locationUri(), none, out, depth);
        put("serde", table.storage().serde(), none, out, depth);
        put("inputFormat", table.storage().inputFormat(), none, out, depth);
        put("options", table.storage().properties(), none, out, depth);
        put("partitions", table.partitionColumnNames(), none, out, depth);
        put("owner", table.owner(), none, out, depth);
        put("comment", table.comment(), none, out, depth);
        put("viewText", table.viewText(), none, out, depth);
        put("properties", table.properties(), none, out, depth);
        if (schema) {
            put("schema", table.schema(), none, out, depth);
        }
        out.raw("}");
    }

    private static void files(HadoopFsRelation relation, JsonWriter out, int depth) throws Throwable {
        out.raw("{").field("@", "files").field("index", relation.location().getClass().getSimpleName());
        out.key("paths").raw("[");
        scala.collection.Iterator all =
            ((scala.collection.Iterable) Reflection.call(relation.location(), "rootPaths")).iterator();
        int count = 0;
        while (all.hasNext() && count < MOST_ITEMS) {
            out.comma().string(SecretMask.url(String.valueOf(all.next())));
            count++;
        }
        out.raw("]");
        if (all.hasNext()) {
            out.field("more", true);
        }
        Object format = relation.fileFormat();
        Object shortName = format instanceof DataSourceRegister ? Reflection.callOrNull(format, "shortName") : null;
        out.field("format", shortName == null ? format.getClass().getSimpleName() : String.valueOf(shortName));
        put("options", relation.options(), new IdentityHashMap(), out, depth);
        put("partitions", names(relation.partitionSchema()), new IdentityHashMap(), out, depth);
        boolean delta = relation.location().getClass().getSimpleName().startsWith("Tahoe");
        Object version = delta ? Reflection.callOrNull(relation.location(), "version") : null;
        if (version instanceof Number) {
            out.field("version", String.valueOf(version));
        }
        out.raw("}");
    }

    private static Object names(org.apache.spark.sql.types.StructType schema) {
        return schema.fieldNames();
    }

    private static void relation(BaseRelation relation, JsonWriter out, int depth) throws Throwable {
        Object options = Reflection.fieldOrNull(relation, "jdbcOptions");
        if (options != null) {
            jdbc(options, out);
            return;
        }
        String kind = relation.getClass().getSimpleName().startsWith("Kafka") ? "kafka" : "relation";
        out.raw("{").field("@", kind).field("cls", relation.getClass().getName());
        plainFields(relation, out, depth);
        out.raw("}");
    }

    private static void jdbc(Object options, JsonWriter out) throws Throwable {
        out.raw("{").field("@", "jdbc").field("url", SecretMask.url(String.valueOf(Reflection.call(options, "url"))));
        Object parameters = Reflection.callOrNull(options, "parameters");
        if (parameters instanceof scala.collection.Map) {
            out.key("options");
            map((scala.collection.Map) parameters, out, 0);
        }
        out.raw("}");
    }

    private static void v2(Table table, IdentityHashMap skipped, JsonWriter out, int depth) throws Throwable {
        Object v1 = Reflection.callOrNull(table, "v1Table");
        if (v1 instanceof CatalogTable && table.getClass().getSimpleName().equals("V1Table")) {
            table((CatalogTable) v1, !skipped.containsKey(NO_SCHEMA), out, depth);
            return;
        }
        if (table.getClass().getSimpleName().equals("RowLevelOperationTable")) { // around the table that changes
            Object inner = Reflection.callOrNull(table, "table");
            if (inner instanceof Table) {
                v2((Table) inner, skipped, out, depth);
                return;
            }
        }
        IdentityHashMap none = new IdentityHashMap();
        out.raw("{").field("@", "table").field("cls", table.getClass().getName());
        Object name = Reflection.callOrNull(table, "name"); // of old sinks it throws
        if (name instanceof String) {
            out.key("name").string((String) name, 1000);
        }
        put("properties", Reflection.callOrNull(table, "properties"), none, out, depth);
        put("jdbc", Reflection.fieldOrNull(table, "jdbcOptions"), none, out, depth);
        if (Reflection.callOrNull(table, "formatName") instanceof String) { // a file source of the second API
            put("format", Reflection.callOrNull(table, "formatName"), none, out, depth);
            put("paths", Reflection.callOrNull(table, "paths"), none, out, depth);
        }
        if (table.getClass().getSimpleName().equals("PythonTable")) {
            put("provider", Reflection.fieldOrNull(table, "shortName"), none, out, depth);
        }
        lake(table, out, depth);
        if (table.getClass().getSimpleName().endsWith("Sink")) { // the first API of streams: a table in name alone
            plainFields(table, out, depth);
        }
        out.raw("}");
    }

    /* Iceberg and Delta by the methods of their tables, which are in memory by now. */
    private static void lake(Table table, JsonWriter out, int depth) {
        IdentityHashMap none = new IdentityHashMap();
        String name = table.getClass().getName();
        if (name.startsWith("org.apache.iceberg.")) {
            Object iceberg = Reflection.callOrNull(table, "table");
            put("location", Reflection.callOrNull(iceberg, "location"), none, out, depth);
            Object fixed = Reflection.callOrNull(table, "snapshotId");
            Object snapshot = fixed != null ? fixed : Reflection.callOrNull(Reflection.callOrNull(iceberg, "currentSnapshot"), "snapshotId");
            if (snapshot instanceof Number) {
                out.field("version", String.valueOf(snapshot));
            }
        } else if (name.startsWith("org.apache.spark.sql.delta.") || name.startsWith("io.delta.")) {
            put("location", Reflection.callOrNull(table, "path"), none, out, depth);
            put("catalogTable", Reflection.callOrNull(table, "catalogTable"), none, out, depth);
            Object snapshot = Reflection.callOrNull(Reflection.callOrNull(table, "deltaLog"), "unsafeVolatileSnapshot");
            Object version = Reflection.callOrNull(snapshot, "version");
            if (version instanceof Number) {
                out.field("version", String.valueOf(version));
            }
        }
    }

    /* A plan in a field that is no child: the table of a write. Its columns come along. */
    private static void plan(LogicalPlan plan, JsonWriter out, int depth) throws Throwable {
        if (depth > 2) {
            return;
        }
        out.raw("{").field("@", "node").field("cls", plan.getClass().getName());
        if (plan instanceof scala.Product) {
            out.key("f");
            product(plan, new IdentityHashMap(), out, depth + 1);
        }
        int mark = out.mark();
        try {
            out.key("out").raw("[");
            scala.collection.Iterator all = ((scala.collection.Iterable) plan.output()).iterator();
            while (all.hasNext()) {
                Attribute column = (Attribute) all.next();
                out.comma().raw("[").number(column.exprId().id()).comma().string(column.name());
                out.comma().raw(column.dataType().json()).raw("]");
            }
            out.raw("]");
        } catch (JsonWriter.Full full) {
            throw full;
        } catch (Throwable error) {
            out.back(mark); // not resolved: it has no columns
        }
        out.raw("}");
    }
}

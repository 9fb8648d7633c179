package headwater.lineage;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
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
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/*
 * The fields of a leaf, a command or a relation of a plan, without its children: the parameters of its case class,
 * by name, as JSON. Objects that a dataset is made of (a table, files, a connection) become an object with a
 * key "@" for the kind. This class names no datasets, calls no file system and starts no job.
 */
public class NodeFields {
    private static final int MOST_TEXT = 8000;
    private static final int MOST_ITEMS = 1000;
    private static final int MOST_DEPTH = 5;
    private static final String GENERATED = "delta.generationExpression";
    private static final String[] QUERIES = {"query", "source", "target"};  // PlanWriter writes these plans
    // nodes whose columns PlanWriter has written
    private static final List HAVE_COLUMNS = Arrays.asList("LogicalRelation", "HiveTableRelation", "View");
    private static final Method WATCH = Reflection.unit(NodeFields.class, "LakeVersions", "watch");
    private static final Method VERSION_READ = Reflection.unit(NodeFields.class, "LakeVersions", "versionRead");
    private static final Method CHAIN = Reflection.unit(NodeFields.class, "RddChain", "chain");

    private final JsonWriter out;
    private final Set skipped = Collections.newSetFromMap(new IdentityHashMap());
    private boolean hasSchemas = true;                     // of tables: whether to write their columns

    private NodeFields(JsonWriter out) {
        this.out = out;
    }

    /* The value of a node's key "f". */
    public static void node(LogicalPlan node, JsonWriter out) {
        NodeFields fields = new NodeFields(out);
        fields.skip(node.children());
        fields.skip(Reflection.callOrNull(node, "innerChildren"));
        for (String name : QUERIES) {
            Object query = Reflection.callOrNull(node, name);
            if (query instanceof LogicalPlan) {
                fields.skipped.add(query);
            }
        }
        fields.hasSchemas = !HAVE_COLUMNS.contains(node.getClass().getSimpleName());
        fields.product((scala.Product) node, 0);
    }

    private void skip(Object kids) {
        for (Object kid : Reflection.each(kids)) {
            // a resolved name is as small as a field, and the command is useless without it
            if (!kid.getClass().getSimpleName().startsWith("Resolved")) {
                skipped.add(kid);
            }
        }
    }

    private void product(scala.Product product, int depth) {
        out.raw('{');
        List names = names(product);
        for (int at = 0; at < product.productArity(); at++) {
            Object value = product.productElement(at);
            if (!skipped.contains(value)) {
                put(at < names.size() ? (String) names.get(at) : "_" + at, value, depth);
            }
        }
        out.raw('}');
    }

    private static List names(scala.Product product) {
        List names = Reflection.each(Reflection.callOrNull(product, "productElementNames"));
        if (names.isEmpty()) { // Scala 2.12: the parameters are the first final fields; lazy ones may precede
            names = new ArrayList();
            for (Object field : Reflection.fields(product.getClass())) {
                if (Modifier.isFinal(((Field) field).getModifiers())) {
                    names.add(((Field) field).getName());
                }
            }
        }
        return names;
    }

    /* A key and its value, or nothing if the value is empty or cannot be read. */
    private void put(String name, Object value, int depth) {
        int mark = out.mark();
        try {
            int start = out.key(name).mark();
            value(name, value, depth);
            if (out.mark() == start) {
                out.back(mark);
            }
        } catch (JsonWriter.Full full) {
            throw full;
        } catch (Throwable error) {
            out.back(mark);
        }
    }

    private void value(String name, Object each, int depth) throws Throwable {
        if (each == null || depth > MOST_DEPTH) {
            return;
        }
        if (each instanceof scala.Option) {
            Object held = Reflection.option(each);
            if (!skipped.contains(held)) {
                value(name, held, depth);
            }
        } else if (each instanceof String) {
            out.string(SecretMask.option(name, (String) each), MOST_TEXT);
        } else if (each instanceof Boolean || each instanceof Integer || each instanceof Long) {
            out.raw(each.toString());
        } else if (each instanceof Enum || each instanceof Path || each instanceof URI) {
            out.string(SecretMask.url(each.toString()));
        } else if (each instanceof CatalogTable) {
            table((CatalogTable) each, depth);
        } else if (each instanceof TableIdentifier) {
            identifier((TableIdentifier) each);
        } else if (each instanceof Identifier) {
            out.raw('{').field("@", "name").key("namespace").list(Reflection.each(((Identifier) each).namespace()));
            out.field("name", ((Identifier) each).name()).raw('}');
        } else if (each instanceof Table) {
            v2((Table) each, depth);
        } else if (each instanceof CatalogPlugin) {
            out.raw('{').field("@", "catalog").field("cls", each.getClass().getName());
            out.field("name", ((CatalogPlugin) each).name()).raw('}');
        } else if (each instanceof HadoopFsRelation) {
            files((HadoopFsRelation) each, depth);
        } else if (each instanceof BaseRelation) {
            relation((BaseRelation) each, depth);
        } else if (each instanceof CaseInsensitiveStringMap) {
            map(((CaseInsensitiveStringMap) each).asCaseSensitiveMap());
        } else if (each instanceof Map || each instanceof scala.collection.Map) {
            map(each);
        } else if (each instanceof DataType) {
            out.raw(((DataType) each).json());
        } else if (each instanceof RDD) {
            if (CHAIN != null) {
                Reflection.invoke(CHAIN, each, out);
            }
        } else if (each instanceof LogicalPlan) {
            plan((LogicalPlan) each, depth);
        } else if (each instanceof Expression) {
            return; // PlanWriter writes expressions
        } else if (each instanceof Transform) {
            out.string(each.toString(), 200);
        } else if (each instanceof scala.collection.Seq || each instanceof Object[]) {
            items(name, Reflection.each(each), depth);
        } else {
            other(each, depth);
        }
    }

    /* An object with its class: formats, providers, sources, sinks, specs, changes. */
    private void other(Object each, int depth) throws Throwable {
        String full = each.getClass().getName();
        String simple = full.substring(full.lastIndexOf('.') + 1);
        if (simple.endsWith("SaveMode") || simple.indexOf("OutputMode") >= 0) {
            out.string(each.toString());
            return;
        }
        if (simple.startsWith("JDBCOptions") || simple.startsWith("JdbcOptions")) {
            jdbc(each);
            return;
        }
        if (simple.equals("SparkSession") || simple.equals("Metadata") || simple.endsWith("FileIndex")) {
            return;
        }
        out.raw('{').field("@", "object").field("cls", full).optional("name", shortName(each), MOST_TEXT);
        if (each instanceof scala.Product && ((scala.Product) each).productArity() > 0) {
            out.key("f");
            product((scala.Product) each, depth + 1);
        } else {
            plainFields(each, depth);
        }
        out.raw('}');
    }

    private static Object shortName(Object format) {
        return format instanceof DataSourceRegister ? Reflection.callOrNull(format, "shortName") : null;
    }

    /* Text, paths and maps in the fields of an object of unknown kind. */
    private void plainFields(Object each, int depth) {
        String type = each.getClass().getName();
        if (type.startsWith("java.") || type.startsWith("scala.")) {
            return;
        }
        int mark = out.mark();
        int start = out.key("f").mark();
        out.raw('{');
        for (Object field : Reflection.fields(each.getClass())) {
            Object value = Reflection.option(Reflection.valueOrNull((Field) field, each));
            boolean plain = value instanceof String || value instanceof Path || value instanceof URI
                || value instanceof Map || value instanceof scala.collection.Map
                || value instanceof CatalogTable || value instanceof DataSourceRegister
                || (value != null && value.getClass().getName().endsWith("Strategy"));
            if (plain) {
                String name = ((Field) field).getName();
                new NodeFields(out).put(name.substring(name.lastIndexOf('$') + 1), value, depth + 2);
            }
        }
        if (!out.end(start, '}')) {
            out.back(mark);
        }
    }

    private void items(String name, List all, int depth) throws Throwable {
        int start = out.mark();
        out.raw('[');
        int count = 0;
        for (Object each : all) {
            if (each instanceof Expression || skipped.contains(each)) {
                continue;
            }
            if (!(each instanceof String) && count++ >= MOST_ITEMS) {   // all names of columns
                out.cut("`" + name + "` has " + all.size() + " items, of which the first " + MOST_ITEMS + " are read");
                continue;
            }
            int before = out.mark();
            out.comma();
            int at = out.mark();
            value(name, each, depth + 1);
            if (out.mark() == at) {
                out.back(before);
            }
        }
        out.end(start, ']');
    }

    private void map(Object map) {
        if (map.getClass().getSimpleName().equals("CaseInsensitiveMap")) {
            // a CaseInsensitiveMap has lower-case keys; its original has those of the user
            Object original = Reflection.callOrNull(map, "originalMap");
            map = original instanceof scala.collection.Map ? original : map;
        }
        out.raw('{');
        int count = 0;
        for (Object each : Reflection.map(map).entrySet()) {
            Map.Entry entry = (Map.Entry) each;
            String name = String.valueOf(entry.getKey());
            Object value = Reflection.option(entry.getValue());
            // Spark's own bookkeeping among the properties of tables
            boolean own = name.startsWith("view.") || name.startsWith("spark.sql.sources.schema")
                || name.startsWith("spark.sql.create.version");
            if (value == null || own) {
                continue;
            }
            if (count++ >= MOST_ITEMS) {
                out.cut("of its settings the first " + MOST_ITEMS + " are read");
            } else {
                out.key(name).string(SecretMask.option(name, String.valueOf(value)), MOST_TEXT);
            }
        }
        out.raw('}');
    }

    private void identifier(TableIdentifier id) {
        out.raw('{').field("@", "id").optional("catalog", Reflection.callOrNull(id, "catalog"), MOST_TEXT);
        out.optional("database", Reflection.option(id.database()), MOST_TEXT).field("table", id.table()).raw('}');
    }

    /* A table of the shared catalog, for commands that have only its name; "" if there is none. */
    public static String lookup(Object catalog, String database, String name) {
        try {
            Method getTable = catalog.getClass().getMethod("getTable", String.class, String.class);
            JsonWriter out = new JsonWriter(1000000);
            new NodeFields(out).table((CatalogTable) getTable.invoke(catalog, database, name), 0);
            return out.toString();
        } catch (Throwable error) {
            return "";
        }
    }

    /* The location of a database of the shared catalog; "" if there is none. */
    public static String location(Object catalog, String database) {
        try {
            Object found = catalog.getClass().getMethod("getDatabase", String.class).invoke(catalog, database);
            return SecretMask.url(String.valueOf(Reflection.call(found, "locationUri")));
        } catch (Throwable error) {
            return "";
        }
    }

    private void table(CatalogTable table, int depth) {
        out.raw('{').field("@", "catalogTable").key("id");
        identifier(table.identifier());
        out.field("type", table.tableType().name());
        put("provider", table.provider(), depth);
        put("location", table.storage().locationUri(), depth);
        put("serde", table.storage().serde(), depth);
        put("inputFormat", table.storage().inputFormat(), depth);
        put("options", table.storage().properties(), depth);
        put("partitions", table.partitionColumnNames(), depth);
        put("owner", table.owner(), depth);
        put("comment", table.comment(), depth);
        put("viewText", table.viewText(), depth);
        put("properties", table.properties(), depth);
        if (hasSchemas) {
            put("schema", table.schema(), depth);
        }
        out.raw('}');
    }

    private void files(HadoopFsRelation relation, int depth) throws Throwable {
        String index = relation.location().getClass().getSimpleName();
        List paths = Reflection.each(Reflection.call(relation.location(), "rootPaths"));
        out.raw('{').field("@", "files").field("index", index);
        put("paths", paths.toArray(), 0);
        if (paths.size() > MOST_ITEMS) {
            out.field("folder", SecretMask.url(folder(paths)));
        }
        Object format = relation.fileFormat();
        Object shortName = shortName(format);
        out.field("format", shortName == null ? format.getClass().getSimpleName() : (String) shortName);
        put("options", relation.options(), depth);
        put("partitions", relation.partitionSchema().fieldNames(), depth);
        if (index.startsWith("Tahoe")) {
            version(Reflection.invoke(VERSION_READ, relation.location()));
        }
        out.raw('}');
    }

    /* The folder that contains all paths. */
    private static String folder(List paths) {
        String common = paths.get(0).toString();
        for (Object path : paths) {
            String text = path.toString();
            while (!text.equals(common) && !text.startsWith(common.endsWith("/") ? common : common + "/")) {
                int slash = common.lastIndexOf('/');
                if (slash <= 0) {
                    return "/";
                }
                common = common.substring(0, slash);
            }
        }
        return common;
    }

    private void relation(BaseRelation relation, int depth) throws Throwable {
        Object options = Reflection.fieldOrNull(relation, "jdbcOptions");
        if (options != null) {
            jdbc(options);
            return;
        }
        String kind = relation.getClass().getSimpleName().startsWith("Kafka") ? "kafka" : "relation";
        out.raw('{').field("@", kind).field("cls", relation.getClass().getName());
        plainFields(relation, depth);
        out.raw('}');
    }

    private void jdbc(Object options) throws Throwable {
        out.raw('{').field("@", "jdbc").field("url", SecretMask.url(String.valueOf(Reflection.call(options, "url"))));
        Object parameters = Reflection.callOrNull(options, "parameters");
        if (parameters instanceof scala.collection.Map) {
            out.key("options");
            map(parameters);
        }
        out.raw('}');
    }

    private void v2(Table table, int depth) throws Throwable {
        String kind = table.getClass().getSimpleName();
        Object v1 = Reflection.callOrNull(table, "v1Table");
        if (v1 instanceof CatalogTable && kind.equals("V1Table")) {
            table((CatalogTable) v1, depth);
            return;
        }
        Object changed = kind.equals("RowLevelOperationTable") ? Reflection.callOrNull(table, "table") : null;
        if (changed instanceof Table) {
            v2((Table) changed, depth);
            return;
        }
        NodeFields fields = new NodeFields(out);            // whose `hasSchemas` is true
        out.raw('{').field("@", "table").field("cls", table.getClass().getName());
        out.optional("name", Reflection.callOrNull(table, "name"), 1000);   // throws for V1 sinks
        fields.put("properties", Reflection.callOrNull(table, "properties"), depth);
        fields.put("jdbc", Reflection.fieldOrNull(table, "jdbcOptions"), depth);
        Object format = Reflection.callOrNull(table, "formatName");
        if (format instanceof String) {                     // a V2 file source
            fields.put("format", format, depth);
            fields.put("paths", Reflection.callOrNull(table, "paths"), depth);
        }
        if (kind.equals("PythonTable")) {
            fields.put("provider", Reflection.fieldOrNull(table, "shortName"), depth);
        }
        fields.lake(table, depth);
        if (kind.endsWith("Sink")) {                        // a V1 sink, a Table only formally
            fields.plainFields(table, depth);
        }
        out.raw('}');
    }

    /* Location and version of Iceberg and Delta tables, by methods that only read memory. */
    private void lake(Table table, int depth) {
        String name = table.getClass().getName();
        if (name.startsWith("org.apache.iceberg.")) {
            Object iceberg = Reflection.callOrNull(table, "table");
            put("location", Reflection.callOrNull(iceberg, "location"), depth);
            Object fixed = Reflection.callOrNull(table, "snapshotId");
            Object current = Reflection.callOrNull(iceberg, "currentSnapshot");
            version(fixed != null ? fixed : Reflection.callOrNull(current, "snapshotId"));
            try {
                Reflection.invoke(WATCH, table.getClass().getClassLoader());   // its jar may be new
            } catch (Throwable missing) {
                // versions of this Iceberg are those of the plan
            }
        } else if (name.startsWith("org.apache.spark.sql.delta.") || name.startsWith("io.delta.")) {
            put("location", Reflection.callOrNull(table, "path"), depth);
            put("catalogTable", Reflection.callOrNull(table, "catalogTable"), depth);
            Object log = Reflection.callOrNull(table, "deltaLog");
            Object snapshot = Reflection.callOrNull(table, "initialSnapshot");  // the one that the query reads
            if (snapshot == null) {
                snapshot = Reflection.callOrNull(log, "unsafeVolatileSnapshot");
            }
            version(Reflection.callOrNull(snapshot, "version"));
            generated(Reflection.callOrNull(snapshot, "schema"));
        }
    }

    /* The columns that Delta computes in a write, by their expressions: no plan contains them. */
    private void generated(Object schema) {
        if (!(schema instanceof StructType)) {
            return;
        }
        int mark = out.mark();
        int start = out.key("generated").mark();
        out.raw('{');
        for (StructField field : ((StructType) schema).fields()) {
            if (field.metadata().contains(GENERATED)) {
                out.key(field.name()).string(field.metadata().getString(GENERATED), MOST_TEXT);
            }
        }
        if (!out.end(start, '}')) {
            out.back(mark);
        }
    }

    private void version(Object number) {
        if (number instanceof Number) {
            out.field("version", number.toString());
        }
    }

    /* A plan in a field that is no child, such as the table of a write, with its columns. */
    private void plan(LogicalPlan plan, int depth) {
        if (depth > 2) {
            return;
        }
        out.raw('{').field("@", "node").field("cls", plan.getClass().getName()).key("f");
        new NodeFields(out).product((scala.Product) plan, depth + 1);
        int mark = out.mark();
        try {
            out.key("out").raw('[');
            for (Object each : Reflection.each(plan.output())) {
                Attribute column = (Attribute) each;
                out.comma().raw('[').number(column.exprId().id()).comma().string(column.name());
                out.comma().raw(column.dataType().json()).raw(']');
            }
            out.raw(']');
        } catch (JsonWriter.Full full) {
            throw full;
        } catch (Throwable error) {
            out.back(mark); // not resolved: it has no columns
        }
        out.raw('}');
    }
}

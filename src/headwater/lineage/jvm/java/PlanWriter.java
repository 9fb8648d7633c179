package headwater.lineage;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.TreeSet;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.StructType;

/*
 * One plan as one compact JSON document: nodes in post-order, a shared one once, plans of subqueries among them;
 * of the expressions those that create or use expression ids. A column that only passes through a node keeps its
 * id and is not mentioned, which is why a 500-step plan stays small. lineage/jvm/plan.py, which reads the
 * document, describes its parts.
 *
 * Roles of expressions are the names of the fields of Spark's own case classes, found by reflection, so that a
 * node which is new in some Spark needs no change here.
 */
public class PlanWriter {
    /* NodeFields.node, for leaves, commands and what else is not in PLAIN; that unit may be missing. */
    private static final Method DETAILS = details();

    /* Nodes whose columns are those of their children, or the aliases in their own expressions. */
    private static final HashSet PLAIN = new HashSet(Arrays.asList(new Object[] {
        "Project", "Filter", "Sort", "Join", "LateralJoin", "Aggregate", "Window", "GlobalLimit", "LocalLimit",
        "Offset", "Tail", "Sample", "SubqueryAlias", "Repartition", "RepartitionByExpression",
        "RebalancePartitions", "ResolvedHint", "View", "WithCTE", "CollectMetrics", "EventTimeWatermark",
        "ReturnAnswer", "Deduplicate", "DeduplicateWithinWatermark",
    }));
    /* Lists in which an attribute alone is a column that passes through. */
    private static final HashSet LISTS = new HashSet(Arrays.asList(new Object[] {
        "projectList", "aggregateExpressions", "windowExpressions",
    }));
    /* Fields that only repeat the node's output or its child's. */
    private static final HashSet OUTPUTS = new HashSet(Arrays.asList(new Object[] {
        "output", "generatorOutput", "outputAttrs", "outputColumns", "partitionCols", "outputObjAttr",
        "isSourceRowPresent", "isTargetRowPresent",
    }));
    private static final int LONGEST_TEXT = 256;

    private static final HashMap fieldsOf = new HashMap();
    private static final HashMap interfacesOf = new HashMap();

    private final JsonWriter out;
    private final IdentityHashMap seen = new IdentityHashMap();
    private final ArrayList nodes = new ArrayList();
    private final ArrayList marks = new ArrayList();

    private PlanWriter(JsonWriter out) {
        this.out = out;
    }

    /* Writes the document; answers the plan's nodes, each at the index that is its id in the document. */
    public static ArrayList plan(LogicalPlan plan, JsonWriter out) {
        PlanWriter walk = new PlanWriter(out);
        int start = out.mark();
        int root = -1;
        String cut = null;
        out.raw("{\"v\":1,\"nodes\":[");
        walk.marks.add(Integer.valueOf(out.mark()));
        try {
            root = walk.visit(plan, true);
        } catch (JsonWriter.Full full) {
            cut = "the plan is larger than its byte budget";
        } catch (StackOverflowError deep) {
            cut = "the plan is nested too deeply";
        }
        // what was written since the last whole node is of no use; room for the end is made by giving up nodes
        for (int kept = walk.marks.size() - 1; kept >= 0; kept--) {
            out.back(((Integer) walk.marks.get(kept)).intValue());
            try {
                out.raw("],\"root\":").number(root);
                if (cut != null) {
                    out.field("cut", cut);
                }
                out.raw('}');
                return walk.nodes;
            } catch (JsonWriter.Full full) {
                root = -1;
                cut = "the plan is larger than its byte budget";
            }
        }
        out.back(start);
        throw new JsonWriter.Full();
    }

    /* The nodes alone, in the same order. */
    public static ArrayList nodes(LogicalPlan plan) {
        return plan(plan, new JsonWriter(1 << 28));
    }

    /* One expression alone, for lineage nodes that name an expression instead of ids. */
    public static void expression(Expression expression, JsonWriter out) throws Exception {
        new PlanWriter(out).write(expression);
    }

    private int visit(LogicalPlan plan, boolean typed) {
        Object before = seen.get(plan);
        if (before != null && !typed) {
            return ((Integer) before).intValue();
        }
        if (before != null) {
            // wanted with names and types now: a node that only passes its columns on carries them
            ArrayList kids = new ArrayList();
            kids.add(before);
            return emit(plan, "headwater.SameNode", kids, new ArrayList(), true, false);
        }
        // what a micro-batch writes is no command, but its query is wanted as if it were
        boolean command = plan instanceof Command || plan.getClass().getSimpleName().startsWith("WriteTo");
        ArrayList kids = new ArrayList();
        ArrayList inner = new ArrayList();
        IdentityHashMap children = new IdentityHashMap();
        scala.collection.Iterator it = plan.children().iterator();
        while (it.hasNext()) {
            LogicalPlan child = (LogicalPlan) it.next();
            children.put(child, child);
            kids.add(Integer.valueOf(visit(child, command)));
        }
        // the inner children of most nodes are their subqueries, which are in their expressions as well
        scala.collection.Iterator within = plan.subqueries().iterator();
        while (within.hasNext()) {
            Object subquery = within.next();
            children.put(subquery, subquery);
        }
        it = plan.innerChildren().iterator();
        while (it.hasNext()) {
            Object child = it.next();
            if (child instanceof LogicalPlan && children.get(child) == null) {
                inner.add(Integer.valueOf(visit((LogicalPlan) child, true)));
            }
        }
        if (command && inner.isEmpty() && kids.isEmpty()) {
            // saveAsTable keeps its query to itself, Delta's MERGE its source and target
            String[] fields = {"query", "source", "target"};
            for (int at = 0; at < fields.length; at++) {
                Object query = Reflection.callOrNull(plan, fields[at]);
                if (query instanceof LogicalPlan) {
                    inner.add(Integer.valueOf(visit((LogicalPlan) query, true)));
                }
            }
        }
        scala.collection.Iterator used = plan.expressions().iterator();
        while (used.hasNext()) {
            subqueries((Expression) used.next());
        }
        int id = emit(plan, plan.getClass().getName(), kids, inner, typed, true);
        seen.put(plan, Integer.valueOf(id));
        return id;
    }

    /* The plans inside an expression come before the node that uses it. */
    private void subqueries(Expression expression) {
        if (expression instanceof PlanExpression) {
            Object plan = ((PlanExpression) expression).plan();
            if (plan instanceof LogicalPlan && seen.get(plan) == null) {
                visit((LogicalPlan) plan, true);
            }
        }
        scala.collection.Iterator it = expression.children().iterator();
        while (it.hasNext()) {
            subqueries((Expression) it.next());
        }
    }

    private int emit(LogicalPlan plan, String cls, ArrayList kids, ArrayList inner, boolean typed, boolean whole) {
        int id = nodes.size();
        boolean plain = PLAIN.contains(cls.substring(cls.lastIndexOf('.') + 1));
        boolean leaf = kids.isEmpty() && inner.isEmpty();
        out.comma().raw("{\"id\":").number(id).field("cls", cls);
        numbers("kids", kids);
        numbers("inner", inner);
        if (typed || leaf || !plain && whole) {
            part("out", plan, typed || leaf);
        }
        if (whole) {
            part("ex", plan, false);
            if (!plain) {
                part("in", plan, false);
                part("lin", plan, false);
                if (plan instanceof Command) {
                    part("to", plan, false);
                }
            }
            if ((!plain || cls.endsWith(".View")) && DETAILS != null) {
                part("f", plan, false);
            }
        }
        out.raw('}');
        nodes.add(plan);
        marks.add(Integer.valueOf(out.mark()));
        return id;
    }

    /* One key of a node; if it fails, `no_<key>` has the reason and the other keys are still written. */
    private void part(String key, LogicalPlan plan, boolean typed) {
        int mark = out.mark();
        try {
            out.key(key);
            int begun = out.mark();
            if (key.equals("out")) {
                output(plan, typed);
            } else if (key.equals("ex")) {
                expressions(plan);
            } else if (key.equals("in")) {
                inputs(plan);
            } else if (key.equals("lin")) {
                interfaces(plan);
            } else if (key.equals("to")) {
                Object table = Reflection.callOrNull(plan, "table");
                if (table instanceof LogicalPlan && !(table instanceof Command)) {
                    output((LogicalPlan) table, false);
                }
            } else {
                DETAILS.invoke(null, new Object[] {plan, out});
            }
            if (out.mark() == begun) {
                out.back(mark);
            }
        } catch (JsonWriter.Full full) {
            throw full;
        } catch (StackOverflowError deep) {
            throw deep;
        } catch (java.lang.reflect.InvocationTargetException error) {
            if (error.getCause() instanceof JsonWriter.Full) {
                throw (JsonWriter.Full) error.getCause();
            }
            out.back(mark);
            out.key("no_" + key).string(String.valueOf(error.getCause()), LONGEST_TEXT);
        } catch (Throwable error) {
            out.back(mark);
            out.key("no_" + key).string(String.valueOf(error), LONGEST_TEXT);
        }
    }

    private void numbers(String key, ArrayList numbers) {
        if (numbers.isEmpty()) {
            return;
        }
        out.key(key).raw('[');
        for (int at = 0; at < numbers.size(); at++) {
            out.comma().number(((Integer) numbers.get(at)).intValue());
        }
        out.raw(']');
    }

    private void output(LogicalPlan plan, boolean typed) {
        scala.collection.Iterator it = plan.output().iterator();
        if (!it.hasNext()) {
            return;
        }
        out.raw('[');
        while (it.hasNext()) {
            Attribute attribute = (Attribute) it.next();
            out.comma().raw('[').number(attribute.exprId().id()).raw(',').string(attribute.name());
            if (typed) {
                out.raw(',').raw(attribute.dataType().json());
            }
            out.raw(']');
        }
        out.raw(']');
    }

    private void inputs(LogicalPlan plan) {
        scala.collection.Iterator kids = plan.children().iterator();
        if (!kids.hasNext()) {
            return;
        }
        out.raw('[');
        while (kids.hasNext()) {
            out.comma().raw('[');
            scala.collection.Iterator it = ((LogicalPlan) kids.next()).output().iterator();
            while (it.hasNext()) {
                out.comma().number(((Attribute) it.next()).exprId().id());
            }
            out.raw(']');
        }
        out.raw(']');
    }

    private void expressions(LogicalPlan plan) throws Exception {
        Field[] fields = fields(plan.getClass());
        boolean begun = false;
        for (int at = 0; at < fields.length; at++) {
            String role = fields[at].getName();
            if (OUTPUTS.contains(role)) {
                continue;
            }
            Object value = fields[at].get(plan);
            value = Reflection.option(value);
            boolean number = (value instanceof Long || value instanceof Integer)
                    && (role.equals("id") || role.endsWith("Id") || role.endsWith("Len"));
            boolean text = role.equals("joinType");
            boolean list = value instanceof scala.collection.Seq && holds((scala.collection.Seq) value);
            if (!(value instanceof Expression) && !list && !number && !text) {
                continue;
            }
            int mark = out.mark();
            if (!begun) {
                out.raw('{');
            }
            out.key(role);
            if (number) {
                out.number(((Number) value).longValue());
            } else if (text) {
                out.string(String.valueOf(value), LONGEST_TEXT);
            } else if (list) {
                if (!list((scala.collection.Seq) value, LISTS.contains(role))) {
                    out.back(mark);
                    continue;
                }
            } else {
                out.raw('[');
                write((Expression) value);
                out.raw(']');
            }
            begun = true;
        }
        if (begun) {
            out.raw('}');
        }
    }

    private static boolean holds(scala.collection.Seq seq) {
        scala.collection.Iterator it = seq.iterator();
        if (!it.hasNext()) {
            return false;
        }
        Object first = it.next();
        return first instanceof Expression || (first instanceof scala.collection.Seq && holds((scala.collection.Seq) first));
    }

    /* False if nothing was worth a word. */
    private boolean list(scala.collection.Seq seq, boolean skip) throws Exception {
        boolean any = false;
        out.raw('[');
        scala.collection.Iterator it = seq.iterator();
        while (it.hasNext()) {
            Object one = it.next();
            if (one instanceof scala.collection.Seq) {
                out.comma();
                list((scala.collection.Seq) one, false);
                any = true;
            } else if (one instanceof Expression && !(skip && one instanceof Attribute)) {
                out.comma();
                write((Expression) one);
                any = true;
            }
        }
        out.raw(']');
        return any || !skip;
    }

    private void write(Expression expression) throws Exception {
        String cls = expression.getClass().getSimpleName();
        if (expression instanceof Alias) {
            out.raw("[\"=\",").number(((NamedExpression) expression).exprId().id()).raw(',');
            out.string(((NamedExpression) expression).name()).raw(',');
            write((Expression) expression.children().head());
            out.raw(']');
        } else if (expression instanceof Attribute || cls.startsWith("Outer") && expression instanceof NamedExpression) {
            out.raw("[\"a\",").number(((NamedExpression) expression).exprId().id()).raw(']');
        } else if (cls.equals("NamedLambdaVariable")) {
            out.raw("[\"v\",").number(((NamedExpression) expression).exprId().id()).raw(']');
        } else if (expression instanceof Literal) {
            literal(((Literal) expression).value());
        } else if (expression instanceof PlanExpression) {
            subquery((PlanExpression) expression, cls);
        } else {
            function(expression, cls);
        }
    }

    private void literal(Object value) {
        String text = value == null ? null : value.toString();
        if (value instanceof Integer || value instanceof Long) {
            out.raw("[\"l\",").number(((Number) value).longValue()).raw(']');
        } else if (value instanceof org.apache.spark.unsafe.types.UTF8String && text.length() <= LONGEST_TEXT) {
            out.raw("[\"l\",").string(text).raw(']');
        } else {
            out.raw("[\"l\"]");
        }
    }

    private void subquery(PlanExpression expression, String cls) {
        Object id = seen.get(expression.plan());
        out.raw("[\"q\",").string(cls).raw(',').number(id == null ? -1 : ((Integer) id).intValue()).raw(']');
    }

    private void function(Expression expression, String cls) throws Exception {
        scala.collection.Iterable kids = expression.children();
        if (cls.equals("Cast") && sameType(expression, (Expression) kids.head())) {
            write((Expression) kids.head());  // views cast every column to the type it has already
            return;
        }
        boolean few = cls.equals("In");
        String names = null;
        if (cls.equals("GetStructField")) {
            names = name(Reflection.call(expression, "extractFieldName"));
        } else if (cls.equals("GetArrayStructFields")) {
            names = name(Reflection.call(Reflection.call(expression, "field"), "name"));
        } else if (cls.equals("UpdateFields")) {
            names = operations(expression);
        } else if (cls.equals("Keep") || cls.equals("Split") || cls.equals("Discard") || cls.equals("Insert")
                || cls.equals("Copy")) {
            instruction(expression, cls);
            return;
        } else if (cls.endsWith("UDF") || cls.endsWith("UDTF") || cls.endsWith("UDAF")) {
            names = name(Reflection.callOrNull(expression, cls.startsWith("Scala") ? "udfName" : "name"));
        } else if (cls.endsWith("ElementAt") && !kids.isEmpty()) {
            Object type = ((Expression) kids.head()).dataType();
            names = type.getClass().getSimpleName().equals("MapType") ? "\"value\"" : null;
        } else if (cls.equals("DeltaMergeAction")) {
            Object parts = Reflection.callOrNull(expression, "targetColNameParts");
            names = parts instanceof scala.collection.Seq ? name(((scala.collection.Seq) parts).mkString(".")) : null;
        } else if (cls.equals("Inline")) {
            names = fieldNames((StructType) Reflection.call(expression, "elementSchema"));
        } else if (cls.equals("Cast") && expression.dataType() instanceof StructType) {
            names = fieldNames((StructType) expression.dataType());
        } else if (cls.equals("StaticInvoke") || cls.equals("Invoke")) {
            names = name(Reflection.callOrNull(expression, "functionName"));
        }
        Object parameters = Reflection.callOrNull(expression, "parameters");
        if (parameters instanceof scala.collection.Seq && holds((scala.collection.Seq) parameters)) {
            kids = (scala.collection.Seq) parameters;  // what the user wrote, not what it is replaced by
        }
        out.raw("[\"f\",").string(cls).raw(",[");
        scala.collection.Iterator it = kids.iterator();
        while (it.hasNext()) {
            Object kid = it.next();
            if (kid instanceof Expression && !(few && kid instanceof Literal)) {
                out.comma();
                write((Expression) kid);
            }
        }
        out.raw(']');
        if (names != null) {
            out.raw(',').raw(names);
        }
        out.raw(']');
    }

    private static boolean sameType(Expression left, Expression right) {
        return left.dataType().catalogString().equals(right.dataType().catalogString());
    }

    private static String name(Object value) {
        value = Reflection.option(value);
        return value == null ? null : new JsonWriter(1 << 20).string(String.valueOf(value), LONGEST_TEXT).toString();
    }

    private static String fieldNames(StructType type) {
        JsonWriter json = new JsonWriter(1 << 24).raw('[');
        String[] names = type.fieldNames();
        for (int at = 0; at < names.length; at++) {
            json.comma().string(names[at]);
        }
        return json.raw(']').toString();
    }

    /* `withField` and `dropFields`: "+name" takes the next of the children, "-name" none. */
    private static String operations(Expression expression) throws Exception {
        JsonWriter json = new JsonWriter(1 << 24).raw('[');
        scala.collection.Iterator it = ((scala.collection.Seq) Reflection.call(expression, "fieldOps")).iterator();
        while (it.hasNext()) {
            Object operation = it.next();
            String sign = operation.getClass().getSimpleName().startsWith("With") ? "+" : "-";
            json.comma().string(sign + Reflection.call(operation, "name"));
        }
        return json.raw(']').toString();
    }

    /* An instruction of MergeRows: its condition, then each row that it puts out, as a list of their widths. */
    private void instruction(Expression expression, String cls) throws Exception {
        JsonWriter widths = new JsonWriter(1 << 20).raw('[');
        out.raw("[\"f\",").string(cls).raw(",[");
        write((Expression) Reflection.call(expression, "condition"));
        scala.collection.Iterator rows = ((scala.collection.Seq) Reflection.call(expression, "outputs")).iterator();
        while (rows.hasNext()) {
            int width = 0;
            scala.collection.Iterator it = ((scala.collection.Seq) rows.next()).iterator();
            while (it.hasNext()) {
                out.raw(',');
                write((Expression) it.next());
                width++;
            }
            widths.comma().number(width);
        }
        out.raw("],").raw(widths.raw(']').toString()).raw(']');
    }

    /* Which interfaces of OpenLineage the node itself ("") or an object in one of its fields implements. */
    private void interfaces(LogicalPlan plan) throws Exception {
        boolean begun = false;
        begun = writeInterfaces("", plan, begun);
        Field[] fields = fields(plan.getClass());
        for (int at = 0; at < fields.length; at++) {
            Object value = fields[at].get(plan);
            if (value != null && !(value instanceof LogicalPlan)) {
                begun = writeInterfaces(fields[at].getName(), value, begun);
            }
        }
        if (begun) {
            out.raw('}');
        }
    }

    private boolean writeInterfaces(String key, Object value, boolean begun) {
        String[] names = interfaces(value.getClass());
        if (names.length == 0) {
            return begun;
        }
        if (!begun) {
            out.raw('{');
        }
        out.key(key).raw('[');
        for (int at = 0; at < names.length; at++) {
            out.comma().string(names[at]);
        }
        out.raw(']');
        return true;
    }

    private static synchronized String[] interfaces(Class cls) {
        Object known = interfacesOf.get(cls.getName());
        if (known == null) {
            TreeSet found = new TreeSet();
            collect(cls, found);
            known = found.toArray(new String[0]);
            interfacesOf.put(cls.getName(), known);
        }
        return (String[]) known;
    }

    private static void collect(Class cls, TreeSet found) {
        if (cls == null) {
            return;
        }
        if (cls.isInterface() && cls.getName().indexOf("openlineage") >= 0) {
            found.add(cls.getName());
        }
        Class[] parents = cls.getInterfaces();
        for (int at = 0; at < parents.length; at++) {
            collect(parents[at], found);
        }
        collect(cls.getSuperclass(), found);
    }

    /* The fields of a case class, those of its constructor first, as they are declared. */
    private static synchronized Field[] fields(Class cls) {
        Object known = fieldsOf.get(cls);
        if (known == null) {
            ArrayList found = new ArrayList();
            Field[] all = cls.getDeclaredFields();
            for (int at = 0; at < all.length; at++) {
                boolean mine = !Modifier.isStatic(all[at].getModifiers()) && all[at].getName().indexOf('$') < 0;
                if (mine && hasGetter(cls, all[at].getName())) {
                    all[at].setAccessible(true);
                    found.add(all[at]);
                }
            }
            known = found.toArray(new Field[0]);
            fieldsOf.put(cls, known);
        }
        return (Field[]) known;
    }

    /* Lazy values have a field as well, which is null until its first use; they are written with a copy method. */
    private static boolean hasGetter(Class cls, String name) {
        try {
            Method getter = cls.getMethod(name, new Class[0]);
            return getter != null && !lazy(cls, name);
        } catch (NoSuchMethodException absent) {
            return false;
        }
    }

    private static boolean lazy(Class cls, String name) {
        Method[] all = cls.getDeclaredMethods();
        for (int at = 0; at < all.length; at++) {
            if (all[at].getName().equals(name + "$lzycompute")) {
                return true;
            }
        }
        return false;
    }

    private static Method details() {
        try {
            Class cls = Class.forName("headwater.lineage.NodeFields", true, PlanWriter.class.getClassLoader());
            return cls.getMethod("node", new Class[] {LogicalPlan.class, JsonWriter.class});
        } catch (Throwable absent) {
            return null;
        }
    }
}

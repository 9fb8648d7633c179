package headwater.lineage;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
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
import org.apache.spark.unsafe.types.UTF8String;

/*
 * One plan as one compact JSON document: nodes in post-order, a shared one once, plans of subqueries among them;
 * of the expressions, those that create or use expression ids. A column that only passes through a node keeps its
 * id and is not mentioned, which is why a 500-step plan stays small. lineage/jvm/plan.py, which reads the
 * document, describes its parts.
 *
 * Roles of expressions are the names of the fields of Spark's own case classes, found by reflection, so that a
 * node which is new in some Spark needs no change here.
 */
public class PlanWriter {
    /* NodeFields.node, for leaves, commands and other nodes that are not in PLAIN; that unit may be missing. */
    private static final Method DETAILS = Reflection.unit(PlanWriter.class, "NodeFields", "node");

    /* Nodes whose columns are those of their children, or the aliases in their own expressions. */
    private static final HashSet PLAIN = new HashSet(Arrays.asList(
        "Project", "Filter", "Sort", "Join", "LateralJoin", "Aggregate", "Window", "GlobalLimit", "LocalLimit",
        "Offset", "Tail", "Sample", "SubqueryAlias", "Repartition", "RepartitionByExpression",
        "RebalancePartitions", "ResolvedHint", "View", "WithCTE", "CollectMetrics", "EventTimeWatermark",
        "ReturnAnswer", "Deduplicate", "DeduplicateWithinWatermark"
    ));
    /* Lists in which an attribute alone is a column that passes through. */
    private static final List LISTS = Arrays.asList("projectList", "aggregateExpressions", "windowExpressions");
    /* Fields that only repeat the node's output or its child's. */
    private static final HashSet OUTPUTS = new HashSet(Arrays.asList(
        "output", "generatorOutput", "outputAttrs", "outputColumns", "partitionCols", "outputObjAttr",
        "isSourceRowPresent", "isTargetRowPresent"
    ));
    /* Instructions of MergeRows: a condition, and the output rows. */
    private static final List MERGE_INSTRUCTIONS = Arrays.asList("Keep", "Split", "Discard", "Insert", "Copy");
    private static final int LONGEST_TEXT = 256;

    /* The parameters of case classes, as fields in the order of their declaration. */
    private static final ClassValue PARAMETERS = new ClassValue() {
        protected Object computeValue(Class type) {
            ArrayList found = new ArrayList();
            for (Object field : Reflection.fields(type)) {
                if (isParameter((Field) field, type)) {
                    found.add(field);
                }
            }
            return found;
        }
    };
    /* The names of the interfaces of OpenLineage that classes implement. */
    private static final ClassValue INTERFACES = new ClassValue() {
        protected Object computeValue(Class type) {
            TreeSet found = new TreeSet();
            collectInterfaces(type, found);
            return found;
        }
    };

    private final JsonWriter out;
    private final IdentityHashMap seen = new IdentityHashMap();
    private final ArrayList nodes = new ArrayList();
    private final ArrayList marks = new ArrayList();

    private PlanWriter(JsonWriter out) {
        this.out = out;
    }

    /* Writes the document; returns the plan's nodes, each at the index that is its id in the document. */
    public static ArrayList plan(LogicalPlan plan, JsonWriter out) {
        PlanWriter walk = new PlanWriter(out);
        int start = out.mark();
        int root = -1;
        String cut = null;
        out.raw("{\"v\":1,\"nodes\":[");
        walk.marks.add(out.mark());
        try {
            root = walk.visit(plan, true);
        } catch (JsonWriter.Full full) {
            cut = "the plan is larger than its byte budget";
        } catch (StackOverflowError deep) {
            cut = "the plan is nested too deeply";
        }
        // the text after the last complete node is removed, and further nodes until the end of the document fits
        for (int kept = walk.marks.size() - 1; kept >= 0; kept--) {
            out.back((Integer) walk.marks.get(kept));
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

    /* One expression alone, for lineage nodes that name an expression instead of ids. */
    public static void expression(Expression expression, JsonWriter out) throws Exception {
        new PlanWriter(out).write(expression);
    }

    private int visit(LogicalPlan plan, boolean typed) {
        Object before = seen.get(plan);
        if (before != null && !typed) {
            return (Integer) before;
        }
        if (before != null) {
            // now needed with names and types, which an additional SameNode lists
            return emit(plan, "headwater.SameNode", Arrays.asList(before), new ArrayList(), true, false);
        }
        // the write of a micro-batch is not a Command, but its query also needs names and types
        boolean command = plan instanceof Command || plan.getClass().getSimpleName().startsWith("WriteTo");
        // and so do the rows that a function of Python takes, which may store them
        boolean named = command || plan.getClass().getSimpleName().contains("MapIn");
        ArrayList kids = new ArrayList();
        ArrayList inner = new ArrayList();
        IdentityHashMap children = new IdentityHashMap();
        for (Object child : Reflection.each(plan.children())) {
            children.put(child, child);
            kids.add(visit((LogicalPlan) child, named));
        }
        // the inner children of most nodes are their subqueries, which are in their expressions as well
        for (Object subquery : Reflection.each(plan.subqueries())) {
            children.put(subquery, subquery);
        }
        for (Object child : Reflection.each(plan.innerChildren())) {
            if (child instanceof LogicalPlan && !children.containsKey(child)) {
                inner.add(visit((LogicalPlan) child, true));
            }
        }
        if (command && inner.isEmpty() && kids.isEmpty()) {
            // the query of saveAsTable, and source and target of Delta's MERGE, are not among the children
            for (String field : new String[] {"query", "source", "target"}) {
                Object query = Reflection.callOrNull(plan, field);
                if (query instanceof LogicalPlan) {
                    inner.add(visit((LogicalPlan) query, true));
                }
            }
        }
        for (Object expression : Reflection.each(plan.expressions())) {
            subqueries((Expression) expression);
        }
        int id = emit(plan, plan.getClass().getName(), kids, inner, typed, true);
        seen.put(plan, id);
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
        for (Object child : Reflection.each(expression.children())) {
            subqueries((Expression) child);
        }
    }

    private int emit(LogicalPlan plan, String cls, List kids, List inner, boolean typed, boolean whole) {
        int id = nodes.size();
        boolean plain = PLAIN.contains(cls.substring(cls.lastIndexOf('.') + 1));
        boolean leaf = kids.isEmpty() && inner.isEmpty();
        out.comma().raw("{\"id\":").number(id).field("cls", cls);
        if (!kids.isEmpty()) {
            out.key("kids").list(kids);
        }
        if (!inner.isEmpty()) {
            out.key("inner").list(inner);
        }
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
        marks.add(out.mark());
        return id;
    }

    /* One key of a node; if it fails, `no_<key>` has the reason and the other keys are still written. */
    private void part(String key, LogicalPlan plan, boolean typed) {
        int mark = out.mark();
        try {
            int begun = out.key(key).mark();
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
                int known = out.cutCount();
                Reflection.invoke(DETAILS, plan, out);
                if (out.cuts(known) != null) {
                    out.key("cut_f").string(out.cuts(known), LONGEST_TEXT);
                }
            }
            if (out.mark() == begun) {
                out.back(mark);
            }
        } catch (JsonWriter.Full full) {
            throw full;
        } catch (StackOverflowError deep) {
            throw deep;
        } catch (Throwable error) {
            out.back(mark);
            out.key("no_" + key).string(String.valueOf(error), LONGEST_TEXT);
        }
    }

    private void output(LogicalPlan plan, boolean typed) {
        int begun = out.mark();
        out.raw('[');
        for (Object each : Reflection.each(plan.output())) {
            Attribute attribute = (Attribute) each;
            out.comma().raw('[').number(attribute.exprId().id()).raw(',').string(attribute.name());
            if (typed) {
                out.raw(',').raw(attribute.dataType().json());
            }
            out.raw(']');
        }
        out.end(begun, ']');
    }

    private void inputs(LogicalPlan plan) {
        int begun = out.mark();
        out.raw('[');
        for (Object child : Reflection.each(plan.children())) {
            out.comma().raw('[');
            for (Object attribute : Reflection.each(((LogicalPlan) child).output())) {
                out.comma().number(((Attribute) attribute).exprId().id());
            }
            out.raw(']');
        }
        out.end(begun, ']');
    }

    private void expressions(LogicalPlan plan) throws Exception {
        int begun = out.mark();
        out.raw('{');
        for (Object each : parameters(plan)) {
            Field field = (Field) each;
            if (!OUTPUTS.contains(field.getName())) {
                role(field.getName(), Reflection.option(field.get(plan)));
            }
        }
        out.end(begun, '}');
    }

    /* One field with its expressions, or with another value that a rule needs; nothing for other fields. */
    private void role(String role, Object value) throws Exception {
        int mark = out.mark();
        out.key(role);
        if (value instanceof Expression) {
            out.raw('[');
            write((Expression) value);
            out.raw(']');
        } else if (holdsExpressions(value)) {
            if (!list((scala.collection.Seq) value, LISTS.contains(role))) {
                out.back(mark);
            }
        } else if ((value instanceof Long || value instanceof Integer)
                && (role.equals("id") || role.endsWith("Id") || role.endsWith("Len"))) {
            out.raw(value.toString());
        } else if (role.equals("joinType")) {
            out.string(String.valueOf(value), LONGEST_TEXT);
        } else {
            out.back(mark);
        }
    }

    private static boolean holdsExpressions(Object value) {
        if (!(value instanceof scala.collection.Seq) || ((scala.collection.Seq) value).isEmpty()) {
            return false;
        }
        Object first = ((scala.collection.Seq) value).head();
        return first instanceof Expression || holdsExpressions(first);
    }

    /* Writes the expressions of a list; false if `skip` leaves none. */
    private boolean list(scala.collection.Seq seq, boolean skip) throws Exception {
        boolean any = false;
        out.raw('[');
        for (Object one : Reflection.each(seq)) {
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
        } else if (expression instanceof Attribute
                || cls.startsWith("Outer") && expression instanceof NamedExpression) {
            out.raw("[\"a\",").number(((NamedExpression) expression).exprId().id()).raw(']');
        } else if (cls.equals("NamedLambdaVariable")) {
            out.raw("[\"v\",").number(((NamedExpression) expression).exprId().id()).raw(']');
        } else if (expression instanceof Literal) {
            literal(((Literal) expression).value());
        } else if (expression instanceof PlanExpression) {
            Object id = seen.get(((PlanExpression) expression).plan());
            out.raw("[\"q\",").string(cls).raw(',').raw(id == null ? "-1" : id.toString()).raw(']');
        } else {
            function(expression, cls);
        }
    }

    private void literal(Object value) {
        out.raw("[\"l\"");
        if (value instanceof Integer || value instanceof Long
                || value instanceof UTF8String && value.toString().length() <= LONGEST_TEXT) {
            out.raw(',').value(value, LONGEST_TEXT);
        }
        out.raw(']');
    }

    private void function(Expression expression, String cls) throws Exception {
        List kids = Reflection.each(expression.children());
        if (cls.equals("Cast")) {
            Expression inner = (Expression) kids.get(0);
            if (expression.dataType().catalogString().equals(inner.dataType().catalogString())) {
                write(inner);  // views cast every column to the type it has already
                return;
            }
        }
        boolean few = cls.equals("In");
        Object extra = extra(expression, cls);
        Object parameters = Reflection.callOrNull(expression, "parameters");
        if (MERGE_INSTRUCTIONS.contains(cls)) {
            kids = new ArrayList();
            kids.add(Reflection.call(expression, "condition"));
            for (Object row : Reflection.each(Reflection.call(expression, "outputs"))) {
                kids.addAll(Reflection.each(row));
            }
        } else if (holdsExpressions(parameters)) {
            kids = Reflection.each(parameters);  // the function as the user wrote it, without its replacement
        }
        out.raw("[\"f\",").string(cls).raw(",[");
        for (Object kid : kids) {
            if (kid instanceof Expression && !(few && kid instanceof Literal)) {
                out.comma();
                write((Expression) kid);
            }
        }
        out.raw(']');
        if (extra instanceof List) {
            out.raw(',').list((List) extra);
        } else if (extra != null) {
            out.raw(',').string(extra.toString(), LONGEST_TEXT);
        }
        out.raw(']');
    }

    /* The value that a rule needs of a function besides its children: a text, or a list. */
    private static Object extra(Expression expression, String cls) throws Exception {
        if (cls.equals("GetStructField")) {
            return Reflection.call(expression, "extractFieldName");
        }
        if (cls.equals("GetArrayStructFields")) {
            return Reflection.call(Reflection.call(expression, "field"), "name");
        }
        if (cls.equals("UpdateFields")) {
            return operations(expression);
        }
        if (MERGE_INSTRUCTIONS.contains(cls)) {  // the number of columns of each output row
            ArrayList widths = new ArrayList();
            for (Object row : Reflection.each(Reflection.call(expression, "outputs"))) {
                widths.add(Reflection.each(row).size());
            }
            return widths;
        }
        if (cls.endsWith("UDF") || cls.endsWith("UDTF") || cls.endsWith("UDAF")) {
            return Reflection.callOrNull(expression, cls.startsWith("Scala") ? "udfName" : "name");
        }
        if (cls.endsWith("ElementAt") && !expression.children().isEmpty()) {
            Object type = ((Expression) expression.children().head()).dataType();
            return type.getClass().getSimpleName().equals("MapType") ? "value" : null;
        }
        if (cls.equals("DeltaMergeAction")) {
            Object parts = Reflection.callOrNull(expression, "targetColNameParts");
            return parts instanceof scala.collection.Seq ? ((scala.collection.Seq) parts).mkString(".") : null;
        }
        if (cls.equals("Inline")) {
            return Reflection.each(((StructType) Reflection.call(expression, "elementSchema")).fieldNames());
        }
        if (cls.equals("Cast") && expression.dataType() instanceof StructType) {
            return Reflection.each(((StructType) expression.dataType()).fieldNames());
        }
        if (cls.equals("VariableReference")) {
            Object parts = Reflection.callOrNull(expression, "originalNameParts");
            return parts instanceof scala.collection.Seq ? ((scala.collection.Seq) parts).mkString(".") : null;
        }
        if (cls.equals("StaticInvoke") || cls.equals("Invoke")) {
            return Reflection.callOrNull(expression, "functionName");
        }
        return null;
    }

    /* `withField` and `dropFields`: "+name" takes the next of the children, "-name" none. */
    private static List operations(Expression expression) throws Exception {
        ArrayList found = new ArrayList();
        for (Object operation : Reflection.each(Reflection.call(expression, "fieldOps"))) {
            String sign = operation.getClass().getSimpleName().startsWith("With") ? "+" : "-";
            found.add(sign + Reflection.call(operation, "name"));
        }
        return found;
    }

    /* Which interfaces of OpenLineage the node itself ("") or an object in one of its fields implements. */
    private void interfaces(LogicalPlan plan) {
        int begun = out.mark();
        out.raw('{');
        interfaces("", plan);
        for (Object each : parameters(plan)) {
            Object value = Reflection.valueOrNull((Field) each, plan);
            if (value != null && !(value instanceof LogicalPlan)) {
                interfaces(((Field) each).getName(), value);
            }
        }
        out.end(begun, '}');
    }

    private void interfaces(String key, Object value) {
        TreeSet names = (TreeSet) INTERFACES.get(value.getClass());
        if (!names.isEmpty()) {
            out.key(key).list(names);
        }
    }

    private static void collectInterfaces(Class type, TreeSet found) {
        if (type == null) {
            return;
        }
        if (type.isInterface() && type.getName().indexOf("openlineage") >= 0) {
            found.add(type.getName());
        }
        for (Class parent : type.getInterfaces()) {
            collectInterfaces(parent, found);
        }
        collectInterfaces(type.getSuperclass(), found);
    }

    private static List parameters(LogicalPlan plan) {
        return (List) PARAMETERS.get(plan.getClass());
    }

    /* Whether a field is a parameter or a value. Lazy values, whose field is null before their first use, are not. */
    private static boolean isParameter(Field field, Class type) {
        String name = field.getName();
        if (field.getDeclaringClass() != type || name.indexOf('$') >= 0) {
            return false;
        }
        Method getter = Reflection.method(type, name);
        Method lazy = Reflection.method(type, name + "$lzycompute");
        return getter != null && Modifier.isPublic(getter.getModifiers())
                && (lazy == null || lazy.getDeclaringClass() != type);
    }
}

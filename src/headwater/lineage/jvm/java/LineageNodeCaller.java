package headwater.lineage;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

/*
 * Calls lineage methods of plan nodes. Their interfaces have had several packages and signatures over the years, so
 * methods are found by name, arguments are created by parameter type, and results are written as they are: objects
 * as their class and fields, plan nodes as their numbers, expressions as PlanWriter writes them.
 */
public class LineageNodeCaller {
    private static final int DEEPEST = 10;
    private static final int BUDGET = 8 * 1024 * 1024;

    private final JsonWriter out = new JsonWriter(BUDGET);
    private final IdentityHashMap numbers = new IdentityHashMap();

    private LineageNodeCaller(List nodes) {
        for (int at = nodes.size() - 1; at >= 0; at--) {
            numbers.put(nodes.get(at), at);
        }
    }

    /*
     * The result of a method of one of a plan's nodes, or of the object in one of its fields; "null" if it has no
     * such method. `event` is the name of the listener event, an argument of the newer interfaces.
     */
    public static String call(List nodes, int node, String field, String method, String event) throws Throwable {
        LineageNodeCaller caller = new LineageNodeCaller(nodes);
        Object owner = nodes.get(node);
        Object target = field.isEmpty() ? owner : field(owner, field);
        for (Method each : target == null ? new Method[0] : target.getClass().getMethods()) {
            if (each.getName().equals(method) && !each.isBridge()) {
                each.setAccessible(true);
                try {
                    caller.write(each.invoke(target, arguments(each.getParameterTypes(), event, owner)), 0);
                } catch (InvocationTargetException error) {
                    throw error.getCause();
                }
                return caller.out.toString();
            }
        }
        return "null";
    }

    /* The pickled instance of a data source written in Python, on the reading side; null if it is none. */
    public static byte[] pythonSource(List nodes, int node) {
        Object table = field(nodes.get(node), "table");
        if (table == null) {
            table = field(field(nodes.get(node), "relation"), "table");
        }
        Object source = field(table, "ds");
        Object pickled = field(field(source, "dataSourceInPython"), "dataSource");
        return pickled instanceof byte[] ? (byte[]) pickled : null;
    }

    /* The pickled class of a data source written in Python, by its name in a query's session; null if it has none. */
    public static byte[] pythonSourceClass(Object query, String name) throws Throwable {
        Object state = Reflection.call(Reflection.call(query, "sparkSession"), "sessionState");
        Object manager = Reflection.call(state, "dataSourceManager");
        Object source = manager.getClass().getMethod("lookupDataSource", String.class).invoke(manager, name);
        Object command = Reflection.call(Reflection.callOrNull(source, "dataSourceCls"), "command");
        List bytes = Reflection.each(command);
        byte[] found = new byte[bytes.size()];
        for (int at = 0; at < found.length; at++) {
            found[at] = ((Byte) bytes.get(at)).byteValue();
        }
        return found;
    }

    /* The options of a write to such a source, as a JSON object. */
    public static String pythonOptions(List nodes, int node) {
        Object options = field(nodes.get(node), "writeOptions");
        Map found = options == null ? new java.util.HashMap() : Reflection.map(options);
        Object relation = field(nodes.get(node), "table");
        Object own = relation == null ? null : Reflection.callOrNull(relation, "options");
        if (own instanceof org.apache.spark.sql.util.CaseInsensitiveStringMap) {
            found = new java.util.HashMap(found);
            found.putAll(((org.apache.spark.sql.util.CaseInsensitiveStringMap) own).asCaseSensitiveMap());
        }
        JsonWriter out = new JsonWriter(BUDGET);
        out.raw('{');
        for (Object each : found.entrySet()) {
            Map.Entry entry = (Map.Entry) each;
            out.key(String.valueOf(entry.getKey())).string(String.valueOf(entry.getValue()));
        }
        return out.raw('}').toString();
    }

    private static Object[] arguments(Class[] types, String event, Object owner) {
        Object[] made = new Object[types.length];
        for (int at = 0; at < types.length; at++) {
            if (types[at] == Object.class) {
                // RelationProvider's own arguments: the session, which is not needed here, and the options
                made[at] = at == types.length - 1 ? Reflection.callOrNull(owner, "options") : null;
            } else {
                made[at] = argument(types[at], event, 0);
            }
        }
        return made;
    }

    private static Object argument(Class type, String event, int depth) {
        if (type == String.class) {
            return event;
        }
        if (type.isInterface()) {
            return Proxy.newProxyInstance(type.getClassLoader(), new Class[] {type}, new Context(event));
        }
        for (int wanted = 1; wanted >= 0; wanted--) {
            for (Constructor each : type.getConstructors()) {
                Class[] needed = each.getParameterTypes();
                try {
                    if (needed.length != wanted) {
                        continue;
                    }
                    if (wanted == 0) {
                        return each.newInstance();
                    }
                    if (needed[0] == java.net.URI.class) {
                        return each.newInstance(java.net.URI.create("https://headwater.dev"));
                    }
                    if (depth < 2 && !needed[0].isPrimitive()) {
                        return each.newInstance(argument(needed[0], event, depth + 1));
                    }
                } catch (Throwable unsuitable) {
                    // the next one, or none
                }
            }
        }
        return null;
    }

    /* The context that older interfaces require: the builder of facets and the name of the event. */
    public static class Context implements InvocationHandler {
        private final String event;

        public Context(String event) {
            this.event = event;
        }

        public Object invoke(Object proxy, Method method, Object[] given) {
            Class type = method.getReturnType();
            if (type == boolean.class) {
                return Boolean.FALSE;
            }
            if (type.isPrimitive() || type == Object.class) {
                return null;
            }
            return argument(type, event, 1);
        }
    }

    private void write(Object value, int depth) throws Exception {
        value = Reflection.option(value);
        if (value == null || depth > DEEPEST) {
            out.raw("null");
        } else if (value instanceof LogicalPlan) {
            plan((LogicalPlan) value);
        } else if (value instanceof Expression) {
            out.raw("{\"@\":\"expression\",\"of\":");
            PlanWriter.expression((Expression) value, out);
            out.raw('}');
        } else if (value instanceof Number || value instanceof Boolean) {
            out.raw(value.toString());
        } else if (value instanceof scala.collection.Map || value instanceof Map) {
            out.raw('{');
            for (Object each : Reflection.map(value).entrySet()) {
                Map.Entry entry = (Map.Entry) each;
                out.key(String.valueOf(entry.getKey()));
                write(entry.getValue(), depth + 1);
            }
            out.raw('}');
        } else if (value instanceof scala.collection.Iterable || value instanceof Iterable) {
            out.raw('[');
            for (Object each : Reflection.each(value)) {
                out.comma();
                write(each, depth + 1);
            }
            out.raw(']');
        } else if (value instanceof CharSequence || value.getClass().getName().startsWith("java.")
                || value instanceof Enum) {
            out.string(value.toString());
        } else {
            object(value, depth);
        }
    }

    private void plan(LogicalPlan plan) {
        Object number = numbers.get(plan);
        if (number != null) {
            out.raw("{\"@\":\"node\",\"id\":").number((Integer) number);
        } else {
            out.raw("{\"@\":\"plan\",\"of\":");
            PlanWriter.plan(plan, out);
        }
        out.raw('}');
    }

    /* The class of an object and its properties: getters, or the fields of a case class. */
    private void object(Object value, int depth) throws Exception {
        String name = value.getClass().getSimpleName();
        Object built = name.endsWith("Builder") ? Reflection.callOrNull(value, "build") : null;
        if (built != null) {
            write(built, depth);
            return;
        }
        out.raw("{\"@\":").string(name);
        HashSet written = new HashSet();
        for (Method each : value.getClass().getMethods()) {
            String getter = each.getName();
            boolean plain = each.getParameterTypes().length == 0 && !Modifier.isStatic(each.getModifiers());
            if (plain && getter.startsWith("get") && getter.length() > 3 && !getter.equals("getClass")) {
                String property = getter.substring(3, 4).toLowerCase() + getter.substring(4);
                property(written, property, Reflection.callOrNull(value, getter), depth);
            }
        }
        if (written.isEmpty()) {  // else its fields are private
            for (Object each : Reflection.fields(value.getClass())) {
                Field field = (Field) each;
                if (field.getDeclaringClass() == value.getClass() && field.getName().indexOf('$') < 0) {
                    property(written, field.getName(), Reflection.valueOrNull(field, value), depth);
                }
            }
        }
        out.raw('}');
    }

    private void property(HashSet written, String name, Object value, int depth) throws Exception {
        if (value != null && written.add(name)) {
            out.key(name);
            write(value, depth + 1);
        }
    }

    private static Object field(Object target, String name) {
        Object value = Reflection.fieldOrNull(target, name);
        return value != null ? value : Reflection.callOrNull(target, name);
    }
}

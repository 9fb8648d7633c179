package headwater.lineage;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.IdentityHashMap;

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

    private final ArrayList nodes;
    private final JsonWriter out = new JsonWriter(BUDGET);
    private final IdentityHashMap numbers = new IdentityHashMap();

    private LineageNodeCaller(ArrayList nodes) {
        this.nodes = nodes;
        for (int at = nodes.size() - 1; at >= 0; at--) {
            numbers.put(nodes.get(at), Integer.valueOf(at));
        }
    }

    /*
     * The result of a method of a node, or of the object in one of its fields; "null" if it has no such method.
     * `event` is the name of the listener event, an argument of the newer interfaces.
     */
    public static String call(LogicalPlan plan, int node, String field, String method, String event)
            throws Throwable {
        LineageNodeCaller asked = new LineageNodeCaller(PlanWriter.nodes(plan));
        Object owner = asked.nodes.get(node);
        Object target = field.isEmpty() ? owner : field(owner, field);
        Method[] all = target == null ? new Method[0] : target.getClass().getMethods();
        for (int at = 0; at < all.length; at++) {
            if (all[at].getName().equals(method) && !all[at].isBridge()) {
                all[at].setAccessible(true);
                try {
                    Object[] arguments = arguments(all[at].getParameterTypes(), event, owner);
                    asked.write(all[at].invoke(target, arguments), 0);
                } catch (InvocationTargetException error) {
                    throw error.getCause();
                }
                return asked.out.toString();
            }
        }
        return "null";
    }

    /* The pickled instance of a data source written in Python, on the reading side; null if it is none. */
    public static byte[] pythonSource(LogicalPlan plan, int node) {
        try {
            Object table = field(PlanWriter.nodes(plan).get(node), "table");
            Object source = Reflection.callOrNull(table, "ds");
            if (source == null) {
                source = field(table, "ds");
            }
            Object made = field(source, "dataSourceInPython");
            return (byte[]) field(made, "dataSource");
        } catch (Throwable absent) {
            return null;
        }
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
        Constructor[] all = type.getConstructors();
        for (int wanted = 1; wanted >= 0; wanted--) {
            for (int at = 0; at < all.length; at++) {
                Class[] needed = all[at].getParameterTypes();
                try {
                    if (wanted == 1 && needed.length == 1 && needed[0] == java.net.URI.class) {
                        return all[at].newInstance(new Object[] {java.net.URI.create("https://headwater.dev")});
                    }
                    if (wanted == 1 && needed.length == 1 && depth < 2 && !needed[0].isPrimitive()) {
                        return all[at].newInstance(new Object[] {argument(needed[0], event, depth + 1)});
                    }
                    if (wanted == 0 && needed.length == 0) {
                        return all[at].newInstance(new Object[0]);
                    }
                } catch (Throwable unsuitable) {
                    // the next one, or none
                }
            }
        }
        return null;
    }

    /* The context that older interfaces want: the builder of facets and the name of the event. */
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
        if (value == null || depth > DEEPEST) {
            out.raw("null");
        } else if (value instanceof scala.Option) {
            write(((scala.Option) value).isDefined() ? ((scala.Option) value).get() : null, depth);
        } else if (value instanceof LogicalPlan) {
            plan((LogicalPlan) value);
        } else if (value instanceof Expression) {
            out.raw("{\"@\":\"expression\",\"of\":");
            PlanWriter.expression((Expression) value, out);
            out.raw('}');
        } else if (value instanceof Number) {
            out.raw(value.toString());
        } else if (value instanceof Boolean) {
            out.bool(((Boolean) value).booleanValue());
        } else if (value instanceof scala.collection.Map) {
            map(((scala.collection.Map) value).iterator(), depth);
        } else if (value instanceof java.util.Map) {
            map(((java.util.Map) value).entrySet().iterator(), depth);
        } else if (value instanceof scala.collection.Iterable) {
            list(((scala.collection.Iterable) value).iterator(), depth);
        } else if (value instanceof Iterable) {
            list(((Iterable) value).iterator(), depth);
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
            out.raw("{\"@\":\"node\",\"id\":").number(((Integer) number).intValue()).raw('}');
            return;
        }
        out.raw("{\"@\":\"plan\",\"of\":");
        PlanWriter.plan(plan, out);
        out.raw('}');
    }

    private void list(Object iterator, int depth) throws Exception {
        out.raw('[');
        while (hasNext(iterator)) {
            out.comma();
            write(next(iterator), depth + 1);
        }
        out.raw(']');
    }

    private void map(Object iterator, int depth) throws Exception {
        out.raw('{');
        while (hasNext(iterator)) {
            Object entry = next(iterator);
            boolean pair = entry instanceof scala.Tuple2;
            Object key = pair ? ((scala.Tuple2) entry)._1() : ((java.util.Map.Entry) entry).getKey();
            out.key(String.valueOf(key));
            write(pair ? ((scala.Tuple2) entry)._2() : ((java.util.Map.Entry) entry).getValue(), depth + 1);
        }
        out.raw('}');
    }

    private static boolean hasNext(Object iterator) {
        return iterator instanceof java.util.Iterator
                ? ((java.util.Iterator) iterator).hasNext() : ((scala.collection.Iterator) iterator).hasNext();
    }

    private static Object next(Object iterator) {
        return iterator instanceof java.util.Iterator
                ? ((java.util.Iterator) iterator).next() : ((scala.collection.Iterator) iterator).next();
    }

    /* The class of an object and its properties: getters, or the fields of a case class. */
    private void object(Object value, int depth) throws Exception {
        String name = value.getClass().getSimpleName();
        if (name.endsWith("Builder")) {
            Object built = Reflection.callOrNull(value, "build");
            if (built != null) {
                write(built, depth);
                return;
            }
        }
        out.raw("{\"@\":").string(name);
        java.util.HashSet written = new java.util.HashSet();
        Method[] all = value.getClass().getMethods();
        for (int at = 0; at < all.length; at++) {
            String getter = all[at].getName();
            boolean plain = all[at].getParameterTypes().length == 0 && !Modifier.isStatic(all[at].getModifiers());
            if (plain && getter.startsWith("get") && getter.length() > 3 && !getter.equals("getClass")) {
                property(written, getter.substring(3, 4).toLowerCase() + getter.substring(4), call(value, all[at]), depth);
            }
        }
        Field[] fields = value.getClass().getDeclaredFields();
        boolean getters = !written.isEmpty();  // then its fields are private
        for (int at = 0; at < fields.length && !getters; at++) {
            if (!Modifier.isStatic(fields[at].getModifiers()) && fields[at].getName().indexOf('$') < 0) {
                property(written, fields[at].getName(), field(value, fields[at].getName()), depth);
            }
        }
        out.raw('}');
    }

    private void property(java.util.HashSet written, String name, Object value, int depth) throws Exception {
        if (value != null && written.add(name)) {
            out.key(name);
            write(value, depth + 1);
        }
    }

    private static Object call(Object target, Method method) {
        try {
            method.setAccessible(true);
            return method.invoke(target, new Object[0]);
        } catch (Throwable absent) {
            return null;
        }
    }

    private static Object field(Object target, String name) {
        Object value = Reflection.fieldOrNull(target, name);
        return value != null ? value : Reflection.callOrNull(target, name);
    }
}

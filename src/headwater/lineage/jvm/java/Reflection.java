package headwater.lineage;

import java.lang.reflect.AccessibleObject;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/*
 * Reflection, for everything beyond the basics of Spark: a member that a release has renamed or hidden then costs one
 * piece of information, and not the compilation of the unit that reads it. Each member of a class is looked up once,
 * also a missing one: the exception for a missing method costs more than a short plan.
 */
public class Reflection {
    private static final Object NONE = new Object();

    // stored with their class, so that no cache keeps a class loader alive
    private static final ClassValue METHODS = new ClassValue() {
        protected Object computeValue(Class type) {
            return new ConcurrentHashMap();
        }
    };
    private static final ClassValue FIELDS = new ClassValue() {
        protected Object computeValue(Class type) {
            return allFields(type);
        }
    };

    /* ------------------------------------------------------------------ Scala's collections as Java's */

    public static Object option(Object value) {
        if (value instanceof scala.Option) {
            return ((scala.Option) value).isEmpty() ? null : ((scala.Option) value).get();
        }
        return value;
    }

    /* The items of a collection, an iterator or an array, of Scala or Java; none of anything else. */
    public static List each(Object many) {
        if (many instanceof List) {
            return (List) many;
        }
        if (many instanceof Object[]) {
            return Arrays.asList((Object[]) many);
        }
        ArrayList found = new ArrayList();
        if (many instanceof Iterable) {
            for (Object one : (Iterable) many) {
                found.add(one);
            }
        }
        Object items = many instanceof scala.collection.Iterable ? ((scala.collection.Iterable) many).iterator() : many;
        if (items instanceof scala.collection.Iterator) {
            while (((scala.collection.Iterator) items).hasNext()) {
                found.add(((scala.collection.Iterator) items).next());
            }
        }
        return found;
    }

    /* A map of Scala or Java; empty for anything else. */
    public static Map map(Object pairs) {
        if (pairs instanceof Map) {
            return (Map) pairs;
        }
        LinkedHashMap found = new LinkedHashMap();
        if (pairs instanceof scala.collection.Map) {
            for (Object pair : each(pairs)) {
                found.put(((scala.Tuple2) pair)._1(), ((scala.Tuple2) pair)._2());
            }
        }
        return found;
    }

    /* ------------------------------------------------------------------ members by name */

    /* The result of a method without arguments, public or not, of the class or of one above. */
    public static Object call(Object on, String name) throws Exception {
        Method method = method(on.getClass(), name);
        if (method == null) {
            throw new NoSuchMethodException(on.getClass().getName() + "." + name);
        }
        return method.invoke(on);
    }

    /* The same, without its Option; null if the method is missing or throws. */
    public static Object callOrNull(Object on, String name) {
        try {
            Method method = on == null ? null : method(on.getClass(), name);
            return method == null ? null : option(method.invoke(on));
        } catch (Throwable error) {
            return null;
        }
    }

    /* A field's value or null; Scala writes the names of some private fields with their class before them. */
    public static Object fieldOrNull(Object on, String name) {
        for (Object each : on == null ? new ArrayList() : fields(on.getClass())) {
            Field field = (Field) each;
            if (field.getName().equals(name) || field.getName().endsWith("$$" + name)) {
                return valueOrNull(field, on);
            }
        }
        return null;
    }

    public static Object valueOrNull(Field field, Object on) {
        try {
            return field.get(on);
        } catch (Throwable closed) {
            return null;
        }
    }

    /* The fields of instances of a class, its own before those of the classes above. */
    public static List fields(Class type) {
        return (List) FIELDS.get(type);
    }

    private static List allFields(Class type) {
        ArrayList found = new ArrayList();
        for (Class at = type; at != null; at = at.getSuperclass()) {
            try {
                for (Field field : at.getDeclaredFields()) {
                    if (!Modifier.isStatic(field.getModifiers())) {
                        found.add(open(field));
                    }
                }
            } catch (LinkageError missing) {
                // the class of a field is in no jar
            }
        }
        return found;
    }

    /* A method without arguments, of the class or of one above; null if there is none. */
    public static Method method(Class type, String name) {
        ConcurrentHashMap known = (ConcurrentHashMap) METHODS.get(type);
        Object found = known.get(name);
        if (found == null) {
            found = find(type, name);
            known.put(name, found == null ? NONE : found);
        }
        return found instanceof Method ? (Method) found : null;
    }

    private static Method find(Class type, String name) {
        try {
            return (Method) open(type.getMethod(name));     // Spark's private ones are public in bytecode
        } catch (NoSuchMethodException hidden) {
            // not public, or missing
        }
        for (Class at = type; at != null; at = at.getSuperclass()) {
            try {
                return (Method) open(at.getDeclaredMethod(name));
            } catch (NoSuchMethodException next) {
                // in a class above
            }
        }
        return null;
    }

    private static AccessibleObject open(AccessibleObject member) {
        try {
            member.setAccessible(true);
        } catch (RuntimeException closed) {
            // a method of the JDK: public methods of public classes work without
        }
        return member;
    }

    /* ------------------------------------------------------------------ units that may be missing */

    /* A static method of another unit; null if this Spark does not compile that unit. */
    public static Method unit(Class asking, String unit, String name) {
        try {
            Class found = Class.forName("headwater.lineage." + unit, true, asking.getClassLoader());
            for (Method method : found.getMethods()) {
                if (method.getName().equals(name)) {
                    return method;
                }
            }
        } catch (Throwable missing) {
            // the feature of the unit is missing
        }
        return null;
    }

    /* The result of a method of `unit`; throws what the method throws. */
    public static Object invoke(Method method, Object... arguments) throws Throwable {
        if (method == null) {
            throw new UnsupportedOperationException("a unit of the agent does not compile on this Spark");
        }
        try {
            return method.invoke(null, arguments);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }
}

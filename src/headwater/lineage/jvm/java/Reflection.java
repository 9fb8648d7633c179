package headwater.lineage;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.concurrent.ConcurrentHashMap;

/*
 * Reflection, for everything beyond the basics of Spark: what a release has renamed or hidden then costs one piece
 * of information where it is asked for, and not the compilation of the unit that asks. What a class has, and what
 * it has not, is looked up once: the exception for a method that is missing costs more than a short plan.
 */
public class Reflection {
    private static final Object NONE = new Object();
    private static final ClassValue METHODS = new Names();
    private static final ClassValue FIELDS = new Names();

    /* Members by name, stored with their class, so that the cache keeps no class loader alive. */
    public static final class Names extends ClassValue {
        protected Object computeValue(Class type) {
            return new ConcurrentHashMap();
        }
    }

    public static Object option(Object value) {
        if (value instanceof scala.Option) {
            return ((scala.Option) value).isEmpty() ? null : ((scala.Option) value).get();
        }
        return value;
    }

    /* The result of a method without arguments, public or not, of the class or of one above. */
    public static Object call(Object on, String name) throws Exception {
        Method method = method(on.getClass(), name);
        if (method == null) {
            throw new NoSuchMethodException(on.getClass().getName() + "." + name);
        }
        return method.invoke(on, new Object[0]);
    }

    /* The same, but null where it is not there or fails. */
    public static Object callOrNull(Object on, String name) {
        try {
            Method method = on == null ? null : method(on.getClass(), name);
            return method == null ? null : method.invoke(on, new Object[0]);
        } catch (Throwable error) {
            return null;
        }
    }

    /* A field's value or null; Scala writes the names of some private fields with their class before them. */
    public static Object fieldOrNull(Object on, String name) {
        try {
            Field field = on == null ? null : field(on.getClass(), name);
            return field == null ? null : field.get(on);
        } catch (Throwable error) {
            return null;
        }
    }

    private static Method method(Class cls, String name) {
        ConcurrentHashMap known = (ConcurrentHashMap) METHODS.get(cls);
        Object found = known.get(name);
        if (found == null) {
            found = find(cls, name);
            known.put(name, found == null ? NONE : found);
        }
        return found instanceof Method ? (Method) found : null;
    }

    private static Method find(Class cls, String name) {
        try {
            return opened(cls.getMethod(name, new Class[0]));   // Spark's private ones are public in bytecode
        } catch (NoSuchMethodException hidden) {
            // perhaps it is not public
        }
        for (Class at = cls; at != null; at = at.getSuperclass()) {
            try {
                return opened(at.getDeclaredMethod(name, new Class[0]));
            } catch (NoSuchMethodException next) {
                // in a class above
            }
        }
        return null;
    }

    private static Method opened(Method method) {
        try {
            method.setAccessible(true);
        } catch (RuntimeException closed) {
            // the JDK's own: those that are public in a public class work without
        }
        return method;
    }

    private static Field field(Class cls, String name) {
        ConcurrentHashMap known = (ConcurrentHashMap) FIELDS.get(cls);
        Object found = known.get(name);
        if (found == null) {
            found = findField(cls, name);
            known.put(name, found == null ? NONE : found);
        }
        return found instanceof Field ? (Field) found : null;
    }

    private static Field findField(Class cls, String name) {
        for (Class at = cls; at != null; at = at.getSuperclass()) {
            Field[] all = at.getDeclaredFields();
            for (int i = 0; i < all.length; i++) {
                if (all[i].getName().equals(name) || all[i].getName().endsWith("$$" + name)) {
                    try {
                        all[i].setAccessible(true);
                        return all[i];
                    } catch (RuntimeException closed) {
                        return null;
                    }
                }
            }
        }
        return null;
    }
}

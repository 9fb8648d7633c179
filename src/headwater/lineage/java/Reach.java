package headwater.lineage;

import java.lang.reflect.Field;
import java.lang.reflect.Method;

/*
 * Reflection, for everything beyond the basics of Spark: what a release has renamed or hidden then costs one piece
 * of information where it is asked for, and not the compilation of the unit that asks.
 */
public class Reach {
    public static Object option(Object value) {
        if (value instanceof scala.Option) {
            return ((scala.Option) value).isEmpty() ? null : ((scala.Option) value).get();
        }
        return value;
    }

    /* A method without arguments, by name; Spark's private ones are public in bytecode. */
    public static Object call(Object target, String name) throws Exception {
        Method method = target.getClass().getMethod(name, new Class[0]);
        try {
            return method.invoke(target, new Object[0]);
        } catch (IllegalAccessException hidden) {
            method.setAccessible(true);
            return method.invoke(target, new Object[0]);
        }
    }

    public static Object field(Object target, String name) throws Exception {
        for (Class found = target.getClass(); found != null; found = found.getSuperclass()) {
            try {
                Field field = found.getDeclaredField(name);
                field.setAccessible(true);
                return field.get(target);
            } catch (NoSuchFieldException next) {
                // in a class above
            }
        }
        throw new NoSuchFieldException(name);
    }
}

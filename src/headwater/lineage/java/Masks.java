package headwater.lineage;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.regex.Pattern;

/*
 * Two things that all units which look into Spark's objects need: secrets never leave the JVM (G12), and what a
 * Spark release calls differently is missing rather than an error.
 */
public class Masks {
    public static final String MASK = "*********(redacted)";

    private static final Pattern SECRET = Pattern.compile(
        "(?i).*(secret|password|passwd|pwd|token|credential|passphrase|jaas|access[._-]?key|api[._-]?key"
        + "|private[._-]?key|account[._-]?key|shared[._-]?key|sas[._-]?key|signature).*");
    private static final Pattern IN_AUTHORITY = Pattern.compile("//[^/@\\s]*@");
    private static final Pattern IN_ORACLE = Pattern.compile("(:(?:thin|oci8?):)[^@/\\s]*/[^@\\s]*@");
    private static final Pattern IN_PARAMETERS = Pattern.compile(
        "(?i)([?&;,\\s(]|^)([\\w.-]*(?:secret|password|passwd|pwd|token|credential|passphrase|access[._-]?key"
        + "|api[._-]?key|sig|signature|private[._-]?key|account[._-]?key))=([^&;,)\\s]+)");
    private static final Pattern CONTAINER = Pattern.compile("(?i)^(abfss?|wasbs?):.*");

    /* Whether the value of a setting with this name is nobody's business. */
    public static boolean secret(String name) {
        return SECRET.matcher(name).matches();
    }

    /* A value that may hold a URL, without the secrets in it. */
    public static String url(String value) {
        if (value == null || (value.indexOf("//") < 0 && value.indexOf('=') < 0 && value.indexOf('@') < 0)) {
            return value;
        }
        if (!CONTAINER.matcher(value).matches()) { // there, a container stands before the @
            value = IN_AUTHORITY.matcher(value).replaceAll("//");
        }
        value = IN_ORACLE.matcher(value).replaceAll("$1@");
        return IN_PARAMETERS.matcher(value).replaceAll("$1$2=" + MASK);
    }

    public static String option(String name, String value) {
        return secret(name) ? MASK : url(value);
    }

    /* The result of a method without arguments, public or not, of the class or of one above. */
    public static Object call(Object on, String name) throws Throwable {
        for (Class at = on.getClass(); at != null; at = at.getSuperclass()) {
            Method method = null;
            try {
                method = at.getDeclaredMethod(name, new Class[0]);
            } catch (NoSuchMethodException none) {
                continue;
            }
            method.setAccessible(true);
            return method.invoke(on, new Object[0]);
        }
        return on.getClass().getMethod(name, new Class[0]).invoke(on, new Object[0]);
    }

    /* The same, but null where it is not there or fails. */
    public static Object ask(Object on, String name) {
        try {
            return on == null ? null : call(on, name);
        } catch (Throwable error) {
            return null;
        }
    }

    /* A field's value; Scala writes the names of some private fields with their class before them. */
    public static Object get(Object on, String name) {
        for (Class at = on == null ? null : on.getClass(); at != null; at = at.getSuperclass()) {
            Field[] fields = at.getDeclaredFields();
            for (int i = 0; i < fields.length; i++) {
                if (fields[i].getName().equals(name) || fields[i].getName().endsWith("$$" + name)) {
                    try {
                        fields[i].setAccessible(true);
                        return fields[i].get(on);
                    } catch (Throwable error) {
                        return null;
                    }
                }
            }
        }
        return null;
    }
}

package headwater.lineage;

import java.lang.reflect.Field;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.Dependency;
import org.apache.spark.rdd.RDD;

/*
 * RDDs as JSON: those between a result and its sources, the paths of the sources, and the folder that the last stage
 * of a job writes. Only fields of the RDDs are read: nothing is computed and no file system is called.
 */
public class RddChain {
    private static final int MOST_RDDS = 2000;                 // lineage/jvm/messages.py has the same number
    private static final int MOST_FILES = 200000;
    private static final int MOST_FOLDERS = 5000;
    private static final int MOST_OBJECTS = 400;
    private static final String[] INPUT = {"mapreduce.input.fileinputformat.inputdir", "mapred.input.dir"};
    private static final String[] OUTPUT = {"mapreduce.output.fileoutputformat.outputdir", "mapred.output.dir"};
    private static final String[] FORMAT = {"mapreduce.job.outputformat.class", "mapred.output.format.class"};

    /* A list of {id, cls, name, parents, paths?, format?, url?, table?, more?}, the result first. */
    public static void chain(Object start, JsonWriter out) {
        out.raw('[');
        for (Object rdd : flat(start)) {
            one((RDD) rdd, out);
        }
        out.raw(']');
    }

    /* The RDDs of a chain, each once, the result first. */
    public static List flat(Object start) {
        Set seen = Collections.newSetFromMap(new IdentityHashMap());
        ArrayList found = new ArrayList();
        found.add(start);
        seen.add(start);
        for (int at = 0; at < found.size(); at++) {
            for (Object parent : parents((RDD) found.get(at))) {
                if (found.size() < MOST_RDDS && seen.add(parent)) {
                    found.add(parent);
                }
            }
        }
        return found;
    }

    private static ArrayList parents(RDD rdd) {
        ArrayList found = new ArrayList();
        try {
            for (Object dependency : Reflection.each(rdd.dependencies())) {
                RDD parent = ((Dependency) dependency).rdd();
                if (parent != null) {
                    found.add(parent);
                }
            }
        } catch (Throwable error) {
            // an RDD that no longer has its parents counts as a source
        }
        return found;
    }

    private static void one(RDD rdd, JsonWriter out) {
        ArrayList parents = new ArrayList();
        for (Object parent : parents(rdd)) {
            parents.add(((RDD) parent).id());
        }
        out.comma().raw('{').field("id", rdd.id()).field("cls", rdd.getClass().getName());
        out.optional("name", rdd.name(), 500).key("parents").list(parents);
        int mark = out.mark();
        try {
            source(rdd, out);
        } catch (JsonWriter.Full full) {
            throw full;
        } catch (Throwable error) {
            out.back(mark);
            out.key("error").string(String.valueOf(error), 300);
        }
        out.raw('}');
    }

    private static void source(RDD rdd, JsonWriter out) throws Throwable {
        String kind = kind(rdd);
        if (kind.equals("HadoopRDD") || kind.equals("NewHadoopRDD")) {
            Object conf = Reflection.call(rdd, kind.equals("HadoopRDD") ? "getJobConf" : "getConf");
            out.key("paths").list(paths(setting((Configuration) conf, INPUT)));
            Object format = Reflection.fieldOrNull(rdd, "inputFormatClass");
            if (format instanceof Class) {
                out.field("format", ((Class) format).getName());
            }
        } else if (kind.equals("FileScanRDD")) {
            folders(rdd, out);
        } else if (kind.equals("JDBCRDD")) {
            Object options = Reflection.fieldOrNull(rdd, "options");
            if (options != null) {
                out.field("url", SecretMask.url(String.valueOf(Reflection.call(options, "url"))));
                out.key("table").string(String.valueOf(Reflection.call(options, "tableOrQuery")), 4000);
            }
        } else if (kind.equals("ReliableCheckpointRDD")) {
            out.field("checkpoint", String.valueOf(Reflection.fieldOrNull(rdd, "checkpointPath")));
        }
    }

    /* The class of an RDD, or its known superclass: wholeTextFiles has its own subclass. */
    private static String kind(RDD rdd) {
        for (Class at = rdd.getClass(); at != null; at = at.getSuperclass()) {
            String name = at.getSimpleName();
            if (name.equals("HadoopRDD") || name.equals("NewHadoopRDD") || name.equals("FileScanRDD")) {
                return name;
            }
        }
        return rdd.getClass().getSimpleName();
    }

    private static void folders(RDD rdd, JsonWriter out) throws Throwable {
        LinkedHashSet folders = new LinkedHashSet();
        int files = 0;
        for (Object part : Reflection.each(Reflection.call(rdd, "filePartitions"))) {
            for (Object file : Reflection.each(Reflection.call(part, "files"))) {
                if (files < MOST_FILES && folders.size() < MOST_FOLDERS) {
                    String path = String.valueOf(Reflection.call(file, "filePath"));
                    int slash = path.lastIndexOf('/');
                    folders.add(slash > 0 ? path.substring(0, slash) : path);
                    files++;
                }
            }
        }
        out.key("paths").list(folders);
        boolean more = files >= MOST_FILES || folders.size() >= MOST_FOLDERS;
        out.optional("more", more ? Boolean.TRUE : null, 0);
    }

    /* Writes the paths of a Hadoop setting: commas separate them, except after a backslash. */
    private static List paths(String text) {
        ArrayList found = new ArrayList();
        for (String path : text == null ? new String[0] : text.split("(?<!\\\\),")) {
            found.add(path.replace("\\,", ","));
        }
        return found;
    }

    /* The outputs of an ActiveJob's last stage through Hadoop: a list of {path, format?}. */
    public static void outputs(Object job, JsonWriter out) {
        out.raw('[');
        int mark = out.mark();
        try {
            Configuration conf = configuration(Reflection.fieldOrNull(Reflection.call(job, "finalStage"), "func"));
            if (conf != null) {
                out.raw('{').field("path", setting(conf, OUTPUT));
                out.optional("format", setting(conf, FORMAT), 500).raw('}');
            }
        } catch (JsonWriter.Full full) {
            throw full;
        } catch (Throwable error) {
            out.back(mark); // a stage without such a function has no output that can be named
        }
        out.raw(']');
    }

    /* The Hadoop settings with an output that a closure references, searched in at most MOST_OBJECTS objects. */
    private static Configuration configuration(Object start) throws Throwable {
        Set seen = Collections.newSetFromMap(new IdentityHashMap());
        ArrayDeque queue = new ArrayDeque();
        for (Object each = start; each != null && seen.size() < MOST_OBJECTS; each = queue.poll()) {
            if (!seen.add(each)) {
                continue;
            }
            if (each instanceof Configuration) {
                if (setting((Configuration) each, OUTPUT) != null) {
                    return (Configuration) each;
                }
                continue;
            }
            for (Object field : Reflection.fields(each.getClass())) {
                Object value = Reflection.valueOrNull((Field) field, each);
                if (value != null && worth(value)) {
                    queue.add(value);
                }
            }
        }
        return null;
    }

    /* Whether to search an object: closures and holders of settings, but none that reference the application. */
    private static boolean worth(Object value) {
        String name = value.getClass().getName();
        return value instanceof Configuration
            || name.startsWith("org.apache.spark.internal.io.")
            || name.startsWith("org.apache.spark.util.Serializable")
            || name.indexOf("Lambda") >= 0
            || name.indexOf("$anonfun") >= 0
            || name.startsWith("org.apache.spark.rdd.PairRDDFunctions$");
    }

    private static String setting(Configuration conf, String[] names) {
        for (String name : names) {
            String value = conf.get(name);
            if (value != null && value.length() > 0) {
                return value;
            }
        }
        return null;
    }
}

package headwater.lineage;

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.Dependency;
import org.apache.spark.rdd.RDD;

/*
 * RDDs as JSON: those between a result and its sources, the paths of the sources, and the folder that the last stage
 * of a job writes. Only fields of the RDDs are read: nothing is computed and no file system is called.
 */
public class RddChain {
    private static final int MOST_RDDS = 2000;
    private static final int MOST_FILES = 20000;
    private static final int MOST_FOLDERS = 500;
    private static final int MOST_OBJECTS = 400;
    private static final String[] INPUT = {"mapreduce.input.fileinputformat.inputdir", "mapred.input.dir"};
    private static final String[] OUTPUT = {"mapreduce.output.fileoutputformat.outputdir", "mapred.output.dir"};

    /* A list of {id, cls, name, parents, paths?, format?, url?, table?, more?}, the result first. */
    public static void chain(Object start, JsonWriter out) {
        out.raw("[");
        try {
            java.util.List all = flat(start);
            for (int at = 0; at < all.size(); at++) {
                one((RDD) all.get(at), out);
            }
        } catch (JsonWriter.Full full) {
            throw full;
        } catch (Throwable error) {
            out.comma().raw("{").field("error", String.valueOf(error)).raw("}");
        }
        out.raw("]");
    }

    /* The RDDs of a chain, each once, the result first. */
    public static java.util.List flat(Object start) {
        IdentityHashMap seen = new IdentityHashMap();
        ArrayList found = new ArrayList();
        found.add(start);
        seen.put(start, start);
        for (int at = 0; at < found.size(); at++) {
            ArrayList parents = parents((RDD) found.get(at));
            for (int i = 0; i < parents.size(); i++) {
                if (found.size() < MOST_RDDS && seen.put(parents.get(i), start) == null) {
                    found.add(parents.get(i));
                }
            }
        }
        return found;
    }

    private static ArrayList parents(RDD rdd) {
        ArrayList found = new ArrayList();
        try {
            scala.collection.Iterator all = ((scala.collection.Iterable) rdd.dependencies()).iterator();
            while (all.hasNext()) {
                Object parent = ((Dependency) all.next()).rdd();
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
        ArrayList parents = parents(rdd);
        int mark = out.mark();
        try {
            out.comma().raw("{").field("id", rdd.id()).field("cls", rdd.getClass().getName());
            if (rdd.name() != null) {
                out.key("name").string(rdd.name(), 500);
            }
            out.key("parents").raw("[");
            for (int i = 0; i < parents.size(); i++) {
                out.comma().number(((RDD) parents.get(i)).id());
            }
            out.raw("]");
            int before = out.mark();
            try {
                source(rdd, out);
            } catch (JsonWriter.Full full) {
                throw full;
            } catch (Throwable error) {
                out.back(before);
                out.key("error").string(String.valueOf(error), 300);
            }
            out.raw("}");
        } catch (JsonWriter.Full full) {
            out.back(mark);
            throw full;
        }
    }

    private static void source(RDD rdd, JsonWriter out) throws Throwable {
        String kind = kind(rdd);
        if (kind.equals("HadoopRDD") || kind.equals("NewHadoopRDD")) {
            Configuration conf =
                (Configuration) Reflection.call(rdd, kind.equals("HadoopRDD") ? "getJobConf" : "getConf");
            paths(setting(conf, INPUT), out);
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

    /* The nearest superclass that is known here: wholeTextFiles has its own subclass. */
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
        boolean more = false;
        scala.collection.Iterator parts =
            ((scala.collection.Iterable) Reflection.call(rdd, "filePartitions")).iterator();
        while (parts.hasNext() && !more) {
            Object[] in = (Object[]) Reflection.call(parts.next(), "files");
            for (int i = 0; i < in.length; i++) {
                String path = String.valueOf(Reflection.call(in[i], "filePath"));
                int slash = path.lastIndexOf('/');
                folders.add(slash > 0 ? path.substring(0, slash) : path);
                if (++files >= MOST_FILES || folders.size() >= MOST_FOLDERS) {
                    more = true;
                    break;
                }
            }
        }
        out.key("paths").raw("[");
        for (Iterator all = folders.iterator(); all.hasNext();) {
            out.comma().string(String.valueOf(all.next()));
        }
        out.raw("]");
        if (more) {
            out.field("more", true);
        }
    }

    /* Commas part paths, as in Hadoop's own setting, unless a backslash stands before. */
    private static void paths(String text, JsonWriter out) {
        out.key("paths").raw("[");
        if (text != null) {
            String[] parts = text.split("(?<!\\\\),");
            for (int i = 0; i < parts.length && i < MOST_FOLDERS; i++) {
                out.comma().string(parts[i].replace("\\,", ","));
            }
        }
        out.raw("]");
    }

    /* The outputs of a job's last stage through Hadoop: a list of {path, format?}. Takes the ActiveJob or its stage. */
    public static void outputs(Object job, JsonWriter out) {
        out.raw("[");
        int mark = out.mark();
        try {
            Object stage = job.getClass().getSimpleName().equals("ActiveJob") ? Reflection.call(job, "finalStage") : job;
            Configuration conf = stage == null ? null : configuration(Reflection.fieldOrNull(stage, "func"));
            String path = conf == null ? null : setting(conf, OUTPUT);
            if (path != null) {
                out.comma().raw("{").field("path", path);
                String format = setting(
                    conf, new String[] {"mapreduce.job.outputformat.class", "mapred.output.format.class"});
                if (format != null) {
                    out.field("format", format);
                }
                out.raw("}");
            }
        } catch (JsonWriter.Full full) {
            throw full;
        } catch (Throwable error) {
            out.back(mark); // a stage without such a function writes nothing that we could name
        }
        out.raw("]");
    }

    /* The Hadoop settings that a closure carries, looked for a few steps deep. */
    private static Configuration configuration(Object start) throws Throwable {
        if (start == null) {
            return null;
        }
        IdentityHashMap seen = new IdentityHashMap();
        ArrayDeque queue = new ArrayDeque();
        queue.add(start);
        while (!queue.isEmpty() && seen.size() < MOST_OBJECTS) {
            Object each = queue.poll();
            if (seen.put(each, each) != null) {
                continue;
            }
            if (each instanceof Configuration) {
                if (setting((Configuration) each, OUTPUT) != null) {
                    return (Configuration) each;
                }
                continue;
            }
            for (Class at = each.getClass(); at != null && at != Object.class; at = at.getSuperclass()) {
                Field[] fields = at.getDeclaredFields();
                for (int i = 0; i < fields.length; i++) {
                    if (Modifier.isStatic(fields[i].getModifiers()) || fields[i].getType().isPrimitive()) {
                        continue;
                    }
                    Object value = null;
                    try {
                        fields[i].setAccessible(true);
                        value = fields[i].get(each);
                    } catch (Throwable error) {
                        continue;
                    }
                    if (value != null && worth(value)) {
                        queue.add(value);
                    }
                }
            }
        }
        return null;
    }

    /* Closures and Spark's small carriers of settings, but nothing that leads into the whole application. */
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
        for (int i = 0; i < names.length; i++) {
            String value = conf == null ? null : conf.get(names[i]);
            if (value != null && value.length() > 0) {
                return value;
            }
        }
        return null;
    }
}

package headwater.lineage;

import java.util.ArrayDeque;
import java.util.IdentityHashMap;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.util.AccumulatorV2;

/*
 * Metrics of an executed plan: of its scans, which carry the expression ids of their leaves in the analyzed plan and
 * so belong to one dataset, and of nodes that write. Enters adaptive plans, query stages, results of commands and
 * subqueries; metrics of other nodes are omitted.
 */
public class ScanMetrics {
    private static final int MOST_NODES = 20000;
    private static final int MOST_WRITTEN = 500;
    private static final int MOST_IDS = 5000;
    private static final String[] WRITERS = {
        "Write", "Command", "Append", "Overwrite", "Replace", "Merge", "Delete", "Insert", "Update", "Create"
    };
    /* Fields that hold the executed plan where it is not a child. */
    private static final String[] INSIDE = {"executedPlan", "plan", "commandPhysicalPlan"};

    /* Objects {cls, name, ids, metrics}, without the brackets of their array. */
    public static void executed(QueryExecution query, JsonWriter out) throws Exception {
        IdentityHashMap seen = new IdentityHashMap();
        ArrayDeque todo = new ArrayDeque();
        todo.push(query.executedPlan());
        int written = 0;
        while (!todo.isEmpty() && seen.size() < MOST_NODES && written < MOST_WRITTEN) {
            SparkPlan plan = (SparkPlan) todo.pop();
            if (seen.put(plan, plan) != null) {
                continue;
            }
            String name = plan.getClass().getSimpleName();
            boolean isWrapped = name.equals("AdaptiveSparkPlanExec") || name.endsWith("QueryStageExec")
                    || name.equals("CommandResultExec");
            if (isWrapped) {
                for (int at = 0; at < INSIDE.length; at++) {
                    Object inner = Reflection.callOrNull(plan, INSIDE[at]);
                    if (inner instanceof SparkPlan) {
                        todo.push(inner);
                        break;
                    }
                }
            }
            boolean isLeaf = push(todo, plan.children()) == 0;
            push(todo, Reflection.callOrNull(plan, "subqueries"));
            if (!isWrapped && (isLeaf || isWriter(name))) {
                int mark = out.mark();
                try {
                    writeNode(plan, isLeaf, out);
                    written++;
                } catch (JsonWriter.Full full) {
                    out.back(mark);
                    return;
                } catch (Throwable error) {
                    out.back(mark);
                }
            }
        }
    }

    private static void writeNode(SparkPlan plan, boolean isLeaf, JsonWriter out) {
        out.comma().raw('{').field("cls", plan.getClass().getName());
        out.key("name").string(plan.nodeName(), 300);
        if (isLeaf) {
            out.key("ids").raw('[');
            scala.collection.Iterator columns = plan.output().iterator();
            for (int count = 0; columns.hasNext() && count < MOST_IDS; count++) {
                out.comma().number(((Attribute) columns.next()).exprId().id());
            }
            out.raw(']');
        }
        out.key("metrics").raw('{');
        scala.collection.Iterator all = plan.metrics().iterator();
        while (all.hasNext()) {
            scala.Tuple2 pair = (scala.Tuple2) all.next();
            Object value = ((AccumulatorV2) pair._2()).value();
            if (value instanceof Long && ((Long) value).longValue() >= 0L) {
                out.field((String) pair._1(), ((Long) value).longValue());
            }
        }
        out.raw('}');
        out.raw('}');
    }

    private static boolean isWriter(String name) {
        for (int at = 0; at < WRITERS.length; at++) {
            if (name.indexOf(WRITERS[at]) >= 0) {
                return true;
            }
        }
        return false;
    }

    private static int push(ArrayDeque todo, Object plans) {
        int count = 0;
        if (plans instanceof scala.collection.Iterable) {
            scala.collection.Iterator all = ((scala.collection.Iterable) plans).iterator();
            while (all.hasNext()) {
                Object each = all.next();
                if (each instanceof SparkPlan) {
                    todo.push(each);
                    count++;
                }
            }
        }
        return count;
    }
}

package headwater.lineage;

import java.util.ArrayDeque;
import java.util.IdentityHashMap;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.util.AccumulatorV2;

/*
 * Numbers of a plan that was executed: of its scans, which carry the expression ids of their leaves in the analyzed
 * plan and so belong to one dataset, and of whatever writes. Goes through adaptive plans, stages of queries,
 * results of commands and subqueries; whatever else has numbers is not told.
 */
public class Numbers {
    private static final int MOST_NODES = 20000;
    private static final int MOST_TOLD = 500;
    private static final int MOST_IDS = 5000;
    private static final int MOST_PATHS = 10;
    private static final String[] WRITERS = {
        "Write", "Command", "Append", "Overwrite", "Replace", "Merge", "Delete", "Insert", "Update", "Create"
    };
    /* Where the plan that counts is not a child. */
    private static final String[] INSIDE = {"executedPlan", "plan", "commandPhysicalPlan"};

    /* Objects {cls, name, ids, metrics, f}, without the brackets of their array. */
    public static void executed(QueryExecution query, Json out) throws Exception {
        IdentityHashMap seen = new IdentityHashMap();
        ArrayDeque todo = new ArrayDeque();
        todo.push(query.executedPlan());
        int told = 0;
        while (!todo.isEmpty() && seen.size() < MOST_NODES && told < MOST_TOLD) {
            SparkPlan plan = (SparkPlan) todo.pop();
            if (seen.put(plan, plan) != null) {
                continue;
            }
            String name = plan.getClass().getSimpleName();
            boolean isWrapped = name.equals("AdaptiveSparkPlanExec") || name.endsWith("QueryStageExec")
                    || name.equals("CommandResultExec");
            if (isWrapped) {
                for (int at = 0; at < INSIDE.length; at++) {
                    Object inner = Reach.ask(plan, INSIDE[at]);
                    if (inner instanceof SparkPlan) {
                        todo.push(inner);
                        break;
                    }
                }
            }
            boolean isLeaf = push(todo, plan.children()) == 0;
            push(todo, Reach.ask(plan, "subqueries"));
            if (!isWrapped && (isLeaf || isWriter(name))) {
                int mark = out.mark();
                try {
                    one(plan, isLeaf, out);
                    told++;
                } catch (Json.Full full) {
                    out.back(mark);
                    return;
                } catch (Throwable error) {
                    out.back(mark);
                }
            }
        }
    }

    private static void one(SparkPlan plan, boolean isLeaf, Json out) {
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
        int mark = out.mark();
        try {
            hints(plan, out);
        } catch (Json.Full full) {
            throw full;
        } catch (Throwable error) {
            out.back(mark);
        }
        out.raw('}');
    }

    /* Where a scan reads, if it is known at no cost: for relations that the optimizer has given new ids. */
    private static void hints(SparkPlan plan, Json out) {
        Object location = Reach.ask(Reach.ask(plan, "relation"), "location");
        Object paths = location == null ? null : Reach.ask(location, "rootPaths");
        if (paths instanceof scala.collection.Iterable) {
            out.key("f").raw('{').key("paths").raw('[');
            scala.collection.Iterator each = ((scala.collection.Iterable) paths).iterator();
            for (int count = 0; each.hasNext() && count < MOST_PATHS; count++) {
                out.comma().string(each.next().toString(), 2000);
            }
            out.raw(']').raw('}');
            return;
        }
        Object table = Reach.ask(plan, "table");
        Object name = table == null ? null : Reach.ask(table, "name");
        if (name instanceof String) {
            out.key("f").raw('{').key("table").string((String) name, 2000).raw('}');
        }
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

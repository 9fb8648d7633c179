package headwater.lineage;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.util.AccumulatorV2;

/*
 * Metrics of an executed plan: of its scans, which carry the expression ids of their leaves in the analyzed plan and
 * so belong to one dataset, and of nodes that write. Includes adaptive plans, query stages, results of commands and
 * subqueries; metrics of other nodes are omitted.
 */
public class ScanMetrics {
    private static final int MOST_NODES = 20000;
    private static final int MOST_WRITTEN = 500;
    private static final int MOST_IDS = 5000;
    private static final String CUT = "metrics of a part of the executed plan";
    private static final Pattern WRITER = Pattern.compile(
        "Write|Command|Append|Overwrite|Replace|Merge|Delete|Insert|Update|Create");
    /* Fields that hold the executed plan where it is not a child. */
    private static final String[] INSIDE = {"executedPlan", "plan", "commandPhysicalPlan"};

    /* Objects {cls, name, ids, metrics}, without the brackets of their array. */
    public static void executed(QueryExecution query, JsonWriter out) throws Exception {
        Set seen = Collections.newSetFromMap(new IdentityHashMap());
        ArrayDeque todo = new ArrayDeque();
        todo.push(query.executedPlan());
        int written = 0;
        while (!todo.isEmpty() && seen.size() < MOST_NODES && written < MOST_WRITTEN) {
            SparkPlan plan = (SparkPlan) todo.pop();
            if (!seen.add(plan)) {
                continue;
            }
            String name = plan.getClass().getSimpleName();
            boolean isWrapper = name.equals("AdaptiveSparkPlanExec") || name.endsWith("QueryStageExec")
                    || name.equals("CommandResultExec");
            if (isWrapper) {
                todo.push(inside(plan));
            }
            List children = Reflection.each(plan.children());
            push(todo, children);
            push(todo, Reflection.each(Reflection.callOrNull(plan, "subqueries")));
            if (!isWrapper && (children.isEmpty() || WRITER.matcher(name).find())) {
                int mark = out.mark();
                try {
                    writeNode(plan, children.isEmpty(), out);
                    written++;
                } catch (JsonWriter.Full full) {
                    out.back(mark);
                    out.cut(CUT);
                    return;
                } catch (Throwable error) {
                    out.back(mark);
                }
            }
        }
        if (!todo.isEmpty()) {
            out.cut(CUT);
        }
    }

    private static void push(ArrayDeque todo, List plans) {
        for (Object plan : plans) {
            todo.push(plan);
        }
    }

    private static Object inside(SparkPlan wrapper) {
        for (String field : INSIDE) {
            Object inner = Reflection.callOrNull(wrapper, field);
            if (inner instanceof SparkPlan) {
                return inner;
            }
        }
        return wrapper;                                     // seen already
    }

    private static void writeNode(SparkPlan plan, boolean isLeaf, JsonWriter out) {
        out.comma().raw('{').field("cls", plan.getClass().getName());
        out.key("name").string(plan.nodeName(), 300);
        if (isLeaf) {
            ArrayList ids = new ArrayList();
            for (Object column : Reflection.each(plan.output())) {
                if (ids.size() < MOST_IDS) {
                    ids.add(((Attribute) column).exprId().id());
                } else {
                    out.cut("the columns of a scan after the first " + MOST_IDS);
                }
            }
            out.key("ids").list(ids);
        }
        out.key("metrics").raw('{');
        for (Object each : Reflection.map(plan.metrics()).entrySet()) {
            Map.Entry metric = (Map.Entry) each;
            Object value = ((AccumulatorV2) metric.getValue()).value();
            if (value instanceof Long && (Long) value >= 0) {
                out.field((String) metric.getKey(), (Long) value);
            }
        }
        out.raw("}}");
    }
}

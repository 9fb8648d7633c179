package headwater.pipeline;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnaryExpression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.CollectionAccumulator;
import org.apache.spark.util.TaskCompletionListener;
import scala.runtime.AbstractFunction1;

/*
 * The line of an event as a flat struct: a field for each expected value, `_rest` and `_reason`.
 *
 * The plan (steps/parse_events.py) is JSON: {"fields": [[path, kind, slot, name, group, rank, whole], …],
 * "kept": [[path, name], …], "texts": 0|1|2, "checked": bool, "depth": n, "groups": n}. A value that its field
 * cannot hold goes to `_rest` under the name, as its own text; so do the values of a group behind the first that
 * the event has, and fields of kept objects that are not expected. A field without a slot goes there always, and
 * with an empty name it is dropped. `_reason` is null for an event, empty for a blank line.
 *
 * Of a key that an object repeats the last value is the value, and the others go to `_rest`.
 *
 * With an accumulator it also collects the fields of the events, as Scan does, an answer for each task. It counts
 * as not deterministic, so that Spark never evaluates it twice for one line.
 *
 * Generated code calls it as a Function, which it can name: the driver compiles that code too, and its class loader
 * does not know this class. So the values go from the struct straight into the row, without a copy of the struct.
 */
public final class ParseEvents extends UnaryExpression implements Function, Serializable {
    private static final int BOOL = 0, INT64 = 1, FLOAT64 = 2, STRING = 3, TIMESTAMP = 4, JSON = 5, ASIDE = 6;

    private final Expression child;
    private final String plan;
    private final StructType type;
    private final CollectionAccumulator found;  // or null

    private transient Node root;
    private transient JsonFactory factory;
    private transient int width, groups, maxDepth, texts;
    private transient boolean isChecked;

    // of the line that is being read
    private transient byte[] line;
    private transient Object[] row;
    private transient Entries rest;
    private transient Target[] winners;
    private transient byte[][] winnersText;
    private transient boolean[] winnersAside;
    private transient boolean repeats, isBrowser;
    private transient long objects;
    private transient Scan scan;  // null: the fields of the line are not collected
    private transient Scan.Found foundHere;

    public ParseEvents(Expression child, String plan, StructType type, CollectionAccumulator found) {
        this.child = child;
        this.plan = plan;
        this.type = type;
        this.found = found;
    }

    /* Adds what a task has found when it ends. A task that runs twice adds it twice, which a union does not mind. */
    static final class Answer implements TaskCompletionListener {
        final Scan.Found found;
        final CollectionAccumulator answers;

        Answer(Scan.Found found, CollectionAccumulator answers) {
            this.found = found;
            this.answers = answers;
        }

        public void onTaskCompletion(TaskContext context) {
            answers.add(found.toString());
        }
    }

    /* A path of the plan. */
    static final class Node {
        final String name;
        final int place;
        final ArrayList children = new ArrayList();
        final HashMap byName = new HashMap();
        Target[] targets = new Target[0];
        boolean isKept;
        String keptName = "";
        int next;
        long seen;

        Node(String name, int place) {
            this.name = name;
            this.place = place;
        }

        Node make(String part) {
            Node found = (Node) byName.get(part);
            if (found == null) {
                found = new Node(part.intern(), children.size());
                byName.put(found.name, found);
                children.add(found);
            }
            return found;
        }

        Node find(String part) {
            // Most events have their keys in the same order, and Jackson interns them: comparisons, no hashing.
            int last = Math.min(next + Scan.GUESSES, children.size());
            for (int i = next; i < last; i++) {
                Node guess = (Node) children.get(i);
                if (guess.name == part) {
                    next = i + 1;
                    return guess;
                }
            }
            Node found = (Node) byName.get(part);
            if (found != null) {
                next = found.place + 1;
            }
            return found;
        }
    }

    /* A use of the value of a path. */
    static final class Target {
        int kind, slot, group, rank;
        boolean isWhole;
        String name, pointer;
    }

    /* The members of a JSON object: a name, and JSON text or further Entries. */
    static final class Entries {
        final LinkedHashMap members = new LinkedHashMap();

        /* A name that is taken gets a number behind it. */
        void put(String name, Object value) {
            String free = name;
            for (int i = 2; members.containsKey(free); i++) {
                free = name + "#" + i;
            }
            members.put(free, value);
        }

        void write(ByteArrayOutputStream out) throws IOException {
            out.write('{');
            boolean first = true;
            for (Iterator each = members.entrySet().iterator(); each.hasNext();) {
                Map.Entry member = (Map.Entry) each.next();
                if (!first) {
                    out.write(',');
                }
                first = false;
                out.write(Values.quoted((String) member.getKey()));
                out.write(':');
                if (member.getValue() instanceof Entries) {
                    ((Entries) member.getValue()).write(out);
                } else {
                    out.write((byte[]) member.getValue());
                }
            }
            out.write('}');
        }
    }

    private void open() throws IOException {
        Map read = (Map) new ObjectMapper().readValue(plan, Map.class);
        Node made = new Node("", 0);
        List fields = (List) read.get("fields");
        width = ((Number) read.get("width")).intValue();
        groups = ((Number) read.get("groups")).intValue();
        maxDepth = ((Number) read.get("depth")).intValue();
        texts = ((Number) read.get("texts")).intValue();
        isChecked = ((Boolean) read.get("checked")).booleanValue();
        for (int i = 0; i < fields.size(); i++) {
            List field = (List) fields.get(i);
            Target target = new Target();
            target.kind = ((Number) field.get(1)).intValue();
            target.slot = ((Number) field.get(2)).intValue();
            target.name = (String) field.get(3);
            target.group = ((Number) field.get(4)).intValue();
            target.rank = ((Number) field.get(5)).intValue();
            target.isWhole = ((Boolean) field.get(6)).booleanValue();
            List path = (List) field.get(0);
            Node node = at(made, path);
            target.pointer = pointer(path);
            Target[] more = new Target[node.targets.length + 1];
            System.arraycopy(node.targets, 0, more, 0, node.targets.length);
            more[node.targets.length] = target;
            node.targets = more;
        }
        List kept = (List) read.get("kept");
        for (int i = 0; i < kept.size(); i++) {
            Node node = at(made, (List) ((List) kept.get(i)).get(0));
            node.isKept = true;
            node.keptName = (String) ((List) kept.get(i)).get(1);
        }
        factory = EventCheck.factory();
        if (found != null) {
            String browserKeys = (String) read.get("browser_keys");
            scan = new Scan(maxDepth, ((Number) read.get("max_fields")).intValue(), browserKeys, false, false, 0);
            TaskContext task = TaskContext.get();
            foundHere = new Scan.Found(task == null ? 0 : task.partitionId(), "");
            if (task == null) {
                found.add(foundHere);  // the driver itself evaluates rows that it has; they are read when all are there
            } else {
                task.addTaskCompletionListener(new Answer(foundHere, found));
            }
        }
        root = made;
    }

    private static Node at(Node node, List path) {
        for (int i = 0; i < path.size(); i++) {
            node = node.make((String) path.get(i));
        }
        return node;
    }

    private static String pointer(List path) {
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < path.size(); i++) {
            out.append('/').append(escaped((String) path.get(i)));
        }
        return out.toString();
    }

    private static String escaped(String part) {
        return part.indexOf('~') < 0 && part.indexOf('/') < 0 ? part : part.replace("~", "~0").replace("/", "~1");
    }

    public Object apply(Object value) {
        return nullSafeEval(value);
    }

    public Object nullSafeEval(Object value) {
        byte[] bytes = ((UTF8String) value).getBytes();
        Object[] made = new Object[type.size()];
        String reason = null;
        try {
            if (root == null) {
                open();
            }
            int length = isChecked ? EventCheck.eventLength(bytes) : bytes.length;
            reason = length < 0 ? EventCheck.DAMAGED : EventCheck.isBlank(bytes, length) ? "" : null;
            if (scan != null) {
                scan.start(foundHere);
            }
            if (reason == null && !parse(bytes, length, made)) {
                reason = EventCheck.reason(factory, bytes, length);
                reason = reason == null ? "not JSON" : reason;
            }
            if (scan != null) {
                count(reason);
            }
        } catch (IOException error) {
            throw new IllegalStateException(error);  // the plan, or a check that cannot fail
        }
        if (reason != null) {
            made = new Object[made.length];
            made[width + 1] = UTF8String.fromString(reason);
        }
        return new GenericInternalRow(made);
    }

    private void count(String reason) {
        if (reason == null) {
            foundHere.events++;
            if (isBrowser) {
                foundHere.fromBrowser++;
            }
        } else if (reason.length() == 0) {
            foundHere.blank++;
        } else {
            foundHere.malformed++;
            scan.forget();
        }
    }

    /* Whether the line is an event. */
    private boolean parse(byte[] bytes, int length, Object[] made) {
        try {
            if (!read(bytes, length, made, null)) {
                return false;
            }
            if (!repeats) {
                return true;
            }
            // the rare case is read twice, so that the usual one need not remember what it has seen
            Entries losers = new Entries();
            ByteArrayOutputStream distinct = new ByteArrayOutputStream(length);
            line = bytes;
            JsonParser json = factory.createParser(bytes, 0, length);
            json.nextToken();
            distinct(json, root, "", 1, distinct, losers);
            byte[] event = distinct.toByteArray();
            for (int i = 0; i < made.length; i++) {
                made[i] = null;
            }
            return read(event, event.length, made, losers);
        } catch (IOException malformed) {
            return false;
        }
    }

    private boolean read(byte[] bytes, int length, Object[] made, Entries losers) throws IOException {
        line = bytes;
        row = made;
        rest = losers != null && losers.members.size() > 0 ? losers : null;
        repeats = false;
        if (groups > 0) {
            winners = new Target[groups];
            winnersText = new byte[groups][];
            winnersAside = new boolean[groups];
        }
        JsonParser json = factory.createParser(bytes, 0, length);
        if (json.nextToken() != JsonToken.START_OBJECT) {
            return false;
        }
        if (root.targets.length > 0) {
            whole(root, Values.compact(bytes, 0, length), false);
        }
        isBrowser = false;
        object(json, root, 1, null, scan == null || losers != null ? null : foundHere.root);
        if (json.nextToken() != null) {
            return false;
        }
        for (int i = 0; i < groups; i++) {
            if (winners[i] != null && winnersAside[i]) {
                aside(winners[i].name, winnersText[i]);
            }
        }
        if (rest != null) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            rest.write(out);
            row[width] = UTF8String.fromBytes(out.toByteArray());
        }
        return true;
    }

    /* Reads the members of an object. `kept` are the entries of the object that the node's own ones stand in. */
    private void object(JsonParser json, Node node, int depth, Entries kept, Scan.Node seen) throws IOException {
        long own = ++objects;
        if (node != null) {
            node.next = 0;
        }
        long scanned = 0;
        if (seen != null) {
            Scan.begin(seen);
            scanned = scan.nextObject();
        }
        while (json.nextToken() == JsonToken.FIELD_NAME) {
            String name = json.getCurrentName();
            Node found = node == null ? null : node.find(name);
            Scan.Node noted = seen == null ? null : scan.child(seen, name);
            JsonToken token = json.nextToken();
            if (noted != null) {
                scan.note(json, token, noted, scanned, depth);
                if (depth == 1 && scan.isBrowser(json, token, noted)) {
                    isBrowser = true;
                }
            } else if (scan != null) {
                scan.isHeld = false;
            }
            if (found == null) {
                if (node != null && node.isKept && token != JsonToken.VALUE_NULL) {
                    kept = kept(node, kept);
                    String free = Values.isWhole(name) ? name : new String(Values.quoted(name), "UTF-8");
                    if (kept.members.containsKey(free)) {
                        repeats = true;
                    }
                    kept.put(free, Values.readable(text(json, token)));
                } else if (noted != null && token == JsonToken.START_OBJECT && depth < maxDepth) {
                    object(json, null, depth + 1, null, noted);
                } else {
                    json.skipChildren();
                }
                continue;
            }
            if (found.seen == own) {
                repeats = true;
            }
            found.seen = own;
            if (token == JsonToken.START_OBJECT) {
                boolean isText = depth >= maxDepth;
                boolean isRead = !isText && (noted != null || found.children.size() > 0 || found.isKept);
                boolean isWhole = isText;
                for (int i = 0; i < found.targets.length; i++) {
                    isWhole |= found.targets[i].isWhole;
                }
                int start = isWhole ? offset(json) : 0;
                if (isRead) {
                    object(json, found, depth + 1, null, noted);
                } else {
                    json.skipChildren();
                }
                if (isWhole) {
                    whole(found, Values.compact(line, start, end(json)), isText);
                }
            } else if (token == JsonToken.START_ARRAY) {
                if (found.targets.length > 0) {
                    whole(found, text(json, token), true);
                } else {
                    json.skipChildren();
                }
            } else if (token != JsonToken.VALUE_NULL) {
                for (int i = 0; i < found.targets.length; i++) {
                    scalar(json, token, found.targets[i]);
                }
            }
        }
    }

    private Entries kept(Node node, Entries kept) {
        if (kept != null) {
            return kept;
        }
        if (rest == null) {
            rest = new Entries();
        }
        if (node == root) {
            return rest;
        }
        Entries made = new Entries();
        rest.put(node.keptName, made);
        return made;
    }

    /* Gives an array, or an object that is kept as text, to the targets of its path. */
    private void whole(Node node, byte[] json, boolean all) throws IOException {
        for (int i = 0; i < node.targets.length; i++) {
            Target target = node.targets[i];
            if (all || target.isWhole) {
                byte[] value = target.kind == STRING ? json : target.kind == JSON ? Values.readable(json) : null;
                store(target, value == null ? null : UTF8String.fromBytes(value), json, value == null);
            }
        }
    }

    private void scalar(JsonParser json, JsonToken token, Target target) throws IOException {
        Object value = null;
        boolean isFine = false;
        switch (target.kind) {
            case BOOL:
                value = Values.toBoolean(json, token, texts);
                break;
            case INT64:
                value = Values.toLong(json, token, texts);
                break;
            case FLOAT64:
                value = scan == null ? Values.toDouble(json, token, texts) : scan.toDouble(json, token, texts);
                break;
            case STRING:
                value = Values.toText(json);
                break;
            case TIMESTAMP:
                long moment = Values.toMoment(json, token);
                if (moment != Values.NO_MOMENT) {
                    value = Long.valueOf(moment);
                    isFine = Values.isFine(json.getTextCharacters(), json.getTextOffset(), json.getTextLength());
                }
                break;
            case JSON:
                value = UTF8String.fromBytes(Values.readable(text(json, token)));
                break;
            default:
                break;
        }
        // a moment with more digits than the column keeps is stored, and all of its digits go aside
        boolean goesAside = value == null || isFine;
        store(target, value, goesAside || target.group >= 0 ? text(json, token) : null, goesAside);
    }

    /* `json` is the value's text, where it goes aside or is one of a group. */
    private void store(Target target, Object value, byte[] json, boolean goesAside) {
        if (target.group >= 0) {
            Target other = winners[target.group];
            if (other != null && other.rank < target.rank) {
                lose(target, json);
                return;
            }
            if (other != null) {
                lose(other, winnersText[target.group]);
                if (other.slot >= 0) {
                    row[other.slot] = null;
                }
            }
            winners[target.group] = target;
            winnersText[target.group] = json;
            winnersAside[target.group] = goesAside;
        } else if (goesAside) {
            aside(target.name, json);
        }
        if (target.slot >= 0) {
            row[target.slot] = value;
        }
    }

    /* Another field of the group has the place of this one. */
    private void lose(Target target, byte[] json) {
        aside(target.name.length() == 0 ? "" : target.pointer, json);
    }

    private void aside(String name, byte[] json) {
        if (name.length() == 0) {
            return;
        }
        if (rest == null) {
            rest = new Entries();
        }
        rest.put(name, Values.readable(json));
    }

    /* The current value as it stands in the line; blanks between its tokens are removed. */
    private byte[] text(JsonParser json, JsonToken token) throws IOException {
        if (token == JsonToken.VALUE_STRING) {
            int start = offset(json);
            json.getTextLength();
            return bytes(start, end(json));
        }
        if (token == JsonToken.START_OBJECT || token == JsonToken.START_ARRAY) {
            int start = offset(json);
            json.skipChildren();
            return Values.compact(line, start, end(json));
        }
        return Values.toText(json).getBytes();
    }

    private byte[] bytes(int start, int end) {
        byte[] copy = new byte[end - start];
        System.arraycopy(line, start, copy, 0, copy.length);
        return copy;
    }

    private static int offset(JsonParser json) throws IOException {
        return place(json.getTokenLocation().getByteOffset());
    }

    private static int end(JsonParser json) throws IOException {
        return place(json.getCurrentLocation().getByteOffset());
    }

    private static int place(long offset) throws IOException {
        if (offset < 0) {
            throw new IOException("the line is not UTF-8");
        }
        return (int) offset;
    }

    /* Writes the object with the last value of each key; the others, as far as the plan has their path, are losers. */
    private void distinct(
            JsonParser json, Node node, String pointer, int depth, ByteArrayOutputStream out, Entries losers)
            throws IOException {
        LinkedHashMap members = new LinkedHashMap();
        while (json.nextToken() == JsonToken.FIELD_NAME) {
            String name = json.getCurrentName();
            Node found = node == null ? null : (Node) node.byName.get(name);
            String place = pointer + "/" + escaped(name);
            JsonToken token = json.nextToken();
            byte[] value;
            if (token == JsonToken.START_OBJECT && depth < maxDepth) {
                ByteArrayOutputStream inner = new ByteArrayOutputStream();
                distinct(json, found, place, depth + 1, inner, losers);
                value = inner.toByteArray();
            } else {
                value = text(json, token);
            }
            byte[] before = (byte[]) members.remove(name);
            members.put(name, value);
            if (before != null) {
                lose(before, found, node != null && node.isKept, place, losers);
            }
        }
        Entries last = new Entries();
        last.members.putAll(members);
        last.write(out);
    }

    private void lose(byte[] value, Node node, boolean isKept, String pointer, Entries losers) throws IOException {
        if (value[0] == 'n' || (node == null && !isKept)) {
            return;
        }
        if (value[0] != '{' || node == null || node.children.size() == 0) {
            boolean isNamed = isKept && node == null;
            for (int i = 0; node != null && i < node.targets.length; i++) {
                isNamed |= node.targets[i].name.length() > 0;
            }
            if (isNamed) {
                losers.put(pointer, Values.readable(value));
            }
            return;
        }
        byte[] before = line;
        line = value;
        JsonParser json = factory.createParser(value, 0, value.length);
        json.nextToken();
        while (json.nextToken() == JsonToken.FIELD_NAME) {
            String name = json.getCurrentName();
            byte[] inner = text(json, json.nextToken());
            lose(inner, (Node) node.byName.get(name), node.isKept, pointer + "/" + escaped(name), losers);
        }
        line = before;
    }

    public Expression child() {
        return child;
    }

    public DataType dataType() {
        return type;
    }

    public boolean nullable() {
        return true;
    }

    public boolean deterministic() {
        return false;
    }

    public String prettyName() {
        return "parse_events";
    }

    public String toString() {
        return "parse_events(" + child + ")";
    }

    public Expression withNewChildInternal(Expression newChild) {
        return new ParseEvents(newChild, plan, type, found);
    }

    // the bridge that javac would write
    public TreeNode withNewChildInternal(TreeNode newChild) {
        return new ParseEvents((Expression) newChild, plan, type, found);
    }

    public ExprCode doGenCode(CodegenContext context, ExprCode code) {
        return defineCodeGen(context, code, new Call(context.addReferenceObj("events", this, "java.util.function.Function")));
    }

    /* The generated call of a function that returns a row. */
    static final class Call extends AbstractFunction1 {
        final String function;

        Call(String function) {
            this.function = function;
        }

        public Object apply(Object argument) {
            return "(InternalRow) " + function + ".apply(" + argument + ")";
        }
    }

    public int productArity() {
        return 4;
    }

    public Object productElement(int n) {
        return n == 0 ? (Object) child : n == 1 ? (Object) plan : n == 2 ? (Object) type : (Object) found;
    }

    public boolean canEqual(Object other) {
        return other instanceof ParseEvents;
    }

    public boolean equals(Object other) {
        return other instanceof ParseEvents && ((ParseEvents) other).child.equals(child)
            && ((ParseEvents) other).plan.equals(plan) && ((ParseEvents) other).found == found;
    }

    public int hashCode() {
        return 31 * child.hashCode() + plan.hashCode();
    }
}

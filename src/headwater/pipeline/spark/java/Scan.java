package headwater.pipeline;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.io.JsonStringEncoder;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.catalyst.InternalRow;

/*
 * Which fields do the lines of a batch have, and of which kinds are their values? One answer for each partition,
 * or for each file and table of a partition, as JSON: counts and a tree of [kinds, children].
 *
 * Jackson is what from_json parses with, so what is well-formed here is well-formed there. The text is compiled
 * by Janino, which has no generics and no lambdas; hence the plain style.
 */
public class Scan implements FlatMapFunction {
    static final int BOOL = 1, INT64 = 2, FLOAT64 = 4, STRING = 8, TIMESTAMP = 16;
    static final int BIG = 32;        // a number that neither a long nor a double can hold
    static final int ARRAY = 64;
    static final int OBJECT = 128;
    static final int HUGE = 256;      // a float beyond decimal(38,18)
    static final int DEEP = 512;      // an object that lies too deep: kept as text
    static final int MORE = 1024;     // fields that were not looked at because there are too many

    private final int maxDepth;
    private final int maxNodes;
    private final String browserKeys;  // each api_key of browser events, between two line ends
    private final boolean byTable;
    private Found counted;
    private ArrayList changed = new ArrayList();  // Node, Integer: what kinds were before this line

    /* byTable: rows are a line, the table that it goes to (empty: none), why it has none, and its file's number. */
    public Scan(int maxDepth, int maxNodes, String browserKeys, boolean byTable) {
        this.maxDepth = maxDepth;
        this.maxNodes = maxNodes;
        this.browserKeys = browserKeys.length() > 0 ? "\n" + browserKeys + "\n" : "";
        this.byTable = byTable;
    }

    /* What was found in all lines, or in those that go from one file to one table. */
    static final class Found {
        final long file;
        final String table;
        final Node root = new Node("");
        int nodes;
        long events, bad, blank, browser, skipped;

        Found(long file, String table) {
            this.file = file;
            this.table = table;
        }

        public String toString() {
            StringBuilder out = new StringBuilder();
            out.append("{\"file\":").append(file).append(",\"table\":\"");
            out.append(new String(JsonStringEncoder.getInstance().quoteAsString(table)));
            out.append("\",\"events\":").append(events).append(",\"bad\":").append(bad);
            out.append(",\"blank\":").append(blank).append(",\"browser\":").append(browser);
            out.append(",\"skipped\":").append(skipped).append(",\"tree\":");
            Scan.write(root, out);
            return out.append('}').toString();
        }
    }

    static final class Node {
        final String name;
        int kinds;
        int place;
        ArrayList children;
        HashMap byName;
        int next;

        Node(String name) {
            this.name = name;
        }
    }

    private Node child(Node parent, String name) {
        if (parent.children == null) {
            parent.children = new ArrayList();
            parent.byName = new HashMap();
        }
        // Most events have their keys in the same order, and Jackson interns them: a comparison, no hashing.
        if (parent.next < parent.children.size()) {
            Node guess = (Node) parent.children.get(parent.next);
            if (guess.name == name) {
                parent.next++;
                return guess;
            }
        }
        Node found = (Node) parent.byName.get(name);
        if (found == null) {
            if (counted.nodes >= maxNodes) {
                saw(parent, MORE);
                return null;
            }
            counted.nodes++;
            found = new Node(name);
            found.place = parent.children.size();
            parent.byName.put(name, found);
            parent.children.add(found);
        }
        parent.next = found.place + 1;
        return found;
    }

    private void saw(Node node, int kinds) {
        if ((node.kinds & kinds) != kinds) {
            changed.add(node);
            changed.add(Integer.valueOf(node.kinds));
            node.kinds |= kinds;
        }
    }

    /* A line that turns out to be malformed must not leave a column behind. */
    private void forget() {
        for (int i = changed.size() - 2; i >= 0; i -= 2) {
            ((Node) changed.get(i)).kinds = ((Integer) changed.get(i + 1)).intValue();
        }
    }

    public Iterator call(Object input) throws Exception {
        Iterator rows = (Iterator) input;
        JsonFactory factory = Verdict.factory();
        LinkedHashMap found = new LinkedHashMap();
        Found all = new Found(0, "");
        if (!byTable) {
            found.put("", all);
        }
        while (rows.hasNext()) {
            InternalRow row = (InternalRow) rows.next();
            Found own = all;
            if (byTable) {
                String table = row.getUTF8String(1).toString();
                String key = row.getLong(3) + "/" + table;
                own = (Found) found.get(key);
                if (own == null) {
                    own = new Found(row.getLong(3), table);
                    found.put(key, own);
                }
                if (table.length() == 0) {
                    // routed nowhere: counted, but its fields become no columns
                    if (row.isNullAt(2)) {
                        own.skipped++;
                    } else {
                        own.bad++;
                    }
                    continue;
                }
            }
            look(factory, row.getUTF8String(0).getBytes(), own);
        }
        ArrayList answers = new ArrayList();
        for (Iterator each = found.values().iterator(); each.hasNext();) {
            answers.add(((Found) each.next()).toString());
        }
        return answers.iterator();
    }

    private void look(JsonFactory factory, byte[] line, Found found) {
        if (Verdict.isBlank(line)) {
            found.blank++;
            return;
        }
        changed.clear();
        counted = found;
        try {
            JsonParser parser = factory.createParser(line, 0, line.length);
            if (parser.nextToken() != JsonToken.START_OBJECT) {
                found.bad++;
                return;
            }
            boolean isBrowser = object(parser, found.root, 1);
            if (parser.nextToken() != null) {
                forget();
                found.bad++;
                return;
            }
            found.events++;
            if (isBrowser) {
                found.browser++;
            }
        } catch (IOException error) {
            forget();
            found.bad++;
        }
    }

    /* Whether a top-level `api_key` says that a browser sent the event. */
    private boolean object(JsonParser parser, Node node, int depth) throws IOException {
        boolean isBrowser = false;
        node.next = 0;
        while (parser.nextToken() == JsonToken.FIELD_NAME) {
            Node child = child(node, parser.getCurrentName());
            JsonToken token = parser.nextToken();
            if (child == null) {
                parser.skipChildren();
                continue;
            }
            switch (token.id()) {
                case 6: // string
                    saw(child, text(parser));
                    if (depth == 1 && "api_key".equals(child.name)) {
                        isBrowser = browserKeys.indexOf("\n" + parser.getText() + "\n") >= 0;
                    }
                    break;
                case 7: // integer
                    saw(child, parser.getNumberType() == JsonParser.NumberType.BIG_INTEGER ? BIG : INT64);
                    break;
                case 8: // float
                    saw(child, number(parser));
                    break;
                case 9: // true
                case 10: // false
                    saw(child, BOOL);
                    break;
                case 1: // {
                    if (depth >= maxDepth) {
                        saw(child, DEEP);
                        parser.skipChildren();
                    } else {
                        saw(child, OBJECT);
                        object(parser, child, depth + 1);
                    }
                    break;
                case 3: // [
                    saw(child, ARRAY);
                    parser.skipChildren();
                    break;
                default: // null
                    break;
            }
        }
        return isBrowser;
    }

    private static int number(JsonParser parser) throws IOException {
        char[] text = parser.getTextCharacters();
        int from = parser.getTextOffset(), length = parser.getTextLength();
        boolean isLong = length > 20;
        for (int i = from; !isLong && i < from + length; i++) {
            isLong = text[i] == 'e' || text[i] == 'E';
        }
        if (!isLong) {
            return FLOAT64;
        }
        double value = Math.abs(parser.getDoubleValue());
        if (Double.isInfinite(value)) {
            return BIG;
        }
        return value >= 9.9e19 ? FLOAT64 | HUGE : FLOAT64;
    }

    /* TIMESTAMP for yyyy-MM-ddTHH:mm:ss[.f…][Z|±HH:mm|±HHmm] that is a moment of the calendar. */
    private static int text(JsonParser parser) throws IOException {
        int length = parser.getTextLength();
        if (length < 19 || length > 35) {
            return STRING;
        }
        char[] t = parser.getTextCharacters();
        int o = parser.getTextOffset();
        if (t[o + 4] != '-' || t[o + 7] != '-' || t[o + 10] != 'T' || t[o + 13] != ':' || t[o + 16] != ':') {
            return STRING;
        }
        int year = digits(t, o, 4), month = digits(t, o + 5, 2), day = digits(t, o + 8, 2);
        int hour = digits(t, o + 11, 2), minute = digits(t, o + 14, 2), second = digits(t, o + 17, 2);
        if (year < 1 || month < 1 || month > 12 || day < 1 || hour < 0 || hour > 23 || minute < 0 || minute > 59
                || second < 0 || second > 59) {
            return STRING;
        }
        int last = month == 2 ? ((year % 4 == 0 && year % 100 != 0) || year % 400 == 0 ? 29 : 28)
                : (month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31);
        if (day > last) {
            return STRING;
        }
        int end = o + length, at = o + 19;
        if (at < end && t[at] == '.') {
            int start = ++at;
            while (at < end && t[at] >= '0' && t[at] <= '9') {
                at++;
            }
            if (at == start || at - start > 9) {
                return STRING;
            }
        }
        if (at == end || (t[at] == 'Z' && at + 1 == end)) {
            return TIMESTAMP;
        }
        if (t[at] != '+' && t[at] != '-') {
            return STRING;
        }
        int left = end - at - 1;
        boolean colon = left == 5 && t[at + 3] == ':';
        if (!colon && left != 4) {
            return STRING;
        }
        int hours = digits(t, at + 1, 2), minutes = digits(t, at + (colon ? 4 : 3), 2);
        return hours >= 0 && hours <= 17 && minutes >= 0 && minutes <= 59 ? TIMESTAMP : STRING;
    }

    private static int digits(char[] text, int from, int count) {
        int value = 0;
        for (int i = from; i < from + count; i++) {
            if (text[i] < '0' || text[i] > '9') {
                return -1;
            }
            value = value * 10 + text[i] - '0';
        }
        return value;
    }

    static void write(Node node, StringBuilder out) {
        out.append('[').append(node.kinds).append(",{");
        int count = node.children == null ? 0 : node.children.size();
        for (int i = 0; i < count; i++) {
            Node child = (Node) node.children.get(i);
            if (i > 0) {
                out.append(',');
            }
            out.append('"').append(new String(JsonStringEncoder.getInstance().quoteAsString(child.name)));
            out.append("\":");
            write(child, out);
        }
        out.append("}]");
    }
}

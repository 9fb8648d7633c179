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
 * Finds the fields of the lines of a batch and the JSON types of their values. One answer per partition, or per
 * file and table of a partition, as JSON: counts and a tree of [types, children].
 *
 * from_json parses with Jackson too, so a line that is well-formed here is well-formed there. The text is
 * compiled by Janino, which has no generics and no lambdas; hence the plain style.
 */
public class Scan implements FlatMapFunction {
    static final int BOOL = 1, INT64 = 2, FLOAT64 = 4, STRING = 8, TIMESTAMP = 16;
    static final int TOO_LARGE = 32;        // a number that neither a long nor a double can hold
    static final int ARRAY = 64;
    static final int OBJECT = 128;
    static final int TOO_DEEP = 256;        // an object below the maximum depth: kept as text
    static final int FIELDS_OMITTED = 512;  // an object with fields beyond the maximum number

    private final int maxDepth;
    private final int maxFields;
    private final String browserKeys;  // each api_key of browser events, between two line ends
    private final boolean byTable;
    private final boolean isChecked;   // whether lines have a checksum behind the event
    private Found counted;
    private ArrayList changed = new ArrayList();  // Node, Integer: the types before this line

    /* byTable: rows are a line, the table that it goes to (empty: none), the reason why it has none, and its file number. */
    public Scan(int maxDepth, int maxFields, String browserKeys, boolean byTable, boolean isChecked) {
        this.maxDepth = maxDepth;
        this.maxFields = maxFields;
        this.browserKeys = browserKeys.length() > 0 ? "\n" + browserKeys + "\n" : "";
        this.byTable = byTable;
        this.isChecked = isChecked;
    }

    /* Counts and fields of all lines, or of those that go from one file to one table. */
    static final class Found {
        final long file;
        final String table;
        final Node root = new Node("");
        int fields;
        long events, malformed, blank, fromBrowser, skipped;

        Found(long file, String table) {
            this.file = file;
            this.table = table;
        }

        public String toString() {
            StringBuilder out = new StringBuilder();
            out.append("{\"file\":").append(file).append(",\"table\":\"");
            out.append(new String(JsonStringEncoder.getInstance().quoteAsString(table)));
            out.append("\",\"events\":").append(events).append(",\"malformed\":").append(malformed);
            out.append(",\"blank\":").append(blank).append(",\"from_browser\":").append(fromBrowser);
            out.append(",\"skipped\":").append(skipped).append(",\"tree\":");
            Scan.write(root, out);
            return out.append('}').toString();
        }
    }

    static final class Node {
        final String name;
        int types;
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
            if (counted.fields >= maxFields) {
                add(parent, FIELDS_OMITTED);
                return null;
            }
            counted.fields++;
            found = new Node(name);
            found.place = parent.children.size();
            parent.byName.put(name, found);
            parent.children.add(found);
        }
        parent.next = found.place + 1;
        return found;
    }

    private void add(Node node, int types) {
        if ((node.types & types) != types) {
            changed.add(node);
            changed.add(Integer.valueOf(node.types));
            node.types |= types;
        }
    }

    /* A line that turns out to be malformed must not leave a column behind. */
    private void forget() {
        for (int i = changed.size() - 2; i >= 0; i -= 2) {
            ((Node) changed.get(i)).types = ((Integer) changed.get(i + 1)).intValue();
        }
    }

    public Iterator call(Object input) throws Exception {
        Iterator rows = (Iterator) input;
        JsonFactory factory = EventCheck.factory();
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
                        own.malformed++;
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
        int length = isChecked ? EventCheck.eventLength(line) : line.length;
        if (length < 0) {
            found.malformed++;
            return;
        }
        if (EventCheck.isBlank(line, length)) {
            found.blank++;
            return;
        }
        changed.clear();
        counted = found;
        try {
            JsonParser parser = factory.createParser(line, 0, length);
            if (parser.nextToken() != JsonToken.START_OBJECT) {
                found.malformed++;
                return;
            }
            boolean isBrowser = object(parser, found.root, 1);
            if (parser.nextToken() != null) {
                forget();
                found.malformed++;
                return;
            }
            found.events++;
            if (isBrowser) {
                found.fromBrowser++;
            }
        } catch (IOException error) {
            forget();
            found.malformed++;
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
                    add(child, text(parser));
                    if (depth == 1 && "api_key".equals(child.name)) {
                        isBrowser = browserKeys.indexOf("\n" + parser.getText() + "\n") >= 0;
                    }
                    break;
                case 7: // integer
                    add(child, parser.getNumberType() == JsonParser.NumberType.BIG_INTEGER ? TOO_LARGE : INT64);
                    break;
                case 8: // float
                    add(child, number(parser));
                    break;
                case 9: // true
                case 10: // false
                    add(child, BOOL);
                    break;
                case 1: // {
                    if (depth >= maxDepth) {
                        add(child, TOO_DEEP);
                        parser.skipChildren();
                    } else {
                        add(child, OBJECT);
                        object(parser, child, depth + 1);
                    }
                    break;
                case 3: // [
                    add(child, ARRAY);
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
        return Double.isInfinite(parser.getDoubleValue()) ? TOO_LARGE : FLOAT64;
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
        out.append('[').append(node.types).append(",{");
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

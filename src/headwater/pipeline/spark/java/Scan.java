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
 * file and table of a partition, as JSON: counts and a tree of [types, children, number of values].
 *
 * ParseEvents reads the same tokens, so a line that is well-formed here is well-formed there. The text is
 * compiled by Janino, which has no generics and no lambdas; hence the plain style.
 */
public class Scan implements FlatMapFunction {
    static final int BOOL = 1, INT64 = 2, FLOAT64 = 4, STRING = 8, TIMESTAMP = 16;
    static final int TOO_LARGE = 32;        // a number that neither a long nor a double holds exactly
    static final int ARRAY = 64;
    static final int OBJECT = 128;
    static final int TOO_DEEP = 256;        // an object below the maximum depth: kept as text
    static final int FIELDS_OMITTED = 512;  // an object with fields beyond the maximum number
    static final int FINE_TIMESTAMP = 1024; // a timestamp with digits below the microsecond
    static final int LARGE_INT64 = 2048;    // an integer that a double does not hold exactly
    static final int BROKEN_TEXT = 4096;    // half a surrogate pair: no UTF-8
    static final int REPEATED = 8192;       // an object has the key more than once

    public static final int GUESSES = 4;    // children that a key is compared with before it is looked up

    private final int maxDepth;
    private final int maxFields;
    private final String browserKeys;  // each api_key of browser events, between two line ends
    private final boolean byTable;
    private final boolean isChecked;   // whether lines have a checksum behind the event
    private final int maxLines;        // of a partition; 0: all
    private Found counted;
    private long objects;
    private ArrayList changed = new ArrayList();  // Node, Integer: the types before this line
    private double held;  // the double that the last float noted is, if it is long; NaN: it is none
    boolean isHeld;

    /* byTable: rows are a line, the table that it goes to (empty: none), the reason why it has none, and its file number. */
    public Scan(int maxDepth, int maxFields, String browserKeys, boolean byTable, boolean isChecked, int maxLines) {
        this.maxDepth = maxDepth;
        this.maxFields = maxFields;
        this.browserKeys = browserKeys.length() > 0 ? "\n" + browserKeys + "\n" : "";
        this.byTable = byTable;
        this.isChecked = isChecked;
        this.maxLines = maxLines;
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
        long seen, count;

        Node(String name) {
            this.name = name;
        }
    }

    /* Starts a line, whose fields are added to what was found. */
    void start(Found found) {
        changed.clear();
        counted = found;
    }

    Node child(Node parent, String name) {
        if (parent.children == null) {
            parent.children = new ArrayList();
            parent.byName = new HashMap();
        }
        // Most events have their keys in the same order, and Jackson interns them: comparisons, no hashing.
        int last = Math.min(parent.next + GUESSES, parent.children.size());
        for (int i = parent.next; i < last; i++) {
            Node guess = (Node) parent.children.get(i);
            if (guess.name == name) {
                parent.next = i + 1;
                return guess;
            }
        }
        Node found = (Node) parent.byName.get(name);
        if (found == null) {
            // a name that has no UTF-8 cannot be sent to the driver
            if (counted.fields >= maxFields || !Values.isWhole(name)) {
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

    void add(Node node, int types) {
        if ((node.types & types) != types) {
            changed.add(node);
            changed.add(Integer.valueOf(node.types));
            node.types |= types;
        }
    }

    /* A line that turns out to be malformed must not leave a column behind. */
    void forget() {
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
        for (int lines = 0; (maxLines == 0 || lines < maxLines) && rows.hasNext(); lines++) {
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
        start(found);
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
        begin(node);
        long own = nextObject();
        while (parser.nextToken() == JsonToken.FIELD_NAME) {
            Node child = child(node, parser.getCurrentName());
            JsonToken token = parser.nextToken();
            if (child == null) {
                parser.skipChildren();
                continue;
            }
            note(parser, token, child, own, depth);
            if (token == JsonToken.START_OBJECT && depth < maxDepth) {
                object(parser, child, depth + 1);
            } else if (token == JsonToken.START_OBJECT || token == JsonToken.START_ARRAY) {
                parser.skipChildren();
            } else if (depth == 1) {
                isBrowser |= isBrowser(parser, token, child);
            }
        }
        return isBrowser;
    }

    /* Starts to read an object of the path. */
    static void begin(Node node) {
        node.next = 0;
    }

    /* A number for the object that is read now, by which a key that it repeats is known. */
    long nextObject() {
        return ++objects;
    }

    boolean isBrowser(JsonParser parser, JsonToken token, Node child) throws IOException {
        return token == JsonToken.VALUE_STRING && browserKeys.length() > 0 && "api_key".equals(child.name)
            && browserKeys.indexOf("\n" + parser.getText() + "\n") >= 0;
    }

    /* Adds the type of the value of a path. */
    void note(JsonParser parser, JsonToken token, Node child, long object, int depth) throws IOException {
        if (child.seen == object) {
            add(child, REPEATED);
        }
        child.seen = object;
        if (token == JsonToken.VALUE_NULL) {
            return;
        }
        child.count++;
        switch (token.id()) {
            case 6: // string
                add(child, text(parser));
                break;
            case 7: // integer
                add(child, integer(parser));
                break;
            case 8: // float
                isHeld = !Values.isShort(parser);
                held = isHeld ? Values.toExact(parser) : 0;
                add(child, held == held ? FLOAT64 : TOO_LARGE);
                break;
            case 9: // true
            case 10: // false
                add(child, BOOL);
                break;
            case 1: // {
                add(child, depth >= maxDepth ? TOO_DEEP : OBJECT);
                break;
            default: // [
                add(child, ARRAY);
                break;
        }
    }

    /* Values.toDouble of the token that was noted last. */
    Double toDouble(JsonParser parser, JsonToken token, int texts) throws IOException {
        if (token != JsonToken.VALUE_NUMBER_FLOAT || !isHeld) {
            return Values.toDouble(parser, token, texts);
        }
        return held == held ? Double.valueOf(held) : null;
    }

    private static int integer(JsonParser parser) throws IOException {
        if (parser.getNumberType() == JsonParser.NumberType.BIG_INTEGER) {
            return TOO_LARGE;
        }
        return Values.isExact(parser.getLongValue()) ? INT64 : INT64 | LARGE_INT64;
    }

    private static int text(JsonParser parser) throws IOException {
        char[] text = parser.getTextCharacters();
        int from = parser.getTextOffset(), length = parser.getTextLength();
        if (Values.moment(text, from, length) != Values.NO_MOMENT) {
            return Values.isFine(text, from, length) ? TIMESTAMP | FINE_TIMESTAMP : TIMESTAMP;
        }
        return Values.isWhole(text, from, length) ? STRING : STRING | BROKEN_TEXT;
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
        out.append("},").append(node.count).append(']');
    }
}
